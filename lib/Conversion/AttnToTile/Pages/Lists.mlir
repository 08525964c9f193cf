// Functions on lists of tokens in pages, for kernels whose table has a row of pages for each list. They are appended
// to the text of each kernel, which defines !ints.

// The element [row, column] of a tensor.
func.func private @element(%row: i32, %width: i32, %column: i32) -> i64 {
  %wide_row = arith.extsi %row : i32 to i64
  %wide_width = arith.extsi %width : i32 to i64
  %begin = arith.muli %wide_row, %wide_width : i64
  %wide_column = arith.extsi %column : i32 to i64
  %at = arith.addi %begin, %wide_column : i64
  return %at : i64
}

// The page of the token at index `place` of a list; at the right end pages are counted from there.
func.func private @page(%table: !ints, %list: i32, %columns: i32, %place: i32, %tokens: i32, %right: i1) -> i32 {
  %one = arith.constant 1 : i32
  %number = arith.divui %place, %tokens : i32
  %last = arith.subi %columns, %one : i32
  %from_right = arith.subi %last, %number : i32
  %column = arith.select %right, %from_right, %number : i32
  %at = func.call @element(%list, %columns, %column) : (i32, i32, i32) -> i64
  %page = tile.read %table[%at] : <i32> -> i32
  return %page : i32
}

// The slot of the keys and values of the token at index `place`.
func.func private @slot(%table: !ints, %list: i32, %columns: i32, %place: i32, %tokens: i32, %right: i1) -> i32 {
  %page = func.call @page(%table, %list, %columns, %place, %tokens, %right) : (!ints, i32, i32, i32, i32, i1) -> i32
  %begin = arith.muli %page, %tokens : i32
  %in = arith.remui %place, %tokens : i32
  %slot = arith.addi %begin, %in : i32
  return %slot : i32
}

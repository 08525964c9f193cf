// attn.manage_pages: gives every list the pages that its tokens need. Each block has a share of the lists, one list per thread at a time.
// Three launches:
//
//   count_pages     each block sums the pages its lists release and request, and counts lists that do not fit their row of the
//                   page table     -> sums
//   release_pages   the total decides whether the step happens; the preceding blocks' sums give where in the ring a block's pages go
//   take_pages      the same total decides; the preceding blocks' sums give where in the ring a block takes its pages
//
// No block waits for another, and the sums do not depend on block order. count_pages copies the ring's span after the
// sums, the other launches read the copy, and only take_pages writes the span. So all blocks of a launch see the same
// span.
//
// Most lists change by a page or none in a step, and few by hundreds. So a warp handles all changes of its 32 lists
// together, a page to a lane: each page's list is searched for in the prefix sums that the lanes hold.

!ints = !tile.buffer<i32>
!scratch = !tile.scratch<160>
#parameters = [
  #tile.parameter<buffer, "table">, #tile.parameter<buffer, "counts">, #tile.parameter<buffer, "tokens">,
  #tile.parameter<buffer, "free">, #tile.parameter<buffer, "span">, #tile.parameter<buffer, "status">,
  #tile.parameter<dim, "table.dim0">, #tile.parameter<dim, "table.dim1">, #tile.parameter<buffer, "sums">,
  #tile.parameter<dim, "free.dim0">]

// Defined by KernelText from the operation, for the left and right end: tokens per page minus one, and tokens per page.
func.func private @left_rest() -> i32
func.func private @right_rest() -> i32
func.func private @left_tokens() -> i32
func.func private @right_tokens() -> i32

func.func @count_pages(
    %table: !ints, %counts: !ints, %tokens: !ints, %free: !ints, %span: !ints, %status: !ints, %lists: i32, %columns: i32,
    %sums: !ints, %pages: i32)
    attributes {
      tile.blocks_per_sm = 4 : i32, tile.threads = 256 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "count_pages", rows_per_warp = 32 : i32},
      tile.parameters = #parameters} {
  %zero = arith.constant 0 : i32
  %first = arith.constant 0 : i64
  %words = arith.constant 4 : i32
  %step = arith.constant 256 : i32
  %scratch = tile.alloc : !scratch
  %place:5 = func.call @share(%lists) : (i32) -> (i32, i32, i32, i32, i32)
  %mine:3 = scf.for %from = %place#3 to %place#4 step %step iter_args(%g = %zero, %a = %zero, %u = %zero) -> (i32, i32, i32) : i32 {
    %i = arith.addi %from, %place#2 : i32
    %list:6 = func.call @list(%counts, %tokens, %columns, %i, %place#4, %place#2)
        : (!ints, !ints, i32, i32, i32, i32) -> (i1, i1, i32, i32, i32, i32)
    %gives_left = func.call @above(%list#2, %list#4) : (i32, i32) -> i32
    %gives_right = func.call @above(%list#3, %list#5) : (i32, i32) -> i32
    %gives = arith.addi %gives_left, %gives_right : i32
    %asks_left = func.call @above(%list#4, %list#2) : (i32, i32) -> i32
    %asks_right = func.call @above(%list#5, %list#3) : (i32, i32) -> i32
    %asks = arith.addi %asks_left, %asks_right : i32
    %exists = arith.extui %list#0 : i1 to i32
    %unheld = arith.select %list#1, %zero, %exists : i32
    %all_given = arith.addi %g, %gives : i32
    %all_asked = arith.addi %a, %asks : i32
    %all_unheld = arith.addi %u, %unheld : i32
    scf.yield %all_given, %all_asked, %all_unheld : i32, i32, i32
  }
  %before:3, %totals:3 = tile.scan %mine#0, %mine#1, %mine#2 in %scratch warps 8
      : i32, i32, i32 in <160> -> i32, i32, i32 total i32, i32, i32
  %is_first = arith.cmpi eq, %place#2, %zero : i32
  scf.if %is_first {
    %own = arith.muli %place#0, %words : i32
    %at = arith.extsi %own : i32 to i64
    tile.write_adjacent %totals#0, %totals#1, %totals#2, %zero to %sums[%at] : i32, i32, i32, i32 -> <i32>
  }
  %is_first_block = arith.cmpi eq, %place#0, %zero : i32
  %copies = arith.andi %is_first, %is_first_block : i1
  scf.if %copies {
    %ring:2 = tile.read_adjacent %span[%first] : <i32> -> i32, i32
    %behind = arith.muli %place#1, %words : i32
    %at = arith.extsi %behind : i32 to i64
    tile.write_adjacent %ring#0, %ring#1 to %sums[%at] : i32, i32 -> <i32>
  }
  return
}

func.func @release_pages(
    %table: !ints, %counts: !ints, %tokens: !ints, %free: !ints, %span: !ints, %status: !ints, %lists: i32, %columns: i32,
    %sums: !ints, %pages: i32)
    attributes {
      tile.blocks_per_sm = 4 : i32, tile.threads = 256 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "release_pages", rows_per_warp = 32 : i32},
      tile.parameters = #parameters} {
  %false = arith.constant false
  %done:7 = func.call @exchange(%table, %counts, %tokens, %free, %sums, %lists, %columns, %pages, %false)
      : (!ints, !ints, !ints, !ints, !ints, i32, i32, i32, i1) -> (i1, i32, i32, i32, i32, i32, i32)
  return
}

func.func @take_pages(
    %table: !ints, %counts: !ints, %tokens: !ints, %free: !ints, %span: !ints, %status: !ints, %lists: i32, %columns: i32,
    %sums: !ints, %pages: i32)
    attributes {
      tile.blocks_per_sm = 4 : i32, tile.threads = 256 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "take_pages", rows_per_warp = 32 : i32},
      tile.parameters = #parameters} {
  %zero = arith.constant 0 : i32
  %first = arith.constant 0 : i64
  %true = arith.constant true
  %done:7 = func.call @exchange(%table, %counts, %tokens, %free, %sums, %lists, %columns, %pages, %true)
      : (!ints, !ints, !ints, !ints, !ints, i32, i32, i32, i1) -> (i1, i32, i32, i32, i32, i32, i32)
  %is_first_block = arith.cmpi eq, %done#5, %zero : i32
  %is_first_thread = arith.cmpi eq, %done#6, %zero : i32
  %is_one = arith.andi %is_first_block, %is_first_thread : i1
  scf.if %is_one {
    %was_done = arith.extui %done#0 : i1 to i32
    tile.write_adjacent %was_done, %done#1, %done#2, %done#3 to %status[%first] : i32, i32, i32, i32 -> <i32>
  }
  %publishes = arith.andi %is_one, %done#0 : i1
  scf.if %publishes {
    %begin = arith.addi %done#4, %done#1 : i32
    %wrapped = func.call @wrap(%begin, %pages) : (i32, i32) -> i32
    %left = arith.subi %done#2, %done#1 : i32
    tile.write_adjacent %wrapped, %left to %span[%first] : i32, i32 -> <i32>
  }
  return
}

// Decides whether the step happens and, if so, moves this block's pages: releases them or, with `takes`, takes them. Returns: done,
// pages requested, pages available, lists that do not fit, start of the free pages, block, thread.
func.func private @exchange(
    %table: !ints, %counts: !ints, %tokens: !ints, %free: !ints, %sums: !ints, %lists: i32, %columns: i32, %pages: i32,
    %takes: i1) -> (i1, i32, i32, i32, i32, i32, i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %words = arith.constant 4 : i32
  %step = arith.constant 256 : i32
  %lane = tile.lane_id : i32
  %scratch = tile.alloc : !scratch
  %place:5 = func.call @share(%lists) : (i32) -> (i32, i32, i32, i32, i32)
  %mine:4 = scf.for %from = %zero to %place#1 step %step
      iter_args(%g = %zero, %a = %zero, %u = %zero, %f = %zero) -> (i32, i32, i32, i32) : i32 {
    %i = arith.addi %from, %place#2 : i32
    %exists = arith.cmpi slt, %i, %place#1 : i32
    %last = arith.subi %place#1, %one : i32
    %inside = arith.minsi %i, %last : i32
    %row = arith.muli %inside, %words : i32
    %at = arith.extsi %row : i32 to i64
    %of_block:4 = tile.read_adjacent %sums[%at] : <i32> -> i32, i32, i32, i32
    %exchanged = arith.select %takes, %of_block#1, %of_block#0 : i32
    %is_in_front = arith.cmpi slt, %i, %place#0 : i32
    %in_front = arith.select %is_in_front, %exchanged, %zero : i32
    %g_here = arith.select %exists, %of_block#0, %zero : i32
    %a_here = arith.select %exists, %of_block#1, %zero : i32
    %u_here = arith.select %exists, %of_block#2, %zero : i32
    %f_here = arith.select %exists, %in_front, %zero : i32
    %g_all = arith.addi %g, %g_here : i32
    %a_all = arith.addi %a, %a_here : i32
    %u_all = arith.addi %u, %u_here : i32
    %f_all = arith.addi %f, %f_here : i32
    scf.yield %g_all, %a_all, %u_all, %f_all : i32, i32, i32, i32
  }
  %ignored:4, %all:4 = tile.scan %mine#0, %mine#1, %mine#2, %mine#3 in %scratch warps 8
      : i32, i32, i32, i32 in <160> -> i32, i32, i32, i32 total i32, i32, i32, i32
  %behind = arith.muli %place#1, %words : i32
  %copy = arith.extsi %behind : i32 to i64
  %ring:2 = tile.read_adjacent %sums[%copy] : <i32> -> i32, i32
  %there = arith.addi %ring#1, %all#0 : i32
  %all_held = arith.cmpi eq, %all#2, %zero : i32
  %enough = arith.cmpi sle, %all#1, %there : i32
  %is_done = arith.andi %all_held, %enough : i1
  %both = arith.addi %all#0, %all#1 : i32
  %changed = arith.select %takes, %both, %all#0 : i32
  %some = arith.cmpi slt, %zero, %changed : i32
  %goes = arith.andi %is_done, %some : i1
  %last_list = arith.select %goes, %place#4, %place#3 : i32
  // Released pages go after the pages that were free; taken pages begin with the first free page.
  %free_end = arith.addi %ring#0, %ring#1 : i32
  %wrapped_end = func.call @wrap(%free_end, %pages) : (i32, i32) -> i32
  %ring_at = arith.select %takes, %ring#0, %wrapped_end : i32
  %total = scf.for %from = %place#3 to %last_list step %step iter_args(%done = %all#3) -> (i32) : i32 {
    %i = arith.addi %from, %place#2 : i32
    %list:6 = func.call @list(%counts, %tokens, %columns, %i, %place#4, %place#2)
        : (!ints, !ints, i32, i32, i32, i32) -> (i1, i1, i32, i32, i32, i32)
    %given_left = func.call @above(%list#2, %list#4) : (i32, i32) -> i32
    %asked_left = func.call @above(%list#4, %list#2) : (i32, i32) -> i32
    %lefts = arith.select %takes, %asked_left, %given_left : i32
    %given_right = func.call @above(%list#3, %list#5) : (i32, i32) -> i32
    %asked_right = func.call @above(%list#5, %list#3) : (i32, i32) -> i32
    %rights = arith.select %takes, %asked_right, %given_right : i32
    %count = arith.addi %lefts, %rights : i32
    // The columns of a list's pages that change hands: from the first one at the left on, and shifted to those at the
    // right.
    %left_first = arith.minsi %list#2, %list#4 : i32
    %most_right = arith.maxsi %list#3, %list#5 : i32
    %right_first = arith.subi %columns, %most_right : i32
    %shift = arith.subi %right_first, %lefts : i32
    %before, %of_all = tile.scan %count in %scratch warps 8 : i32 in <160> -> i32 total i32
    %first_list = arith.subi %i, %lane : i32
    func.call @exchange_warp(%table, %free, %first_list, %columns, %pages, %count, %lefts, %left_first, %shift, %before, %done, %ring_at, %lane, %takes)
        : (!ints, !ints, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i1) -> ()
    %writes = arith.andi %takes, %list#0 : i1
    scf.if %writes {
      %row = arith.muli %i, %two : i32
      %at = arith.extsi %row : i32 to i64
      tile.write_adjacent %list#4, %list#5 to %counts[%at] : i32, i32 -> <i32>
    }
    %sum = arith.addi %done, %of_all : i32
    scf.yield %sum : i32
  }
  return %is_done, %all#1, %there, %all#2, %ring#0, %place#0, %place#2 : i1, i32, i32, i32, i32, i32, i32
}

// Moves the pages that a warp's lists change. `before` is the number of the block's pages before those of each lane.
func.func private @exchange_warp(
    %table: !ints, %free: !ints, %first_list: i32, %columns: i32, %pages: i32, %count: i32, %lefts: i32, %left_first: i32,
    %shift: i32, %before: i32, %done: i32, %ring: i32, %lane: i32, %takes: i1) {
  %zero = arith.constant 0 : i32
  %none = arith.constant -1 : i32
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %c8 = arith.constant 8 : i32
  %c16 = arith.constant 16 : i32
  %c31 = arith.constant 31 : i32
  %c32 = arith.constant 32 : i32
  %first_of_warp = tile.from_lane %before[%zero] : i32
  %start = arith.subi %before, %first_of_warp : i32
  %up_to = arith.addi %start, %count : i32
  %all = tile.from_lane %up_to[%c31] : i32
  %number = arith.addi %done, %first_of_warp : i32
  scf.for %from = %zero to %all step %c32 : i32 {
    %mine = arith.addi %from, %lane : i32
    %o16 = func.call @search(%start, %mine, %zero, %c16) : (i32, i32, i32, i32) -> i32
    %o8 = func.call @search(%start, %mine, %o16, %c8) : (i32, i32, i32, i32) -> i32
    %o4 = func.call @search(%start, %mine, %o8, %c4) : (i32, i32, i32, i32) -> i32
    %o2 = func.call @search(%start, %mine, %o4, %c2) : (i32, i32, i32, i32) -> i32
    %owner = func.call @search(%start, %mine, %o2, %c1) : (i32, i32, i32, i32) -> i32
    %start_there = tile.from_lane %start[%owner] : i32
    %of_list = arith.subi %mine, %start_there : i32
    %lefts_there = tile.from_lane %lefts[%owner] : i32
    %is_left = arith.cmpi slt, %of_list, %lefts_there : i32
    %left_there = tile.from_lane %left_first[%owner] : i32
    %shift_there = tile.from_lane %shift[%owner] : i32
    %begin = arith.select %is_left, %left_there, %shift_there : i32
    %column = arith.addi %of_list, %begin : i32
    %list = arith.addi %first_list, %owner : i32
    %row = arith.muli %list, %columns : i32
    %index = arith.addi %row, %column : i32
    %entry = arith.extsi %index : i32 to i64
    %of_ring = arith.addi %number, %mine : i32
    %behind = arith.addi %ring, %of_ring : i32
    %wrapped = func.call @wrap(%behind, %pages) : (i32, i32) -> i32
    %slot = arith.extsi %wrapped : i32 to i64
    %exists = arith.cmpi slt, %mine, %all : i32
    scf.if %exists {
      scf.if %takes {
        %page = tile.read written %free[%slot] : <i32> -> i32
        tile.write %page to %table[%entry] : i32 -> <i32>
      } else {
        %page = tile.read written %table[%entry] : <i32> -> i32
        tile.write %page to %free[%slot] : i32 -> <i32>
        tile.write %none to %table[%entry] : i32 -> <i32>
      }
    }
  }
  return
}

// One step of a binary search for the list that owns page `mine`: the last list that starts at or before it.
func.func private @search(%start: i32, %mine: i32, %owner: i32, %far: i32) -> i32 {
  %next = arith.addi %owner, %far : i32
  %start_there = tile.from_lane %start[%next] : i32
  %is_behind = arith.cmpi sle, %start_there, %mine : i32
  %found = arith.select %is_behind, %next, %owner : i32
  return %found : i32
}

// The block, the number of blocks, the thread in the block, and the range of the block's lists.
func.func private @share(%lists: i32) -> (i32, i32, i32, i32, i32) {
  %one = arith.constant 1 : i32
  %lanes = arith.constant 32 : i32
  %rest = arith.constant 31 : i32
  %lane = tile.lane_id : i32
  %block = tile.block_id : i32
  %blocks = tile.block_count : i32
  %warp = tile.warp_id : i32
  %warps_before = arith.muli %warp, %lanes : i32
  %thread = arith.addi %warps_before, %lane : i32
  %less = arith.subi %blocks, %one : i32
  %up = arith.addi %lists, %less : i32
  %each = arith.divui %up, %blocks : i32
  %each_up = arith.addi %each, %rest : i32
  %warps = arith.divui %each_up, %lanes : i32
  %share = arith.muli %warps, %lanes : i32
  %asked = arith.muli %block, %share : i32
  %begin = arith.minsi %asked, %lists : i32
  %full = arith.addi %begin, %share : i32
  %end = arith.minsi %full, %lists : i32
  return %block, %blocks, %thread, %begin, %end : i32, i32, i32, i32, i32
}

// A list: whether it exists, whether it fits its row of the page table, its pages at the left and right, and the pages its tokens need
// (unchanged if it does not fit). A thread without a list reads the counts of thread 0's list; thread 0 writes them only after the
// next barrier.
func.func private @list(%counts: !ints, %tokens: !ints, %columns: i32, %i: i32, %end: i32, %thread: i32)
    -> (i1, i1, i32, i32, i32, i32) {
  %zero = arith.constant 0 : i32
  %two = arith.constant 2 : i32
  %exists = arith.cmpi slt, %i, %end : i32
  %first = arith.subi %i, %thread : i32
  %list = arith.select %exists, %i, %first : i32
  %pair = arith.muli %list, %two : i32
  %at = arith.extsi %pair : i32 to i64
  %has:2 = tile.read_adjacent %counts[%at] : <i32> -> i32, i32
  %holds:2 = tile.read_adjacent %tokens[%at] : <i32> -> i32, i32
  // Pages needed. Negative counts, and counts so large that rounding up overflows, are rejected below.
  %left_rest = func.call @left_rest() : () -> i32
  %left_tokens = func.call @left_tokens() : () -> i32
  %left_up = arith.addi %holds#0, %left_rest : i32
  %left = arith.divui %left_up, %left_tokens : i32
  %right_rest = func.call @right_rest() : () -> i32
  %right_tokens = func.call @right_tokens() : () -> i32
  %right_up = arith.addi %holds#1, %right_rest : i32
  %right = arith.divui %right_up, %right_tokens : i32
  %t0 = arith.cmpi sle, %zero, %holds#0 : i32
  %t1 = arith.cmpi sle, %zero, %holds#1 : i32
  %t2 = arith.cmpi sle, %zero, %left : i32
  %t3 = arith.cmpi sle, %zero, %right : i32
  %t4 = arith.cmpi sle, %left, %columns : i32
  %room = arith.subi %columns, %left : i32
  %t5 = arith.cmpi sle, %right, %room : i32
  %t01 = arith.andi %t0, %t1 : i1
  %t23 = arith.andi %t2, %t3 : i1
  %t45 = arith.andi %t4, %t5 : i1
  %t0123 = arith.andi %t01, %t23 : i1
  %fits = arith.andi %t0123, %t45 : i1
  %changes = arith.andi %exists, %fits : i1
  %new_left = arith.select %changes, %left, %has#0 : i32
  %new_right = arith.select %changes, %right, %has#1 : i32
  return %exists, %fits, %has#0, %has#1, %new_left, %new_right : i1, i1, i32, i32, i32, i32
}

// max(x - y, 0).
func.func private @above(%x: i32, %y: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %more = arith.subi %x, %y : i32
  %some = arith.maxsi %more, %zero : i32
  return %some : i32
}

// index modulo pages, for an index below 2 * pages.
func.func private @wrap(%index: i32, %pages: i32) -> i32 {
  %is_inside = arith.cmpi slt, %index, %pages : i32
  %less = arith.subi %index, %pages : i32
  %wrapped = arith.select %is_inside, %index, %less : i32
  return %wrapped : i32
}

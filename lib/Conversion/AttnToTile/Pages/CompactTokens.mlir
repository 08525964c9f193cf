// attn.compact_tokens: the moves that close the holes in lists. Most lists are short, so a warp handles four, eight
// lanes each, and each lane a range of neighbouring tokens. One load brings sixteen keep flags, packed into a bit
// mask. Each lane makes three passes: it counts kept tokens, counts those before the list's new end, then numbers the
// tokens to move and the holes to fill. Prefix sums over the eight lanes connect the passes; the second and third
// find the flags in L1. Lists are independent, so one launch suffices. (Lists.mlir is appended to this text.)

!ints = !tile.buffer<i32>

// Defined by KernelText from the operation: tokens per page, and the end to compact: 0 left, 1 right.
func.func private @page_tokens() -> i32
func.func private @end() -> i32

// Flags are read as words. Eight blocks of eight warps fill a multiprocessor, at 32 registers per thread.
func.func @compact_tokens(
    %keep: !ints, %table: !ints, %counts: !ints, %tokens: !ints, %from: !ints, %to: !ints, %status: !ints, %lists: i32,
    %columns: i32, %flags: i32, %moves: i32)
    attributes {
      tile.blocks_per_sm = 8 : i32, tile.threads = 256 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "compact_tokens", rows_per_warp = 4 : i32},
      tile.parameters = [
        #tile.parameter<buffer, "keep">, #tile.parameter<buffer, "table">, #tile.parameter<buffer, "counts">,
        #tile.parameter<buffer, "tokens">, #tile.parameter<buffer, "from">, #tile.parameter<buffer, "to">,
        #tile.parameter<buffer, "status">, #tile.parameter<dim, "table.dim0">, #tile.parameter<dim, "table.dim1">,
        #tile.parameter<dim, "keep.dim1">, #tile.parameter<dim, "from.dim1">]} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %none = arith.constant -1 : i32
  %first_word = arith.constant 0 : i64
  %warps = arith.constant 8 : i32
  %lists_of_warp = arith.constant 4 : i32
  %lists_of_block = arith.constant 32 : i32
  %lanes_of_list = arith.constant 8 : i32
  %flags_at_once = arith.constant 16 : i32
  %before_round = arith.constant 127 : i32
  %round = arith.constant 128 : i32
  %lane = tile.lane_id : i32
  %block = tile.block_id : i32
  %warp_in_block = tile.warp_id : i32
  %blocks = tile.block_count : i32
  %warps_before = arith.muli %block, %warps : i32
  %warp = arith.addi %warps_before, %warp_in_block : i32
  %begin_list = arith.muli %warp, %lists_of_warp : i32
  %step = arith.muli %blocks, %lists_of_block : i32
  %in_warp = arith.divui %lane, %lanes_of_list : i32
  %of_list = arith.remui %lane, %lanes_of_list : i32
  %page = func.call @page_tokens() : () -> i32
  %end = func.call @end() : () -> i32
  scf.for %first = %begin_list to %lists step %step : i32 {
    %asked = arith.addi %first, %in_warp : i32
    %exists = arith.cmpi slt, %asked, %lists : i32
    %last_list = arith.subi %lists, %one : i32
    %list = arith.minsi %asked, %last_list : i32
    %pair = arith.muli %list, %two : i32
    %of_end = arith.addi %pair, %end : i32
    %number = arith.extsi %of_end : i32 to i64
    %count_of = tile.read written %tokens[%number] : <i32> -> i32
    %pages = tile.read %counts[%number] : <i32> -> i32
    %held = arith.muli %pages, %page : i32
    %is_natural = arith.cmpi sle, %zero, %count_of : i32
    %is_flagged = arith.cmpi sle, %count_of, %flags : i32
    %is_held = arith.cmpi sle, %count_of, %held : i32
    %known = arith.andi %is_flagged, %is_held : i1
    %is_legal = arith.andi %is_natural, %known : i1
    %counts_here = arith.andi %exists, %is_legal : i1
    %count = arith.select %counts_here, %count_of, %zero : i32
    %up = arith.addi %count, %before_round : i32
    %rounds = arith.divui %up, %round : i32
    %share = arith.muli %rounds, %flags_at_once : i32
    %begin = arith.muli %of_list, %share : i32
    %full = arith.addi %begin, %share : i32
    %behind = arith.minsi %full, %count : i32

    %mine = func.call @count_kept(%keep, %list, %flags, %begin, %behind) : (!ints, i32, i32, i32, i32) -> i32
    %stay:2 = func.call @sums(%lane, %of_list, %mine) : (i32, i32, i32) -> (i32, i32)
    %new_end = arith.minsi %behind, %stay#1 : i32
    %mine_in_front = func.call @count_kept(%keep, %list, %flags, %begin, %new_end) : (!ints, i32, i32, i32, i32) -> i32
    %in_front:2 = func.call @sums(%lane, %of_list, %mine_in_front) : (i32, i32, i32) -> (i32, i32)
    %moved = arith.subi %stay#1, %in_front#1 : i32
    %fits = arith.cmpi sle, %moved, %moves : i32
    %is_done = arith.andi %is_legal, %fits : i1
    %listed = arith.select %is_done, %moved, %zero : i32
    %some = arith.cmpi slt, %zero, %listed : i32
    %to_list = arith.select %some, %behind, %begin : i32
    %before = arith.subi %stay#0, %mine : i32
    func.call @write_moves(%table, %from, %to, %keep, %list, %columns, %flags, %moves, %begin, %to_list, %stay#1, %in_front#1, %before)
        : (!ints, !ints, !ints, !ints, i32, i32, i32, i32, i32, i32, i32, i32, i32) -> ()
    %behind_moves = arith.addi %listed, %of_list : i32
    %first_empty = arith.select %exists, %behind_moves, %moves : i32
    scf.for %j = %first_empty to %moves step %lanes_of_list : i32 {
      %at = func.call @element(%list, %moves, %j) : (i32, i32, i32) -> i64
      tile.write %none to %from[%at] : i32 -> <i32>
      tile.write %none to %to[%at] : i32 -> <i32>
    }
    tile.sync warp // all lanes have read the number that one writes
    %is_first = arith.cmpi eq, %of_list, %zero : i32
    %is_one = arith.andi %exists, %is_first : i1
    %writes = arith.andi %is_one, %is_done : i1
    scf.if %writes {
      tile.write %stay#1 to %tokens[%number] : i32 -> <i32>
    }
    %true = arith.constant true
    %is_not_done = arith.xori %is_done, %true : i1
    %complains = arith.andi %is_one, %is_not_done : i1
    scf.if %complains {
      tile.add_to %one to %status[%first_word] : <i32>
    }
  }
  return
}

// Lists a lane's moves and holes. `before`: tokens kept before `begin`.
func.func private @write_moves(
    %table: !ints, %from: !ints, %to: !ints, %keep: !ints, %list: i32, %columns: i32, %flags: i32, %moves: i32, %begin: i32,
    %behind: i32, %kept: i32, %kept_in_front: i32, %before: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %step = arith.constant 16 : i32
  %page = func.call @page_tokens() : () -> i32
  %end = func.call @end() : () -> i32
  %is_right = arith.cmpi ne, %end, %zero : i32
  %all = scf.for %place = %begin to %behind step %step iter_args(%count = %before) -> (i32) : i32 {
    %stay = func.call @kept_from(%keep, %list, %flags, %place, %behind) : (!ints, i32, i32, i32, i32) -> i32
    %in_front = func.call @bits_before(%place, %kept) : (i32, i32) -> i32
    %there = func.call @bits_before(%place, %behind) : (i32, i32) -> i32
    // Before the list's new end, list the holes; after it, the kept tokens.
    %unlike = arith.xori %stay, %in_front : i32
    %listed = arith.andi %unlike, %there : i32
    %number = math.ctpop %listed : i32
    %rest = scf.for %i = %zero to %number step %one iter_args(%left = %listed) -> (i32) : i32 {
      %bit = math.cttz %left : i32
      %less = arith.subi %left, %one : i32
      %next = arith.andi %left, %less : i32
      %power = arith.shli %one, %bit : i32
      %lower = arith.subi %power, %one : i32
      %stay_lower = arith.andi %stay, %lower : i32
      %lower_count = math.ctpop %stay_lower : i32
      %kept_below = arith.addi %count, %lower_count : i32
      %token = arith.addi %place, %bit : i32
      %slot = func.call @slot(%table, %list, %columns, %token, %page, %is_right) : (!ints, i32, i32, i32, i32, i1) -> i32
      %is_hole = arith.cmpi slt, %token, %kept : i32
      scf.if %is_hole {
        %hole = arith.subi %token, %kept_below : i32
        %at = func.call @element(%list, %moves, %hole) : (i32, i32, i32) -> i64
        tile.write %slot to %to[%at] : i32 -> <i32>
      } else {
        %move = arith.subi %kept_below, %kept_in_front : i32
        %at = func.call @element(%list, %moves, %move) : (i32, i32, i32) -> i64
        tile.write %slot to %from[%at] : i32 -> <i32>
      }
      scf.yield %next : i32
    }
    %stay_count = math.ctpop %stay : i32
    %sum = arith.addi %count, %stay_count : i32
    scf.yield %sum : i32
  }
  return
}

// The number of tokens in [begin, behind) that stay.
func.func private @count_kept(%keep: !ints, %list: i32, %flags: i32, %begin: i32, %behind: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %step = arith.constant 16 : i32
  %count = scf.for %place = %begin to %behind step %step iter_args(%sum = %zero) -> (i32) : i32 {
    %bits = func.call @kept_from(%keep, %list, %flags, %place, %behind) : (!ints, i32, i32, i32, i32) -> i32
    %here = math.ctpop %bits : i32
    %more = arith.addi %sum, %here : i32
    scf.yield %more : i32
  }
  return %count : i32
}

// The bits of the tokens that stay, of the sixteen from `place` on and before `behind`.
func.func private @kept_from(%keep: !ints, %list: i32, %flags: i32, %place: i32, %behind: i32) -> i32 {
  %of_word = arith.constant 4 : i32
  %c8 = arith.constant 8 : i32
  %c12 = arith.constant 12 : i32
  %words = arith.divui %flags, %of_word : i32
  %word = arith.divui %place, %of_word : i32
  %at = func.call @element(%list, %words, %word) : (i32, i32, i32) -> i64
  %read:4 = tile.read_adjacent %keep[%at] : <i32> -> i32, i32, i32, i32
  %b0 = func.call @bits_of_bytes(%read#0) : (i32) -> i32
  %b1 = func.call @bits_of_bytes(%read#1) : (i32) -> i32
  %b2 = func.call @bits_of_bytes(%read#2) : (i32) -> i32
  %b3 = func.call @bits_of_bytes(%read#3) : (i32) -> i32
  %p1 = arith.shli %b1, %of_word : i32
  %p2 = arith.shli %b2, %c8 : i32
  %p3 = arith.shli %b3, %c12 : i32
  %b01 = arith.ori %b0, %p1 : i32
  %b012 = arith.ori %b01, %p2 : i32
  %bits = arith.ori %b012, %p3 : i32
  %there = func.call @bits_before(%place, %behind) : (i32, i32) -> i32
  %kept = arith.andi %bits, %there : i32
  return %kept : i32
}

// One bit for each nonzero byte: sets the byte's top bit, then gathers the four bits.
func.func private @bits_of_bytes(%word: i32) -> i32 {
  %low = arith.constant 0x7F7F7F7F : i32
  %high = arith.constant -2139062144 : i32 // 0x80808080
  %c7 = arith.constant 7 : i32
  %c24 = arith.constant 24 : i32
  %gather = arith.constant 0x01020408 : i32
  %masked = arith.andi %word, %low : i32
  %carried = arith.addi %masked, %low : i32
  %any = arith.ori %carried, %word : i32
  %set = arith.andi %any, %high : i32
  %ones = arith.shrui %set, %c7 : i32
  %spread = arith.muli %ones, %gather : i32
  %four = arith.shrui %spread, %c24 : i32
  return %four : i32
}

// The lowest bits, as many as there are tokens from `place` to `behind`.
func.func private @bits_before(%place: i32, %behind: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %most = arith.constant 16 : i32
  %distance = arith.subi %behind, %place : i32
  %some = arith.minsi %distance, %most : i32
  %count = arith.maxsi %some, %zero : i32
  %power = arith.shli %one, %count : i32
  %bits = arith.subi %power, %one : i32
  return %bits : i32
}

// Prefix sums over the eight lanes of the list: the sum up to and with this lane, and the total.
func.func private @sums(%lane: i32, %of_list: i32, %value: i32) -> (i32, i32) {
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %c4 = arith.constant 4 : i32
  %c7 = arith.constant 7 : i32
  %s1 = func.call @add_from(%lane, %of_list, %value, %c1) : (i32, i32, i32, i32) -> i32
  %s2 = func.call @add_from(%lane, %of_list, %s1, %c2) : (i32, i32, i32, i32) -> i32
  %s4 = func.call @add_from(%lane, %of_list, %s2, %c4) : (i32, i32, i32, i32) -> i32
  %last = arith.ori %lane, %c7 : i32
  %all = tile.from_lane %s4[%last] : i32
  return %s4, %all : i32, i32
}

// Adds the value of the list's lane that is `distance` lanes before, if there is one.
func.func private @add_from(%lane: i32, %of_list: i32, %value: i32, %distance: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %there = arith.subi %lane, %distance : i32
  %inside = arith.maxsi %there, %zero : i32
  %other = tile.from_lane %value[%inside] : i32
  %is_none = arith.cmpi slt, %of_list, %distance : i32
  %more = arith.select %is_none, %zero, %other : i32
  %sum = arith.addi %value, %more : i32
  return %sum : i32
}

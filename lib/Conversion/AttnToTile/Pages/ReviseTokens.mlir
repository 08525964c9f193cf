// attn.revise_tokens: one warp per list. HIGH tokens fill the list's pages from the left end, LOW tokens from the right. The warp adds
// the new significance to each token's score. At each end it finds the token of least rank among those older than the window; it also
// finds the token that leaves the window. The policy decides, and one lane writes the result. (Lists.mlir is appended to this text.)

!ints = !tile.buffer<i32>
!floats = !tile.buffer<f32>

// Defined by KernelText from the operation: tokens per page at the left and right end, the window, the number of a
// prompt's last rows that were counted (0: all), and the policy's two regions.
func.func private @left() -> i32
func.func private @right() -> i32
func.func private @window() -> i32
func.func private @counted() -> i32
func.func private @rank(f32, i32, i32, i32) -> f32
func.func private @decide(f32, i1, f32, i1, f32, i1, i32, i32, i32, f32, f32) -> (i1, i1, i1, i1, i1)

func.func @revise_tokens(
    %table: !ints, %high: !ints, %low: !ints, %seen: !ints, %prompt: !ints, %limits: !floats, %sees: !ints, %score: !floats,
    %position: !ints, %worth_high: !floats, %worth_low: !floats, %done: !ints, %down_from: !ints, %down_to: !ints,
    %move_from: !ints, %move_to: !ints, %lists: i32, %columns: i32, %places: i32, %room_high: i32, %room_low: i32)
    attributes {
      tile.blocks_per_sm = 4 : i32, tile.threads = 256 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "revise_tokens", rows_per_warp = 1 : i32},
      tile.parameters = [
        #tile.parameter<buffer, "table">, #tile.parameter<buffer, "high">, #tile.parameter<buffer, "low">,
        #tile.parameter<buffer, "seen">, #tile.parameter<buffer, "prompt">, #tile.parameter<buffer, "limits">,
        #tile.parameter<buffer, "sees">, #tile.parameter<buffer, "score">, #tile.parameter<buffer, "position">,
        #tile.parameter<buffer, "worth_high">, #tile.parameter<buffer, "worth_low">, #tile.parameter<buffer, "done">,
        #tile.parameter<buffer, "down_from">, #tile.parameter<buffer, "down_to">, #tile.parameter<buffer, "move_from">,
        #tile.parameter<buffer, "move_to">, #tile.parameter<dim, "table.dim0">, #tile.parameter<dim, "table.dim1">,
        #tile.parameter<dim, "score.dim1">, #tile.parameter<dim, "worth_high.dim1">, #tile.parameter<dim, "worth_low.dim1">]} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %none = arith.constant -1 : i32
  %false = arith.constant false
  %true = arith.constant true
  %warps = arith.constant 8 : i32
  %first = arith.constant 0 : i64
  %lane = tile.lane_id : i32
  %block = tile.block_id : i32
  %warp = tile.warp_id : i32
  %blocks = tile.block_count : i32
  %before = arith.muli %block, %warps : i32
  %begin = arith.addi %before, %warp : i32
  %step = arith.muli %blocks, %warps : i32
  scf.for %list = %begin to %lists step %step : i32 {
    %number = arith.extsi %list : i32 to i64
    // Without pages for this step nothing is changed.
    %ready = tile.read %done[%first] : <i32> -> i32
    %is_ready = arith.cmpi ne, %ready, %zero : i32
    %all_high = tile.read written %high[%number] : <i32> -> i32
    %count_high = arith.select %is_ready, %all_high, %zero : i32
    %all_low = tile.read written %low[%number] : <i32> -> i32
    %count_low = arith.select %is_ready, %all_low, %zero : i32
    %length = tile.read %seen[%number] : <i32> -> i32
    %of_prompt = tile.read %prompt[%number] : <i32> -> i32
    // A list that streams has a window of its own, and keeps its first tokens.
    %two = arith.constant 2 : i64
    %next = arith.constant 1 : i64
    %pair = arith.muli %number, %two : i64
    %pair_end = arith.addi %pair, %next : i64
    %sink = tile.read %sees[%pair] : <i32> -> i32
    %recent = tile.read %sees[%pair_end] : <i32> -> i32
    %streams = arith.cmpi ne, %recent, %zero : i32
    %stay = func.call @window() : () -> i32
    %window = arith.addi %stay, %one : i32
    %kept = arith.select %streams, %recent, %window : i32
    %candidate = arith.subi %length, %kept : i32

    %page_high = func.call @left() : () -> i32
    %page_low = func.call @right() : () -> i32
    %least:4 = func.call @find(%table, %score, %position, %worth_high, %list, %columns, %places, %room_high, %count_high, %page_high,
        %false, %length, %of_prompt, %candidate, %lane)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i1, i32, i32, i32, i32) -> (f32, i32, f32, i32)
    %lowest:4 = func.call @find(%table, %score, %position, %worth_low, %list, %columns, %places, %room_low, %count_low, %page_low,
        %true, %length, %of_prompt, %candidate, %lane)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i1, i32, i32, i32, i32) -> (f32, i32, f32, i32)
    tile.sync warp // scores are written, and counts read, by all lanes

    %limit_high = tile.read %limits[%pair] : <f32> -> f32
    %limit_low = tile.read %limits[%pair_end] : <f32> -> f32
    %leaves = arith.cmpi sge, %least#3, %zero : i32
    %is_least = arith.cmpi sge, %least#1, %zero : i32
    %is_lowest = arith.cmpi sge, %lowest#1, %zero : i32
    %decided:5 = func.call @decide(%least#2, %leaves, %least#0, %is_least, %lowest#0, %is_lowest, %count_high, %count_low, %length,
        %limit_high, %limit_low) : (f32, i1, f32, i1, f32, i1, i32, i32, i32, f32, f32) -> (i1, i1, i1, i1, i1)
    // At most one token leaves the left end, the first that is decided on.
    %leaving_low = arith.andi %decided#0, %leaves : i1
    %leaving_goes = arith.andi %decided#1, %leaves : i1
    %least_low = arith.andi %decided#2, %is_least : i1
    %least_goes = arith.andi %decided#3, %is_least : i1
    %lowest_goes = arith.andi %decided#4, %is_lowest : i1
    %gone_least = arith.select %least_goes, %least#1, %none : i32
    %gone_of_least = arith.select %least_low, %none, %gone_least : i32
    %gone_of_both = arith.select %leaving_goes, %least#3, %gone_of_least : i32
    %gone = arith.select %leaving_low, %none, %gone_of_both : i32
    %down_least = arith.select %least_low, %least#1, %none : i32
    %down_of_both = arith.select %leaving_goes, %none, %down_least : i32
    %down = arith.select %leaving_low, %least#3, %down_of_both : i32
    %is_down = arith.cmpi sge, %down, %zero : i32
    %drops = arith.andi %lowest_goes, %is_down : i1
    %dropped = arith.select %drops, %lowest#1, %none : i32

    %behind_sink = arith.cmpi sle, %sink, %candidate : i32
    %unseen = arith.andi %leaves, %behind_sink : i1
    %unseen_place = arith.select %unseen, %least#3, %none : i32
    %demoted = arith.select %streams, %none, %down : i32
    %removed = arith.select %streams, %unseen_place, %gone : i32
    %replaced = arith.select %streams, %none, %dropped : i32

    %writes = arith.cmpi eq, %lane, %zero : i32
    scf.if %writes {
      tile.write %none to %down_from[%number] : i32 -> <i32>
      tile.write %none to %down_to[%number] : i32 -> <i32>
      tile.write %none to %move_from[%number] : i32 -> <i32>
      tile.write %none to %move_to[%number] : i32 -> <i32>
      %is_demoted = arith.cmpi sge, %demoted, %zero : i32
      scf.if %is_demoted {
        %is_replaced = arith.cmpi sge, %replaced, %zero : i32
        %to = arith.select %is_replaced, %replaced, %count_low : i32
        %from_slot = func.call @slot(%table, %list, %columns, %demoted, %page_high, %false)
            : (!ints, i32, i32, i32, i32, i1) -> i32
        %to_slot = func.call @slot(%table, %list, %columns, %to, %page_low, %true) : (!ints, i32, i32, i32, i32, i1) -> i32
        tile.write %from_slot to %down_from[%number] : i32 -> <i32>
        tile.write %to_slot to %down_to[%number] : i32 -> <i32>
        %source = func.call @entry(%table, %list, %columns, %places, %demoted, %page_high, %false)
            : (!ints, i32, i32, i32, i32, i32, i1) -> i64
        %target = func.call @entry(%table, %list, %columns, %places, %to, %page_low, %true)
            : (!ints, i32, i32, i32, i32, i32, i1) -> i64
        func.call @copy(%score, %position, %source, %target) : (!floats, !ints, i64, i64) -> ()
        %more = arith.addi %count_low, %one : i32
        %new_low = arith.select %is_replaced, %count_low, %more : i32
        tile.write %new_low to %low[%number] : i32 -> <i32>
      }
      // The last token at the left takes the slot of the token that left it.
      %hole = arith.maxsi %demoted, %removed : i32
      %last = arith.subi %count_high, %one : i32
      %is_hole = arith.cmpi sge, %hole, %zero : i32
      scf.if %is_hole {
        tile.write %last to %high[%number] : i32 -> <i32>
        %is_inside = arith.cmpi slt, %hole, %last : i32
        scf.if %is_inside {
          %from_slot = func.call @slot(%table, %list, %columns, %last, %page_high, %false)
              : (!ints, i32, i32, i32, i32, i1) -> i32
          %to_slot = func.call @slot(%table, %list, %columns, %hole, %page_high, %false)
              : (!ints, i32, i32, i32, i32, i1) -> i32
          tile.write %from_slot to %move_from[%number] : i32 -> <i32>
          tile.write %to_slot to %move_to[%number] : i32 -> <i32>
          %source = func.call @entry(%table, %list, %columns, %places, %last, %page_high, %false)
              : (!ints, i32, i32, i32, i32, i32, i1) -> i64
          %target = func.call @entry(%table, %list, %columns, %places, %hole, %page_high, %false)
              : (!ints, i32, i32, i32, i32, i32, i1) -> i64
          func.call @copy(%score, %position, %source, %target) : (!floats, !ints, i64, i64) -> ()
        }
      }
    }
  }
  return
}

// Searches one end. Returns rank and index of the least-ranked token older than the window (the earlier of equals),
// then of the token that leaves the window; an index is -1 if there is none. Each lane loads four tokens before it
// writes the first score.
func.func private @find(
    %table: !ints, %score: !floats, %position: !ints, %worth: !floats, %list: i32, %columns: i32, %places: i32, %room: i32,
    %count: i32, %page: i32, %right: i1, %length: i32, %prompt: i32, %candidate: i32, %lane: i32) -> (f32, i32, f32, i32) {
  %zero = arith.constant 0 : i32
  %none = arith.constant -1 : i32
  %most = arith.constant 0x7F800000 : f32
  %last = arith.constant 2147483647 : i32
  %step = arith.constant 128 : i32
  %c32 = arith.constant 32 : i32
  %c64 = arith.constant 64 : i32
  %c96 = arith.constant 96 : i32
  %found:5 = scf.for %begin = %zero to %count step %step
      iter_args(%r = %most, %p = %last, %t = %none, %lr = %most, %lt = %none) -> (f32, i32, i32, f32, i32) : i32 {
    %t0 = arith.addi %begin, %lane : i32
    %t1 = arith.addi %t0, %c32 : i32
    %t2 = arith.addi %t0, %c64 : i32
    %t3 = arith.addi %t0, %c96 : i32
    %a:5 = func.call @load(%table, %score, %position, %worth, %list, %columns, %places, %room, %count, %t0, %page, %right)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i32, i1) -> (i1, i64, f32, i32, f32)
    %b:5 = func.call @load(%table, %score, %position, %worth, %list, %columns, %places, %room, %count, %t1, %page, %right)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i32, i1) -> (i1, i64, f32, i32, f32)
    %c:5 = func.call @load(%table, %score, %position, %worth, %list, %columns, %places, %room, %count, %t2, %page, %right)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i32, i1) -> (i1, i64, f32, i32, f32)
    %d:5 = func.call @load(%table, %score, %position, %worth, %list, %columns, %places, %room, %count, %t3, %page, %right)
        : (!ints, !floats, !ints, !floats, i32, i32, i32, i32, i32, i32, i32, i1) -> (i1, i64, f32, i32, f32)
    %m0:5 = func.call @compare(%a#0, %a#1, %a#2, %a#3, %a#4, %t0, %score, %length, %prompt, %candidate, %r, %p, %t, %lr, %lt)
        : (i1, i64, f32, i32, f32, i32, !floats, i32, i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
    %m1:5 = func.call @compare(%b#0, %b#1, %b#2, %b#3, %b#4, %t1, %score, %length, %prompt, %candidate, %m0#0, %m0#1, %m0#2, %m0#3, %m0#4)
        : (i1, i64, f32, i32, f32, i32, !floats, i32, i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
    %m2:5 = func.call @compare(%c#0, %c#1, %c#2, %c#3, %c#4, %t2, %score, %length, %prompt, %candidate, %m1#0, %m1#1, %m1#2, %m1#3, %m1#4)
        : (i1, i64, f32, i32, f32, i32, !floats, i32, i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
    %m3:5 = func.call @compare(%d#0, %d#1, %d#2, %d#3, %d#4, %t3, %score, %length, %prompt, %candidate, %m2#0, %m2#1, %m2#2, %m2#3, %m2#4)
        : (i1, i64, f32, i32, f32, i32, !floats, i32, i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
    scf.yield %m3#0, %m3#1, %m3#2, %m3#3, %m3#4 : f32, i32, i32, f32, i32
  }
  %c16 = arith.constant 16 : i32
  %c8 = arith.constant 8 : i32
  %c4 = arith.constant 4 : i32
  %c2 = arith.constant 2 : i32
  %c1 = arith.constant 1 : i32
  %x0:5 = func.call @exchange(%lane, %c16, %found#0, %found#1, %found#2, %found#3, %found#4)
      : (i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
  %x1:5 = func.call @exchange(%lane, %c8, %x0#0, %x0#1, %x0#2, %x0#3, %x0#4)
      : (i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
  %x2:5 = func.call @exchange(%lane, %c4, %x1#0, %x1#1, %x1#2, %x1#3, %x1#4)
      : (i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
  %x3:5 = func.call @exchange(%lane, %c2, %x2#0, %x2#1, %x2#2, %x2#3, %x2#4)
      : (i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
  %x4:5 = func.call @exchange(%lane, %c1, %x3#0, %x3#1, %x3#2, %x3#3, %x3#4)
      : (i32, i32, f32, i32, i32, f32, i32) -> (f32, i32, i32, f32, i32)
  return %x4#0, %x4#2, %x4#3, %x4#4 : f32, i32, f32, i32
}

// Loads one token: whether the index holds one, the index of its score and position, the new row's significance, its
// position and its score. An out-of-range index loads the last token.
func.func private @load(
    %table: !ints, %score: !floats, %position: !ints, %worth: !floats, %list: i32, %columns: i32, %places: i32, %room: i32,
    %count: i32, %place: i32, %page: i32, %right: i1) -> (i1, i64, f32, i32, f32) {
  %one = arith.constant 1 : i32
  %last = arith.subi %count, %one : i32
  %inside = arith.minsi %place, %last : i32
  %exists = arith.cmpi slt, %place, %count : i32
  %entry = func.call @entry(%table, %list, %columns, %places, %inside, %page, %right)
      : (!ints, i32, i32, i32, i32, i32, i1) -> i64
  %at = func.call @element(%list, %room, %inside) : (i32, i32, i32) -> i64
  %new = tile.read %worth[%at] : <f32> -> f32
  %position_of = tile.read written %position[%entry] : <i32> -> i32
  %old = tile.read written %score[%entry] : <f32> -> f32
  return %exists, %entry, %new, %position_of, %old : i1, i64, f32, i32, f32
}

// Adds to a token's score, and compares its rank with the least so far.
func.func private @compare(
    %exists: i1, %entry: i64, %new: f32, %position: i32, %old: f32, %place: i32, %score: !floats, %length: i32, %prompt: i32,
    %candidate: i32, %rank: f32, %at: i32, %in: i32, %leaving_rank: f32, %leaving_in: i32) -> (f32, i32, i32, f32, i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %sum = arith.addf %old, %new : f32
  scf.if %exists {
    tile.write %sum to %score[%entry] : f32 -> <f32>
  }
  // Rows counted for the token: those since its position, less the prompt's rows before the last `counted`.
  %since = arith.subi %length, %position : i32
  %counted = func.call @counted() : () -> i32
  %to_end = arith.subi %prompt, %position : i32
  %before = arith.subi %to_end, %counted : i32
  %uncounted = arith.maxsi %before, %zero : i32
  %fewer = arith.subi %since, %uncounted : i32
  %counts_all = arith.cmpi eq, %counted, %zero : i32
  %rows_of = arith.select %counts_all, %since, %fewer : i32
  %rows = arith.maxsi %rows_of, %one : i32
  // A rank that is NaN counts as infinite: such tokens go last, and the budget holds.
  %said = func.call @rank(%sum, %rows, %position, %length) : (f32, i32, i32, i32) -> f32
  %most = arith.constant 0x7F800000 : f32
  %is_nan = arith.cmpf uno, %said, %said : f32
  %mine = arith.select %is_nan, %most, %said : f32
  %is_before = func.call @before(%mine, %position, %rank, %at) : (f32, i32, f32, i32) -> i1
  %is_behind = arith.cmpi sle, %position, %candidate : i32
  %may = arith.andi %exists, %is_behind : i1
  %is_best = arith.andi %may, %is_before : i1
  %best = arith.select %is_best, %mine, %rank : f32
  %best_at = arith.select %is_best, %position, %at : i32
  %best_in = arith.select %is_best, %place, %in : i32
  %is_candidate = arith.cmpi eq, %position, %candidate : i32
  %leaves = arith.andi %exists, %is_candidate : i1
  %left = arith.select %leaves, %mine, %leaving_rank : f32
  %left_in = arith.select %leaves, %place, %leaving_in : i32
  return %best, %best_at, %best_in, %left, %left_in : f32, i32, i32, f32, i32
}

// Merges this lane's result with that of the lane at an XOR distance (butterfly reduction).
func.func private @exchange(%lane: i32, %distance: i32, %rank: f32, %at: i32, %in: i32, %leaving_rank: f32, %leaving_in: i32)
    -> (f32, i32, i32, f32, i32) {
  %zero = arith.constant 0 : i32
  %from = arith.xori %lane, %distance : i32
  %rank_there = tile.from_lane %rank[%from] : f32
  %at_there = tile.from_lane %at[%from] : i32
  %in_there = tile.from_lane %in[%from] : i32
  %theirs = func.call @before(%rank_there, %at_there, %rank, %at) : (f32, i32, f32, i32) -> i1
  %best = arith.select %theirs, %rank_there, %rank : f32
  %best_at = arith.select %theirs, %at_there, %at : i32
  %best_in = arith.select %theirs, %in_there, %in : i32
  %leaving_rank_there = tile.from_lane %leaving_rank[%from] : f32
  %leaving_in_there = tile.from_lane %leaving_in[%from] : i32
  %leaves_there = arith.cmpi sge, %leaving_in_there, %zero : i32
  %left = arith.select %leaves_there, %leaving_rank_there, %leaving_rank : f32
  %left_in = arith.select %leaves_there, %leaving_in_there, %leaving_in : i32
  return %best, %best_at, %best_in, %left, %left_in : f32, i32, i32, f32, i32
}

// Whether a token has a lower rank than another, or the same rank and an earlier position.
func.func private @before(%rank: f32, %at: i32, %other: f32, %other_at: i32) -> i1 {
  %less = arith.cmpf olt, %rank, %other : f32
  %equal = arith.cmpf oeq, %rank, %other : f32
  %earlier = arith.cmpi slt, %at, %other_at : i32
  %of_equals = arith.andi %equal, %earlier : i1
  %is = arith.ori %less, %of_equals : i1
  return %is : i1
}

// Copies the score and position of one entry to another.
func.func private @copy(%score: !floats, %position: !ints, %source: i64, %target: i64) {
  %worth = tile.read written %score[%source] : <f32> -> f32
  tile.write %worth to %score[%target] : f32 -> <f32>
  %at = tile.read written %position[%source] : <i32> -> i32
  tile.write %at to %position[%target] : i32 -> <i32>
  return
}

// The index of the score and the position of the token at index `place`.
func.func private @entry(%table: !ints, %list: i32, %columns: i32, %places: i32, %place: i32, %tokens: i32, %right: i1) -> i64 {
  %page = func.call @page(%table, %list, %columns, %place, %tokens, %right) : (!ints, i32, i32, i32, i32, i1) -> i32
  %in = arith.remui %place, %tokens : i32
  %at = func.call @element(%page, %places, %in) : (i32, i32, i32) -> i64
  return %at : i64
}

// attn.merge_states and attn.exchange_states: states of ranks. A warp handles one item at a time, a row's head: lane l
// has words 2 l and 2 l + 1, then 64 words further. (The functions of 16-bit pairs are appended to this text.)
//
// To exchange, a warp writes its items' states into its rank's slot in every region, its own rank's too. Lane r then signals to
// rank r, and waits for the signal of the same warp of rank r. So no warp waits for another of its launch, but every
// warp waits for a warp of each rank: all blocks must be resident. There are as many as the device holds, and fewer than 2048
// warps.

!ints = !tile.buffer<i32>
!floats = !tile.buffer<f32>

// Defined by KernelText from the operation.
func.func private @ranks() -> i32

func.func @merge_states(
    %result: !ints, %total: !floats, %memory: !ints, %items: i32, %words: i32, %room: i32)
    attributes {
      tile.blocks_per_sm = 12 : i32, tile.threads = 128 : i32,
      tile.launch = {grid = "rows", pieces = 1 : i32, role = "merge_states", rows_per_warp = 1 : i32},
      tile.parameters = [
        #tile.parameter<buffer, "result">, #tile.parameter<buffer, "total">, #tile.parameter<buffer, "memory">,
        #tile.parameter<dim, "result.dim0">, #tile.parameter<dim, "result.dim1">, #tile.parameter<dim, "memory.dim1">]} {
  %true = arith.constant true
  %start = arith.constant 0 : i64
  %slot = arith.extsi %room : i32 to i64
  %warp:2 = func.call @warp() : () -> (i32, i32)
  scf.for %item = %warp#0 to %items step %warp#1 : i32 {
    func.call @merge(%result, %total, %memory, %start, %slot, %items, %words, %item, %true)
        : (!ints, !floats, !ints, i64, i64, i32, i32, i32, i1) -> ()
  }
  return
}

func.func @exchange_states(
    %result: !ints, %total: !floats, %out: !ints, %lse: !floats, %memory: !ints, %places: !ints, %state: !ints,
    %status: !ints, %items: i32, %words: i32)
    attributes {
      tile.blocks_per_sm = 1 : i32, tile.threads = 128 : i32,
      tile.launch = {grid = "rows", overlaps, pieces = 1 : i32, role = "exchange_states", rows_per_warp = 1 : i32},
      tile.parameters = [
        #tile.parameter<buffer, "result">, #tile.parameter<buffer, "total">, #tile.parameter<buffer, "out">,
        #tile.parameter<buffer, "lse">, #tile.parameter<buffer, "memory">, #tile.parameter<buffer, "places">,
        #tile.parameter<buffer, "state">, #tile.parameter<buffer, "status">, #tile.parameter<dim, "result.dim0">,
        #tile.parameter<dim, "result.dim1">]} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %three = arith.constant 3 : i32
  %heading = arith.constant 4 : i32
  %step = arith.constant 64 : i32
  %signals = arith.constant 2048 : i64
  %start = arith.constant 0 : i64
  %millisecond = arith.constant 1000000 : i64
  %fine = arith.constant 0.0 : f32
  %missed = arith.constant 1.0 : f32
  %ranks = func.call @ranks() : () -> i32
  %lane = tile.lane_id : i32
  %warp:2 = func.call @warp() : () -> (i32, i32)
  %number = arith.extsi %warp#0 : i32 to i64
  %is_first = arith.cmpi eq, %lane, %zero : i32
  %is_peer = arith.cmpi slt, %lane, %ranks : i32

  // The kernel that wrote the states may still run.
  tile.wait_previous
  %setup:4 = tile.read_adjacent %state[%start] : <i32> -> i32, i32, i32, i32
  %counter = arith.addi %warp#0, %heading : i32
  %count_at = arith.extsi %counter : i32 to i64
  %before = tile.read written %state[%count_at] : <i32> -> i32
  %launch = arith.addi %before, %one : i32
  %rank = arith.extsi %setup#1 : i32 to i64
  %ranks_wide = arith.extsi %ranks : i32 to i64

  // Lane r knows where the region of rank r begins.
  %last = arith.subi %ranks, %one : i32
  %peer = arith.minsi %lane, %last : i32
  %peer_wide = arith.extsi %peer : i32 to i64
  %two_wide = arith.extsi %two : i32 to i64
  %place_at = arith.muli %peer_wide, %two_wide : i64
  %place:2 = tile.read_adjacent %places[%place_at] : <i32> -> i32, i32
  %own:2 = func.call @place_of(%place#0, %place#1, %setup#1) : (i32, i32, i32) -> (i64, i64)

  // From the begin of a region on: signals, then the slots of even launches and those of odd ones.
  %set = arith.andi %launch, %one : i32
  %set_wide = arith.extsi %set : i32 to i64
  %item_words = arith.muli %items, %words : i32
  %all_words = arith.addi %item_words, %items : i32
  %up = arith.addi %all_words, %three : i32
  %less = arith.andi %up, %three : i32
  %slot_words = arith.subi %up, %less : i32
  %slot = arith.extsi %slot_words : i32 to i64
  %slots = arith.muli %ranks_wide, %slot : i64
  %all_signals = arith.muli %ranks_wide, %signals : i64
  %set_begin = arith.muli %set_wide, %slots : i64
  %set_at = arith.addi %all_signals, %set_begin : i64
  %of_rank = arith.muli %rank, %slot : i64
  %slot_at = arith.addi %set_at, %of_rank : i64
  %lses = arith.extsi %item_words : i32 to i64
  %first_word = arith.muli %lane, %two : i32

  scf.for %item = %warp#0 to %items step %warp#1 : i32 {
    %item_wide = arith.extsi %item : i32 to i64
    %own_lse = tile.read written %lse[%item_wide] : <f32> -> f32
    %lse_bits = arith.bitcast %own_lse : f32 to i32
    %line = arith.muli %item, %words : i32
    scf.for %column = %zero to %words step %step : i32 {
      %word = arith.addi %column, %first_word : i32
      %is_inside = arith.cmpi slt, %word, %words : i32
      %read = arith.select %is_inside, %word, %zero : i32
      %index = arith.addi %line, %read : i32
      %at = arith.extsi %index : i32 to i64
      %pair:2 = tile.read_adjacent %out[%at] : <i32> -> i32, i32
      scf.for %to = %zero to %ranks step %one : i32 {
        %region:2 = func.call @place_of(%place#0, %place#1, %to) : (i32, i32, i32) -> (i64, i64)
        %behind = arith.addi %slot_at, %at : i64
        %there = arith.addi %region#0, %behind : i64
        scf.if %is_inside {
          tile.write_adjacent %pair#0, %pair#1 to %memory[%there] : i32, i32 -> <i32>
        }
      }
    }
    scf.if %is_peer {
      %of_item = arith.addi %lses, %item_wide : i64
      %behind = arith.addi %slot_at, %of_item : i64
      %there = arith.addi %own#1, %behind : i64
      tile.write %lse_bits to %memory[%there] : i32 -> <i32>
    }
  }
  tile.sync warp

  %patience = arith.cmpi eq, %setup#0, %zero : i32
  %wait = arith.select %patience, %setup#2, %one : i32
  %wait_wide = arith.extsi %wait : i32 to i64
  %limit = arith.muli %wait_wide, %millisecond : i64
  scf.if %is_peer {
    %of_warp = arith.muli %rank, %signals : i64
    %sent = arith.addi %of_warp, %number : i64
    %sent_at = arith.addi %own#1, %sent : i64
    tile.signal %launch to %memory[%sent_at] : <i32>
  }
  tile.sync warp // all lanes have signalled before one waits
  %is_missed = scf.if %is_peer -> (f32) {
    %of_peer = arith.muli %peer_wide, %signals : i64
    %awaited = arith.addi %of_peer, %number : i64
    %awaited_at = arith.addi %own#0, %awaited : i64
    %reached = tile.wait_signal %memory[%awaited_at] reaches %launch within %limit : <i32>
    %true = arith.constant true
    %is_late = arith.xori %reached, %true : i1
    scf.if %is_late {
      tile.write %one to %status[%peer_wide] : i32 -> <i32>
      tile.add_to %one to %state[%start] : <i32>
    }
    %found = arith.select %reached, %fine, %missed : f32
    scf.yield %found : f32
  } else {
    scf.yield %fine : f32
  }
  %all_missed = tile.reduce_lanes add %is_missed
  %complete = arith.cmpf oeq, %all_missed, %fine : f32
  tile.sync warp

  %own_set = arith.addi %own#0, %set_at : i64
  scf.for %item = %warp#0 to %items step %warp#1 : i32 {
    func.call @merge(%result, %total, %memory, %own_set, %slot, %items, %words, %item, %complete)
        : (!ints, !floats, !ints, i64, i64, i32, i32, i32, i1) -> ()
  }
  scf.if %is_first {
    tile.write %launch to %state[%count_at] : i32 -> <i32>
  }
  return
}

// Returns where the region of rank `rank` begins, and the region of the lane's rank: a place that `low` and `high` hold.
func.func private @place_of(%low: i32, %high: i32, %rank: i32) -> (i64, i64) {
  %of_rank_low = tile.from_lane %low[%rank] : i32
  %of_rank_high = tile.from_lane %high[%rank] : i32
  %of_rank = func.call @wide(%of_rank_low, %of_rank_high) : (i32, i32) -> i64
  %of_lane = func.call @wide(%low, %high) : (i32, i32) -> i64
  return %of_rank, %of_lane : i64, i64
}

func.func private @wide(%low: i32, %high: i32) -> i64 {
  %bits = arith.constant 32 : i64
  %low_wide = arith.extui %low : i32 to i64
  %high_wide = arith.extui %high : i32 to i64
  %shifted = arith.shli %high_wide, %bits : i64
  %both = arith.ori %shifted, %low_wide : i64
  return %both : i64
}

// The number of this warp in the launch, and the number of warps.
func.func private @warp() -> (i32, i32) {
  %warps = arith.constant 4 : i32
  %block = tile.block_id : i32
  %blocks = tile.block_count : i32
  %of_block = tile.warp_id : i32
  %in_front = arith.muli %block, %warps : i32
  %warp = arith.addi %in_front, %of_block : i32
  %all = arith.muli %blocks, %warps : i32
  return %warp, %all : i32, i32
}

// Merges an item of slots that begin `slot` words apart, from `start` on. Results are NaN if not `complete`.
func.func private @merge(
    %result: !ints, %total: !floats, %memory: !ints, %start: i64, %slot: i64, %items: i32, %words: i32, %item: i32,
    %complete: i1) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %step = arith.constant 64 : i32
  %nothing = arith.constant 0.0 : f32
  %least = arith.constant -1.0e30 : f32
  %infinite = arith.constant 0xFF800000 : f32
  %nan = arith.constant 0x7FC00000 : f32
  %ranks = func.call @ranks() : () -> i32
  %lane = tile.lane_id : i32
  %is_first = arith.cmpi eq, %lane, %zero : i32
  %item_words = arith.muli %items, %words : i32
  %of_item = arith.addi %item_words, %item : i32
  %of_item_wide = arith.extsi %of_item : i32 to i64
  %lse_at = arith.addi %start, %of_item_wide : i64
  %most = scf.for %rank = %zero to %ranks step %one iter_args(%m = %least) -> (f32) : i32 {
    %lse = func.call @lse_of(%memory, %lse_at, %slot, %rank) : (!ints, i64, i64, i32) -> f32
    %more = arith.maxnumf %m, %lse : f32
    scf.yield %more : f32
  } {tile.unroll = 4 : i32}
  %sum = scf.for %rank = %zero to %ranks step %one iter_args(%s = %nothing) -> (f32) : i32 {
    %lse = func.call @lse_of(%memory, %lse_at, %slot, %rank) : (!ints, i64, i64, i32) -> f32
    %weight = func.call @weight_of(%lse, %most) : (f32, f32) -> f32
    %more = arith.addf %s, %weight : f32
    scf.yield %more : f32
  } {tile.unroll = 4 : i32}
  %inverse = tile.reciprocal %sum
  %line = arith.muli %item, %words : i32
  %first_word = arith.muli %lane, %two : i32
  scf.for %word = %first_word to %words step %step : i32 {
    %index = arith.addi %line, %word : i32
    %index_wide = arith.extsi %index : i32 to i64
    %from = arith.addi %start, %index_wide : i64
    %sums:4 = scf.for %rank = %zero to %ranks step %one
        iter_args(%a = %nothing, %b = %nothing, %c = %nothing, %d = %nothing) -> (f32, f32, f32, f32) : i32 {
      %lse = func.call @lse_of(%memory, %lse_at, %slot, %rank) : (!ints, i64, i64, i32) -> f32
      %rank_wide = arith.extsi %rank : i32 to i64
      %of_rank = arith.muli %rank_wide, %slot : i64
      %at = arith.addi %from, %of_rank : i64
      %pair:2 = tile.read_adjacent %memory[%at] : <i32> -> i32, i32
      %weight = func.call @weight_of(%lse, %most) : (f32, f32) -> f32
      %a_here = func.call @low(%pair#0) : (i32) -> f32
      %b_here = func.call @high(%pair#0) : (i32) -> f32
      %c_here = func.call @low(%pair#1) : (i32) -> f32
      %d_here = func.call @high(%pair#1) : (i32) -> f32
      %a_more = math.fma %a_here, %weight, %a : f32
      %b_more = math.fma %b_here, %weight, %b : f32
      %c_more = math.fma %c_here, %weight, %c : f32
      %d_more = math.fma %d_here, %weight, %d : f32
      scf.yield %a_more, %b_more, %c_more, %d_more : f32, f32, f32, f32
    } {tile.unroll = 4 : i32}
    %a_all = arith.mulf %sums#0, %inverse : f32
    %b_all = arith.mulf %sums#1, %inverse : f32
    %c_all = arith.mulf %sums#2, %inverse : f32
    %d_all = arith.mulf %sums#3, %inverse : f32
    %a_found = arith.select %complete, %a_all, %nan : f32
    %b_found = arith.select %complete, %b_all, %nan : f32
    %c_found = arith.select %complete, %c_all, %nan : f32
    %d_found = arith.select %complete, %d_all, %nan : f32
    %left = func.call @pair(%a_found, %b_found) : (f32, f32) -> i32
    %right = func.call @pair(%c_found, %d_found) : (f32, f32) -> i32
    tile.write_adjacent %left, %right to %result[%index_wide] : i32, i32 -> <i32>
  }
  scf.if %is_first {
    %item_wide = arith.extsi %item : i32 to i64
    %log = math.log %sum : f32
    %all = arith.addf %most, %log : f32
    %some = arith.cmpf ugt, %all, %least : f32
    %found = arith.select %some, %all, %infinite : f32
    %written = arith.select %complete, %found, %nan : f32
    tile.write %written to %total[%item_wide] : f32 -> <f32>
  }
  return
}

func.func private @lse_of(%memory: !ints, %lse_at: i64, %slot: i64, %rank: i32) -> f32 {
  %rank_wide = arith.extsi %rank : i32 to i64
  %of_rank = arith.muli %rank_wide, %slot : i64
  %at = arith.addi %lse_at, %of_rank : i64
  %bits = tile.read written %memory[%at] : <i32> -> i32
  %lse = arith.bitcast %bits : i32 to f32
  return %lse : f32
}

// The weight of a state. Without tokens on any rank all weights are 1; a NaN stays one.
func.func private @weight_of(%lse: f32, %most: f32) -> f32 {
  %least = arith.constant -1.0e30 : f32
  %log2e = arith.constant 1.44269504 : f32
  %is_less = arith.cmpf olt, %lse, %least : f32
  %clamped = arith.select %is_less, %least, %lse : f32
  %less = arith.subf %clamped, %most : f32
  %scaled = arith.mulf %less, %log2e : f32
  %weight = math.exp2 %scaled : f32
  return %weight : f32
}

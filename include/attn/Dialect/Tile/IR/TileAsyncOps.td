//===- TileAsyncOps.td - Warp roles and asynchronous tensor cores ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What Hopper's schedule needs beyond copies and mmas: warps that only copy and
// warps that only compute, barriers in shared memory between them, and mmas
// that run while the warp does something else.
//
// Ordering rules, from the PTX ISA ("Asynchronous operations", "Async proxy"):
//  * a started mma reads shared memory through the async proxy: lines that
//    copies or stores wrote need `tile.fence_async` in a thread that has
//    observed them, before the mma is started;
//  * its operands and accumulator belong to the tensor cores until
//    `tile.wait_mmas` returns them: the verifier lets a started result flow
//    into another start of the same shape or into a finish, out of the branch of
//    an `scf.if` too, and nowhere else; a loop cannot carry it (ptxas would run
//    one wgmma after the other, C7515);
//  * a tile may be overwritten only after the mmas that read it have finished;
//  * a send reads shared memory through the async proxy, too, and until its own
//    lane has waited for it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_TILEASYNCOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEASYNCOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_InitBarriersOp : Tile_Op<"init_barriers"> {
  let summary = "one thread sets up barriers that complete a phase after so many arrivals";
  let description = [{ A `tile.sync block` must follow before anybody arrives or waits. }];
  let arguments = (ins Arg<Variadic<Tile_BarriersType>, "the barriers">:$barriers,
                       Arg<DenseI64ArrayAttr, "arrivals that complete a phase, of each">:$counts);
  let assemblyFormat = "$barriers `counts` $counts attr-dict `:` type($barriers)";
  let hasVerifier = 1;
}

def Tile_PublishBarriersOp : Tile_Op<"publish_barriers"> {
  let summary = "the barriers that were set up so far may be signalled by bulk copies";
  let description = [{
    Bulk copies signal from the async proxy, which must be told of what the thread that set them up has written through
    the generic one. Stands in front of the `tile.sync block`.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_ArriveOp : Tile_Op<"arrive"> {
  let summary = "one lane of the warp arrives";
  let description = [{
    It speaks for all lanes where an mma was finished since they waited, because a warpgroup starts and finishes mmas as
    one. What lanes have read, written or waited for themselves needs a `tile.sync warp` in front.
  }];
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "which of them">:$index,
                       Arg<Optional<I1>, "whether it does; uniform over the warp">:$condition);
  let assemblyFormat = "$barriers `[` $index `]` (`if` $condition^)? attr-dict `:` type($barriers)";
}

def Tile_ArriveOnCopiesOp : Tile_Op<"arrive_on_copies"> {
  let summary = "every lane arrives when the copies it has started so far have landed";
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "which of them">:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Tile_ProduceOp : Tile_Op<"produce", [SingleBlock, NoTerminator]> {
  let summary = "a tile of a ring, with what its region copies into it";
  let description = [{
    The region's argument is the tile. Copies of it stand in the region, gathers or one fetch without a barrier, and
    behind a fetch perhaps a `tile.clear` of lines that are not the store's. The result is the tile when all that has
    landed, until the last use of it in the block around. How often a ring can be filled before a tile of it is given
    back is up to its stages: `--tile-specialize-warps` lets other warps than those that use a tile fill it, and
    `--tile-insert-barriers` lets them wait for each other.

    Where the producer's warps share the work, `warp` says which of them copies; else all do.

    ```mlir
    %k = tile.produce %ring warp 0 (%tile: !keys) {
      tile.tma_load %map from %slot head %head lines 64 into %tile : !tile.tensor_map<4> -> !keys
    } : !ring -> !keys
    ```
  }];
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring,
                       Arg<OptionalAttr<I64Attr>, "number of the producer warp that copies">:$warp);
  let regions = (region SizedRegion<1>:$copies);
  let results = (outs Res<Tile_SharedType, "the filled tile">:$tile);
  let assemblyFormat = "$ring (`warp` $warp^)? custom<Body>($copies) attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_ConsumeOp : Tile_Op<"consume"> {
  let summary = "the next tile of a ring that other warps fill";
  let description = [{ What is left of a `tile.produce` in the warps that use the tile. }];
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring);
  let results = (outs Res<Tile_SharedType, "the filled tile">:$tile);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_AheadOp : Tile_Op<"ahead", [SingleBlock, RecursiveMemoryEffects]> {
  let summary = "a value of an iteration that a loop may compute one iteration early";
  let description = [{
    The region maps the iteration's `at` to the value; it must be able to do so for the iteration behind the last.
    `--tile-look-ahead` lets the loop around carry the value where `at` is what the loop counts.

    ```mlir
    %slot = tile.ahead %token (%t: i32) {
      %wide = arith.extsi %t : i32 to i64
      %read = tile.read %table[%wide] : !tile.buffer<i32> -> i32
      tile.yield %read : i32
    } : i32
    ```
  }];
  let arguments = (ins Arg<I32, "what differs between iterations">:$at);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Res<AnyType, "the value">:$value);
  let assemblyFormat = "$at custom<Body>($body) attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_TmaLoadOp : Tile_Op<"tma_load", [AttrSizedOperandSegments]> {
  let summary = "a warp starts bulk copies of a shared tile's lines; they complete a phase of a barrier";
  let description = [{
    The tile is cut into boxes of `lines` lines, which lie in consecutive slots of the source; lane i knows the first
    slot of box i. One lane arrives at the barrier once, with the bytes of the whole tile to expect. There is a map for each width of the target's panels, the wide ones first; its last three axes are slots,
    panels and heads. What lies outside the source arrives as zeros.

    Where the tile's lines are `padded`, longer than those of the source, the innermost axis of each map is all
    features that exist, and that of panels is 1 long: panels are copied one by one.
  }];
  let arguments = (ins
    Arg<Variadic<Tile_TensorMapType>, "one per width of panel">:$maps,
    Arg<I32, "each lane's own: first slot of its box">:$slot,
    Arg<I32, "coordinate along the axis of heads">:$head,
    Arg<Tile_SharedType, "the tile to fill">:$target,
    Arg<Optional<Tile_BarriersType>, "the barriers">:$barriers,
    Arg<Optional<I32>, "which of them">:$index,
    I64Attr:$lines,
    UnitAttr:$padded);
  let assemblyFormat = [{
    $maps `from` $slot `head` $head `lines` $lines `into` $target (`on` $barriers^ `[` $index `]`)? attr-dict
    `:` type($maps) `->` type($target) (`,` type($barriers)^)?
  }];
  let hasVerifier = 1;
}

def Tile_OverlayOp : Tile_Op<"overlay", [Pure]> {
  let summary = "the memory of a box of a shared tile, seen as another tile";
  let description = [{ Neither contents nor order come with it: whoever used the box must be done. }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "the box's first line">:$line);
  let results = (outs Res<Tile_SharedType, "starts where the box does">:$result);
  let assemblyFormat = "$tile `at` $line attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_StageOp : Tile_Op<"stage"> {
  let summary = "a warp writes a fragment into lines of a shared tile, rounding to the tile's element type";
  let description = [{ Of a tile of f32, whole panels of 32 columns, the lines get the order of sums (`tile.load_sums`). }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32, two axes">:$fragment,
    Arg<Tile_SharedType, "the tile, of f16, bf16 or f32">:$tile,
    Arg<I32, "line of the fragment's first, a multiple of 16">:$line);
  let assemblyFormat = "$fragment `into` $tile `at` $line attr-dict `:` type($fragment) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_TmaStoreOp : Tile_Op<"tma_store", [AttrSizedOperandSegments]> {
  let summary = "one lane of the warp starts bulk copies of a shared tile into a tensor";
  let description = [{
    The opposite of `tile.tma_load` with one box, and the same maps. The tile's lines go to as many slots from `slot` on;
    what would lie outside the tensor is not written. The tile has the panels of the tensor from `panel` on, as many as
    it is wide; by default from the first.

    With `adds` the tile is added to the tensor, both of f32; others may add to it at the same time, and terms have no
    order.

    Who wrote the tile fences (`tile.fence_async`), then meets the sender; nobody writes it again before the sender's
    `tile.wait_tma_stores`. The tensor's new elements are for launches behind this one.
  }];
  let arguments = (ins
    Arg<Variadic<Tile_TensorMapType>, "one per width of panel">:$maps,
    Arg<I32, "the first slot">:$slot,
    Arg<I32, "coordinate along the axis of heads">:$head,
    Arg<Tile_SharedType, "the tile, in one box">:$tile,
    Arg<Optional<I32>, "first panel of the tensor">:$panel,
    UnitAttr:$adds,
    UnitAttr:$padded);
  let assemblyFormat = [{
    $tile (`adds` $adds^)? `to` $maps `from` $slot `head` $head (`panel` $panel^)? attr-dict `:` type($tile) `->` type($maps)
  }];
  let hasVerifier = 1;
}

def Tile_WaitTmaStoresOp : Tile_Op<"wait_tma_stores"> {
  let summary = "waits until this warp's sends have read their tiles";
  let description = [{ Before a tile is written again, and before the warp ends. }];
  let assemblyFormat = "attr-dict";
}

def Tile_ClearOp : Tile_Op<"clear"> {
  let summary = "a warp writes zeros into the lines of a shared tile from `line` on";
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "first line; the tile's count: none">:$line);
  let assemblyFormat = "$tile `from` $line attr-dict `:` type($tile)";
}

def Tile_MbarrierWaitOp : Tile_Op<"mbarrier_wait"> {
  let summary = "waits until the phase of this parity has completed";
  let description = [{
    Phases count from 0; a fresh barrier is in phase 0, so waiting for parity 1 returns at once. With `before` it is the
    phase before one of that parity: producers wait for the free stage that a round before theirs has left.
  }];
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "which of them">:$index,
                       Arg<I32, "parity of the phase, 0 or 1">:$parity,
                       Arg<UnitAttr, "asks for the phase before">:$before);
  let assemblyFormat = "$barriers `[` $index `]` (`before` $before^)? `parity` $parity attr-dict `:` type($barriers)";
}

def Tile_FenceAsyncOp : Tile_Op<"fence_async"> {
  let summary = "orders shared-memory accesses observed so far before the async proxy's later ones";
  let assemblyFormat = "attr-dict";
}

def Tile_NamedBarrierSyncOp : Tile_Op<"named_barrier_sync"> {
  let summary = "waits at one of the block's sixteen named barriers until `threads` threads have come";
  let description = [{
    Counts the threads of whole warps, those of `tile.named_barrier_arrive` too. Barrier 0 is that of `tile.sync block`.
  }];
  let arguments = (ins Arg<I32, "which barrier, 1 to 15">:$barrier, Arg<I32Attr, "threads that complete it">:$threads);
  let assemblyFormat = "$barrier `threads` $threads attr-dict";
}

def Tile_NamedBarrierArriveOp : Tile_Op<"named_barrier_arrive"> {
  let summary = "counts as having come to a named barrier, without waiting";
  let arguments = (ins Arg<I32, "which barrier, 1 to 15">:$barrier, Arg<I32Attr, "threads that complete it">:$threads);
  let assemblyFormat = "$barrier `threads` $threads attr-dict";
}

def Tile_SetRegistersOp : Tile_Op<"set_registers"> {
  let summary = "the warpgroup gives up or takes registers";
  let arguments = (ins I32Attr:$count, UnitAttr:$increase);
  let assemblyFormat = "(`increase` $increase^)? $count attr-dict";
}

def Tile_StartMmaOp : Tile_Op<"start_mma", [AttrSizedOperandSegments]> {
  let summary = "starts acc + lhs * rhs on the tensor cores of a warpgroup";
  let description = [{
    As `tile.mma`, but asynchronous and of four warps at once: the fragments of warps 4g to 4g+3 are 64 consecutive
    rows. Without `acc` the sum starts at zero. `line` is the warpgroup's first line of a left operand in shared
    memory. Each start is a group of its own for `tile.wait_mmas`.

    Where the lines of a right operand are contracted, a result with fewer columns has those of the first.

    A left operand whose lines are contracted, and whose 64 columns are the rows of the result, has no line. Of a
    right operand whose lines are contracted a warpgroup may read a part of the columns, from `column` on: as many as
    the result has.
  }];
  let arguments = (ins Arg<AnyType, "fragment or shared tile">:$lhs,
                       Arg<Optional<I32>, "first line of a shared left operand">:$line,
                       Arg<Tile_SharedType, "right operand">:$rhs,
                       Arg<Optional<I32>, "first column of the right operand, a multiple of the result's">:$column,
                       Arg<Optional<Tile_FragmentType>, "what is added to">:$acc);
  let results = (outs Tile_FragmentType:$result);
  let assemblyFormat = [{
    $lhs (`at` $line^)? `,` $rhs (`from` $column^)? (`plus` $acc^)? attr-dict
    `:` type($lhs) `,` type($rhs) (`,` type($acc)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether the left operand is a shared tile whose lines are contracted.
    bool transposesLhs();
  }];
}

def Tile_WaitMmasOp : Tile_Op<"wait_mmas"> {
  let summary = "waits until at most `pending` of the newest started mmas are unfinished";
  let description = [{
    Returns its operands, which may be used as values from here on. Of an operand that only one branch has started, the
    other's value is returned as it is.
  }];
  let arguments = (ins I32Attr:$pending, Arg<Variadic<Tile_FragmentType>, "started mmas">:$started);
  let results = (outs Variadic<Tile_FragmentType>:$results);
  let assemblyFormat = "$pending $started attr-dict `:` type($started) `->` type($results)";
}

//===----------------------------------------------------------------------===//
// Machine operations that NVVM lacks
//===----------------------------------------------------------------------===//

def Tile_WgmmaOp : Tile_Op<"wgmma", [AttrSizedOperandSegments]> {
  let summary = "one wgmma.mma_async m64nNk16 with fp32 accumulators, as one lane sees it";
  let description = [{
    The left operand is four registers or a descriptor, K-major or, with `lhs_transposed`, MN-major; the right operand
    is a descriptor, K-major or, with `transposed`, MN-major. Without accumulators the product alone is computed. Accumulator registers are those
    of `tile.fragment`'s `acc` layout: row 16w + g + 8*(i/2 % 2), column 8*(i/4) + 2q + i%2.
  }];
  let arguments = (ins Arg<Variadic<F32>, "accumulators, n/2 or none">:$acc,
                       Arg<Variadic<I32>, "left operand in registers, four or none">:$lhs,
                       Arg<Optional<I64>, "descriptor of a left operand in shared memory">:$lhs_descriptor,
                       Arg<I64, "descriptor of the right operand">:$rhs_descriptor,
                       I64Attr:$n, TypeAttr:$element, UnitAttr:$transposed, UnitAttr:$lhs_transposed);
  let results = (outs Variadic<F32>:$results);
  let assemblyFormat = [{
    $n $element (`transposed` $transposed^)? (`lhs_transposed` $lhs_transposed^)? (`lhs` $lhs^)? (`lhs_descriptor` $lhs_descriptor^)?
    `rhs_descriptor` $rhs_descriptor (`acc` $acc^)? attr-dict `:` type($results)
  }];
  let hasVerifier = 1;
}

def Tile_MoveMatrixOp : Tile_Op<"move_matrix"> {
  let summary = "movmatrix: the warp transposes an 8x8 matrix of 16-bit elements, as one lane sees it";
  let description = [{
    Lane 4g + q holds columns 2q and 2q + 1 of row g, of the matrix and of the transposed one. Needs the whole warp.
  }];
  let arguments = (ins Arg<I32, "two elements of the matrix">:$source);
  let results = (outs Res<I32, "two elements of the transposed one">:$result);
  let assemblyFormat = "$source attr-dict";
}

def Tile_WgmmaWaitOp : Tile_Op<"wgmma_wait"> {
  let summary = "wgmma.wait_group that hands its registers back as new values";
  let description = [{
    NVVM's wait has no operands, so nothing would keep a use of an accumulator behind it.
  }];
  let arguments = (ins I32Attr:$pending, Arg<Variadic<F32>, "accumulators in flight">:$registers);
  let results = (outs Variadic<F32>:$results);
  let assemblyFormat = "$pending `(` $registers `)` attr-dict `:` type($results)";
}

#endif

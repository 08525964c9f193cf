//===- TileAsyncOps.td - Warp roles and asynchronous tensor cores ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hopper's schedule needs more than copies and MMAs: warps that only copy and warps that only compute,
// barriers in shared memory between them, and MMAs that run while the warp does something else.
//
// Ordering rules, from the PTX ISA ("Asynchronous operations", "Async proxy"):
//  * a started MMA reads shared memory through the async proxy: lines that
//    copies or stores wrote need `tile.fence_async` in a thread that has
//    observed them, before the MMA is started;
//  * its operands and accumulator belong to the tensor cores until
//    `tile.wait_mmas` returns them: the verifier lets a started result flow
//    into another start of the same shape or into a finish, out of the branch of
//    an `scf.if` too, and nowhere else; a loop cannot carry it (ptxas would run
//    one wgmma after the other, C7515);
//  * a tile may be overwritten only after the MMAs that read it have finished;
//  * a TMA store, too, reads shared memory through the async proxy, until its own
//    lane has waited for it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_TILEASYNCOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEASYNCOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_InitBarriersOp : Tile_Op<"init_barriers"> {
  let summary = "one thread initializes barriers with their counts of arrivals per phase";
  let description = [{ A `tile.sync block` must follow before any thread arrives or waits. }];
  let arguments = (ins Arg<Variadic<Tile_BarriersType>, "the barriers">:$barriers,
                       Arg<DenseI64ArrayAttr, "arrivals that complete a phase, of each">:$counts);
  let assemblyFormat = "$barriers `counts` $counts attr-dict `:` type($barriers)";
  let hasVerifier = 1;
}

def Tile_PublishBarriersOp : Tile_Op<"publish_barriers"> {
  let summary = "lets TMA loads signal the barriers that were initialized so far";
  let description = [{
    TMA loads signal through the async proxy. The thread that initialized the barriers did so through the
    generic proxy, so the async proxy needs a fence. Must precede the `tile.sync block`.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_ArriveOp : Tile_Op<"arrive"> {
  let summary = "one lane of the warp arrives";
  let description = [{
    The arrival counts for all lanes if an MMA was finished since they waited, because a warpgroup starts and
    finishes MMAs as one. Lanes' own reads, writes and waits need a `tile.sync warp` before it.
  }];
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "index of the barrier">:$index,
                       Arg<Optional<I1>, "whether the lane arrives; uniform over the warp">:$condition);
  let assemblyFormat = "$barriers `[` $index `]` (`if` $condition^)? attr-dict `:` type($barriers)";
}

def Tile_ArriveOnCopiesOp : Tile_Op<"arrive_on_copies"> {
  let summary = "every lane arrives when its copies so far have landed";
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "index of the barrier">:$index);
  let assemblyFormat = "$barriers `[` $index `]` attr-dict `:` type($barriers)";
}

def Tile_ProduceOp : Tile_Op<"produce", [SingleBlock, NoTerminator]> {
  let summary = "a producer's tile of a ring, with the copies into it";
  let description = [{
    The region's argument is the tile. The region holds the copies into it: gathers, or one TMA load without a
    barrier, after which a `tile.clear` may clear lines past the store's end. The result is the tile once all
    copies have landed, until its last use in the enclosing block. The number of stages limits how many tiles
    can be in flight before one is released. Or it holds a `tile.widen_tile` into the tile, with gathers of what
    is widened, which `--tile-pipeline-copies` lets run ahead. `--tile-specialize-warps` lets warps other than the tile's users
    produce it, and `--tile-insert-barriers` lets both sides wait for each other.

    If the producer warps share the work, `warp` names the one that copies; otherwise all copy.

    ```mlir
    %k = tile.produce %ring warp 0 (%tile: !keys) {
      tile.tma_load %map from %slot head %head lines 64 into %tile : !tile.tensor_map<4> -> !keys
    } : !ring -> !keys
    ```
  }];
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring,
                       Arg<OptionalAttr<I64Attr>, "number of the producer warp that copies">:$warp);
  let regions = (region SizedRegion<1>:$copies);
  let results = (outs Res<Tile_SharedType, "the produced tile">:$tile);
  let assemblyFormat = "$ring (`warp` $warp^)? custom<Body>($copies) attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_DelegateOp : Tile_Op<"delegate", [SingleBlock, NoTerminator]> {
  let summary = "operations that one producer warp runs in place of the warps that compute";
  let description = [{
    Warps that compute pass by. `--tile-specialize-warps` puts the operations where the producer warp is at the
    same place of the loops around. Both sides meet at named barriers.

    ```mlir
    tile.delegate warp 3 () {
      tile.named_barrier_sync %staged threads 160
      tile.wait_tma_stores
    }
    ```
  }];
  let arguments = (ins Arg<I64Attr, "number of the producer warp">:$warp);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`warp` $warp custom<Body>($body) attr-dict";
}

def Tile_ConsumeOp : Tile_Op<"consume"> {
  let summary = "the next tile of a ring that other warps produce";
  let description = [{ The consumers' side of a `tile.produce`. }];
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring);
  let results = (outs Res<Tile_SharedType, "the produced tile">:$tile);
  let assemblyFormat = "$ring attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_AheadOp : Tile_Op<"ahead", [SingleBlock, RecursiveMemoryEffects]> {
  let summary = "a value of an iteration that a loop may compute one iteration early";
  let description = [{
    The region maps the iteration's `at` to the value; it must be able to do so for the iteration after the
    last. `--tile-look-ahead` lets the enclosing loop carry the value where `at` is the loop's counter.

    ```mlir
    %slot = tile.ahead %token (%t: i32) {
      %wide = arith.extsi %t : i32 to i64
      %read = tile.read %table[%wide] : !tile.buffer<i32> -> i32
      tile.yield %read : i32
    } : i32
    ```
  }];
  let arguments = (ins Arg<I32, "the value that differs between iterations">:$at);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Res<AnyType, "the value">:$value);
  let assemblyFormat = "$at custom<Body>($body) attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Tile_TmaLoadOp : Tile_Op<"tma_load", [AttrSizedOperandSegments]> {
  let summary = "a warp starts TMA loads of a shared tile's lines; they complete a phase of a barrier";
  let description = [{
    The tile is cut into boxes of `lines` lines, which lie in consecutive slots of the source; lane i holds
    the first slot of box i. One lane arrives at the barrier once and expects the bytes of the whole tile.
    There is one map for each width of the target's panels, the wide ones first; the last three axes of a map
    are slots, panels and heads. Elements outside the source arrive as zeros.

    `padded` lines of the tile are longer than those of the source. The innermost axis of each map then has
    all existing features, and the axis of panels has length 1: panels are loaded one by one.

    The boxes at `next` are brought to the L2 cache: they are loaded next. `panel` is the first panel of a tile that
    has some panels of the source's lines.
  }];
  let arguments = (ins
    Arg<Variadic<Tile_TensorMapType>, "one per width of panel">:$maps,
    Arg<I32, "first slot of the lane's box, different in each lane">:$slot,
    Arg<I32, "coordinate along the axis of heads">:$head,
    Arg<Tile_SharedType, "the tile to fill">:$target,
    Arg<Optional<Tile_BarriersType>, "the barriers">:$barriers,
    Arg<Optional<I32>, "index of the barrier">:$index,
    Arg<Optional<I32>, "like `slot`, of the load after this one">:$next,
    I64Attr:$lines,
    UnitAttr:$padded,
    OptionalAttr<I64Attr>:$panel);
  let assemblyFormat = [{
    $maps `from` $slot (`next` $next^)? `head` $head `lines` $lines (`panel` $panel^)? `into` $target
    (`on` $barriers^ `[` $index `]`)? attr-dict
    `:` type($maps) `->` type($target) (`,` type($barriers)^)?
  }];
  let hasVerifier = 1;
}

def Tile_OverlayOp : Tile_Op<"overlay", [Pure]> {
  let summary = "the memory of a box of a shared tile, as another tile";
  let description = [{ Neither contents nor order carry over: earlier users of the box must be done. }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "the box's first line">:$line);
  let results = (outs Res<Tile_SharedType, "a tile that starts at the box's first byte">:$result);
  let assemblyFormat = "$tile `at` $line attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_StageOp : Tile_Op<"stage"> {
  let summary = "a warp writes a fragment into lines of a shared tile, rounding to the tile's element type";
  let description = [{
    Lines of an f32 tile, in whole panels of 32 columns, get the order of sums (`tile.load_sums`). A fragment of
    one axis has a number for each line of a tile of one column.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32, one or two axes">:$fragment,
    Arg<Tile_SharedType, "the tile, of f16, bf16 or f32">:$tile,
    Arg<I32, "line of the fragment's first line, a multiple of 16">:$line);
  let assemblyFormat = "$fragment `into` $tile `at` $line attr-dict `:` type($fragment) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_WidenTileOp : Tile_Op<"widen_tile"> {
  let summary = "the producer warps widen a shared tile of quantized values to f16, or of metadata to f32";
  let description = [{
    Does for a tile what `tile.widen` does for a right operand in registers: every element becomes f16,
    exactly. Integers of n bits count from the middle of their range: element - 2^(n - 1). With `by`, an
    integer becomes element * scale + zero in f16, rounded once. A line of `meta` has a scale and a zero for
    each of its groups of features. A tile of f16 with a scale and a zero in each line becomes f32.

    All producers take part, in a `tile.produce` of `target`; each widens some lines. They have synced since
    `source` and `meta` arrived. `--tile-insert-barriers` fences before other warps' MMAs read `target`.
  }];
  let arguments = (ins Arg<Tile_SharedType, "quantized values, 64 or 128 in a line, or metadata">:$source,
                       Arg<Optional<Tile_SharedType>, "f16, pairs of a scale and a zero">:$meta,
                       Arg<Tile_SharedType, "the tile to fill, f16 or f32, with the same lines and columns">:$target);
  let assemblyFormat = [{
    $source (`by` $meta^)? `into` $target attr-dict `:` type($source) (`by` type($meta)^)? `->` type($target)
  }];
  let hasVerifier = 1;
}

def Tile_WidenLinesOp : Tile_Op<"widen_lines"> {
  let summary = "the producer warps widen lines from `tile.fetch_lines` to f16 or bf16, and write them to a shared tile";
  let description = [{
    Every value becomes a float of the tile's type, exactly; a NaN stays a NaN. All producers take part, in a
    `tile.produce` of `target`, as they do in `tile.widen_tile`.
  }];
  let arguments = (ins Arg<Variadic<VectorOfLengthAndType<[4], [I32]>>, "16 values each">:$held,
                       Arg<TypeAttr, "their type, f8E4M3FN">:$codes,
                       Arg<Tile_SharedType, "the tile to fill, f16 or bf16">:$target);
  let assemblyFormat = "$held `of` $codes `into` $target attr-dict `:` type($held) `->` type($target)";
  let hasVerifier = 1;
}

def Tile_TmaStoreOp : Tile_Op<"tma_store", [AttrSizedOperandSegments]> {
  let summary = "one lane of the warp starts TMA stores of a shared tile into a tensor";
  let description = [{
    The opposite of `tile.tma_load` with one box, with the same maps. The tile's lines go to as many slots from
    `slot` on; lines outside the tensor are not written. The tile has the panels of the tensor from `panel`
    on, as many as it is wide; by default from the first.

    With `adds` the tile is added to the tensor, both of f32. Other blocks may add to the tensor at the same
    time, and terms have no order.

    The writers of the tile fence (`tile.fence_async`), then sync with the storing warp. No warp writes the
    tile again before the storing warp's `tile.wait_tma_stores`. The tensor's new elements are visible to later
    launches.
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
  let summary = "waits until this warp's TMA stores have read their tiles";
  let description = [{
    Needed before a tile is written again, and before the warp ends. With `complete` it waits until the tensors
    have been written.
  }];
  let arguments = (ins UnitAttr:$complete);
  let assemblyFormat = "(`complete` $complete^)? attr-dict";
}

def Tile_ClearOp : Tile_Op<"clear"> {
  let summary = "a warp writes zeros into the lines of a shared tile from `line` on";
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "first line; the tile's count: none">:$line);
  let assemblyFormat = "$tile `from` $line attr-dict `:` type($tile)";
}

def Tile_MbarrierWaitOp : Tile_Op<"mbarrier_wait"> {
  let summary = "waits at an mbarrier until the phase of this parity has completed";
  let description = [{
    Phases count from 0; a fresh barrier is in phase 0, so waiting for parity 1 returns at once. `before`
    selects the phase before one of that parity: producers wait for the free stage of the previous round.
  }];
  let arguments = (ins Arg<Tile_BarriersType, "the barriers">:$barriers, Arg<I32, "index of the barrier">:$index,
                       Arg<I32, "parity of the phase, 0 or 1">:$parity,
                       Arg<UnitAttr, "waits for the phase before">:$before);
  let assemblyFormat = "$barriers `[` $index `]` (`before` $before^)? `parity` $parity attr-dict `:` type($barriers)";
}

def Tile_FenceAsyncOp : Tile_Op<"fence_async"> {
  let summary = "orders shared-memory accesses observed so far before the async proxy's later ones";
  let assemblyFormat = "attr-dict";
}

def Tile_NamedBarrierSyncOp : Tile_Op<"named_barrier_sync"> {
  let summary = "waits at one of the block's sixteen named barriers until `threads` threads have arrived";
  let description = [{
    Counts the threads of whole warps, including those of `tile.named_barrier_arrive`. Barrier 0 is that of
    `tile.sync block`.
  }];
  let arguments = (ins Arg<I32, "the named barrier, 1 to 15">:$barrier, Arg<I32Attr, "threads that complete it">:$threads);
  let assemblyFormat = "$barrier `threads` $threads attr-dict";
}

def Tile_NamedBarrierArriveOp : Tile_Op<"named_barrier_arrive"> {
  let summary = "arrives at a named barrier without waiting";
  let arguments = (ins Arg<I32, "the named barrier, 1 to 15">:$barrier, Arg<I32Attr, "threads that complete it">:$threads);
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
    Like `tile.mma`, but asynchronous and of four warps at once: the fragments of warps 4g to 4g+3 are 64
    consecutive rows. Without `acc` the sum starts at zero. `line` is the warpgroup's first line of a left
    operand in shared memory. Each start is a group of its own for `tile.wait_mmas`.

    `depth` is the number of contracted elements that are multiplied, if the elements after them are zeros.

    If the lines of a right operand are contracted, a result with fewer columns has its first columns.

    A left operand whose lines are contracted, and whose 64 columns are the rows of the result, has no line.
    If the lines of a right operand are contracted, a warpgroup may read a part of its columns, from `column`
    on: as many as the result has, in panels of 128 bytes.
  }];
  let arguments = (ins Arg<AnyType, "fragment or shared tile">:$lhs,
                       Arg<Optional<I32>, "first line of a shared left operand">:$line,
                       Arg<Tile_SharedType, "right operand">:$rhs,
                       Arg<Optional<I32>, "first column of the right operand, a multiple of the result's">:$column,
                       Arg<OptionalAttr<I64Attr>, "contracted elements that are multiplied, a multiple of 16">:$depth,
                       Arg<Optional<Tile_FragmentType>, "the accumulator">:$acc);
  let results = (outs Tile_FragmentType:$result);
  let assemblyFormat = [{
    $lhs (`at` $line^)? `,` $rhs (`from` $column^)? (`depth` $depth^)? (`plus` $acc^)? attr-dict
    `:` type($lhs) `,` type($rhs) (`,` type($acc)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether the left operand is a shared tile whose lines are contracted.
    bool transposesLhs();
  }];
}

def Tile_WaitMmasOp : Tile_Op<"wait_mmas"> {
  let summary = "waits until at most `pending` of the newest started MMAs are unfinished";
  let description = [{
    Returns its operands, which may be used as values from here on. If only one branch has started an operand,
    the value from the other branch is returned unchanged. Without operands it waits all the same.
  }];
  let arguments = (ins I32Attr:$pending, Arg<Variadic<Tile_FragmentType>, "started MMAs">:$started);
  let results = (outs Variadic<Tile_FragmentType>:$results);
  let assemblyFormat = "$pending (`of` $started^)? attr-dict (`:` type($started)^ `->` type($results))?";
}

//===----------------------------------------------------------------------===//
// Machine operations that NVVM lacks
//===----------------------------------------------------------------------===//

def Tile_WgmmaOp : Tile_Op<"wgmma", [AttrSizedOperandSegments]> {
  let summary = "one wgmma.mma_async m64nNk16 with fp32 accumulators, as one lane sees it";
  let description = [{
    The left operand is four registers or a descriptor, K-major or, with `lhs_transposed`, MN-major; the right
    operand is a descriptor, K-major or, with `transposed`, MN-major. Without accumulators the product alone
    is computed. Accumulator registers are those of `tile.fragment`'s `acc` layout: row 16w + g + 8*(i/2 % 2),
    column 8*(i/4) + 2q + i%2.
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
    Lane 4g + q holds columns 2q and 2q + 1 of row g, of both matrices. Needs the whole warp.
  }];
  let arguments = (ins Arg<I32, "two elements of the matrix">:$source);
  let results = (outs Res<I32, "two elements of the transposed matrix">:$result);
  let assemblyFormat = "$source attr-dict";
}

def Tile_WgmmaWaitOp : Tile_Op<"wgmma_wait"> {
  let summary = "wgmma.wait_group that hands its registers back as new values";
  let description = [{
    NVVM's wait has no operands, so nothing would keep a use of an accumulator after it.
  }];
  let arguments = (ins I32Attr:$pending, Arg<Variadic<F32>, "accumulators in flight">:$registers);
  let results = (outs Variadic<F32>:$results);
  let assemblyFormat = "$pending `(` $registers `)` attr-dict (`:` type($results)^)?";
}

#endif

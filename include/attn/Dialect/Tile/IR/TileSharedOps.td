//===- TileSharedOps.td - Shared memory, and copies to it -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILESHAREDOPS_TD
#define ATTN_DIALECT_TILE_IR_TILESHAREDOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_AllocOp : Tile_Op<"alloc"> {
  let summary = "shared memory for a tile, a ring of tiles, or scratch";
  let description = [{
    With `per_warp` every warp gets its own. `--tile-allocate-shared` sets `offset`, in bytes from the start
    of the block's dynamic shared memory. An allocation that `overlays` another starts at the other's offset:
    the two are never live at once (a block barrier lies between).
  }];
  let arguments = (ins
    Arg<Optional<Tile_MemoryType>, "memory that this allocation overlays">:$overlays,
    Arg<UnitAttr, "every warp gets its own">:$per_warp,
    Arg<OptionalAttr<I64Attr>, "byte offset in the block's dynamic shared memory">:$offset);
  let results = (outs Res<Tile_MemoryType, "the memory">:$memory);
  let assemblyFormat = "(`overlays` $overlays^ `:` type($overlays))? attr-dict `:` type($memory)";
}

def Tile_RingStageOp : Tile_Op<"ring_stage", [Pure]> {
  let summary = "one tile of a ring";
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring, Arg<I32, "stage, below the ring's count">:$index);
  let results = (outs Res<Tile_SharedType, "the tile of that stage">:$tile);
  let assemblyFormat = "$ring `[` $index `]` attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_RingPositionOp : Tile_Op<"ring_position", [Pure]> {
  let summary = "the stage of a ring's n-th tile, and the parity of its round";
  let description = [{ Tile `i` of a ring of `n` stages, counted from the first, is in stage `i % n`, in round `i / n`. }];
  let arguments = (ins Arg<I32, "the tile's number">:$tile,
                       Arg<ConfinedAttr<I64Attr, [IntPositive]>, "the ring's count of stages">:$stages);
  let results = (outs Res<I32, "the tile's stage">:$stage, Res<I32, "parity of its round">:$parity);
  let assemblyFormat = "$tile `of` $stages attr-dict";
}

def Tile_LookupOp : Tile_Op<"lookup", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "looks up the slots of a gather's lines";
  let description = [{
    The region maps a line index (always below `end`, the last line if there are fewer) to a slot. Lane i
    looks up line i of its warp's lines in a gather of the same lines and scope, 32 at most: the result
    differs between lanes, and `tile.gather` distributes it. `end` must be above `begin`, or a line before it
    must be readable. With `if` nothing is read where the tile does not exist, and the slots are 0.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<I64Attr, "lines of the tiles to fill">:$lines,
    Arg<Tile_Scope, "the threads that will copy">:$scope,
    Arg<Optional<I1>, "whether the tile exists; by default it does">:$exists);
  let regions = (region SizedRegion<1>:$slot);
  let results = (outs Res<I32, "the slot of this lane's line">:$slots);
  let assemblyFormat = "$scope $begin `to` $end `lines` $lines (`if` $exists^)? custom<Body>($slot) attr-dict";
  let hasRegionVerifier = 1;
}

def Tile_LookupBoxesOp : Tile_Op<"lookup_boxes", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "looks up the slots of a TMA load's boxes";
  let description = [{
    The region maps the first line of a box (always one below `end`, that of the last box if there are fewer)
    to a slot. Lane i looks up box i: the result differs between lanes, as `tile.tma_load` expects. Boxes from
    `end` on lie outside of every source and cost no memory traffic: TMA writes zeros. `end` must be above 0.
    With `if` nothing is read where the tile does not exist, and the slots are 0.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<I64Attr, "lines of a box">:$lines,
    Arg<Optional<I1>, "whether the tile exists; by default it does">:$exists);
  let regions = (region SizedRegion<1>:$slot);
  let results = (outs Res<I32, "the first slot of this lane's box">:$slots);
  let assemblyFormat = "$begin `to` $end `lines` $lines (`if` $exists^)? custom<Body>($slot) attr-dict";
  let hasRegionVerifier = 1;
}

def Tile_GatherOp : Tile_Op<"gather", [AttrSizedOperandSegments, SingleBlock]> {
  let summary = "starts asynchronous copies of lines from global memory into shared tiles";
  let description = [{
    Copies line `begin + i` of each source to line i of its destination; lines from `end` on are filled with
    zeros and not read. The region maps a line index (always below `end`) to a slot, the same for all sources:
    keys and values of a token have the same slot. The line starts at element `slot * stride + origin` of its
    source. If slots come from a table, a `tile.lookup` of the same lines reads it ahead, and there is no
    region. A target's lines may be longer than the `features` of its source; zeros follow the features.
    Distances of slots known at compile time are `strides`, in elements. Distances given at launch are
    `pitches`, in bytes, and origins are then in bytes, too; a source of i8 then has lines of any elements. With `page` and `apart`, pages of `page` slots
    lie `apart` bytes from one another. Slots of a page are strides apart, and the first slot of page n lies
    at byte `n * apart`.

    With `times`, strides are multiplied by a run-time number.

    With scope `block` all warps of the block take part, each copying a contiguous share of the lines; with
    `warp` the destination belongs to this warp. Copies belong to the next `tile.commit` of the same thread.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<Variadic<Tile_BufferType>, "the tensors to read, one per target">:$sources,
    Arg<Variadic<I64>, "element of a slot where its line starts, one per source">:$origins,
    Arg<Variadic<Tile_SharedType>, "the tiles to fill, all with the same lines">:$targets,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "elements from one slot to the next, one per source">:$strides,
    Arg<Optional<I32>, "factor of the strides">:$factor,
    Arg<Variadic<I32>, "bytes from one slot to the next, one per source, in place of strides">:$pitches,
    Arg<Optional<I32>, "slots of the lines, as a lookup gives them">:$slots,
    Arg<Optional<I32>, "bytes from one page to the next, of all sources">:$apart,
    Arg<Tile_Scope, "the threads that copy">:$scope,
    Arg<OptionalAttr<I64Attr>, "slots of a page, a power of two, where pages lie apart">:$page,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "elements of a line that exist, one per source; by default all">:$features);
  let regions = (region AnyRegion:$slot);
  let assemblyFormat = [{
    $scope $begin `to` $end (`at` $slots^)? `from` $sources `origins` $origins (`strides` $strides^)?
    (`times` $factor^)? (`pitches` $pitches^)? (`page` $page^ `apart` $apart)? (`features` $features^)?
    `into` $targets `` custom<OptionalBody>($slot) attr-dict `:` type($sources) `->` type($targets)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_FetchLinesOp : Tile_Op<"fetch_lines", [MemoryEffects<[MemRead]>]> {
  let summary = "the producer warps load lines of 8-bit values from global memory to registers";
  let description = [{
    Loads `panels * 64` neighbouring features of `lines` lines, which start at byte `slot * pitch + origin` of the
    source. Slots are those of a `tile.lookup` of these lines, so lines past the last are that line once more. Loads
    are in flight until `tile.widen_lines` writes the lines to a tile, so they may begin before the tile is free.
    The lines at slots `next` are brought to the L2 cache: they are loaded next.
  }];
  let arguments = (ins
    Arg<ConfinedAttr<I64Attr, [IntPositive]>, "lines to load, eight for each warp or a multiple">:$lines,
    Arg<ConfinedAttr<I64Attr, [IntPositive]>, "panels of 64 features">:$panels,
    Arg<I32, "slots of the lines">:$slots,
    Arg<Optional<I32>, "like `slots`, of the lines to load after these">:$next,
    Arg<Tile_BufferType, "the tensor to read">:$source,
    Arg<I64, "byte of a slot where the features start">:$origin,
    Arg<I32, "bytes from one slot to the next">:$pitch);
  let results = (outs Res<Variadic<VectorOfLengthAndType<[4], [I32]>>, "16 features each">:$held);
  let assemblyFormat = [{
    $lines `panels` $panels `at` $slots (`next` $next^)? `from` $source `origin` $origin `pitch` $pitch attr-dict
    `:` type($source) `->` type($held)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The 16-byte runs of a panel, one for each lane of a line, and the lines that a warp loads at a time.
    static constexpr int64_t runsOfPanel = 4, linesOfStep = 8;
  }];
}

def Tile_CommitOp : Tile_Op<"commit"> {
  let summary = "closes a group of this thread's copies";
  let assemblyFormat = "attr-dict";
}

def Tile_WaitOp : Tile_Op<"wait"> {
  let summary = "waits until at most `pending` of this thread's newest copy groups are unfinished";
  let description = [{
    Makes the copies visible to the waiting thread only: a `tile.sync` must follow before other threads read them.
  }];
  let arguments = (ins
    Arg<ConfinedAttr<I32Attr, [IntNonNegative]>, "copy groups that may be left unfinished">:$pending);
  let assemblyFormat = "$pending attr-dict";
}

def Tile_SyncOp : Tile_Op<"sync"> {
  let summary = "barrier over the warp, the producer warps or the block; orders their shared-memory accesses";
  let arguments = (ins Arg<Tile_Scope, "the threads that sync">:$scope);
  let assemblyFormat = "$scope attr-dict";
}

#endif

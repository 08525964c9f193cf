//===- TileSharedOps.td - Shared memory, and copies to it -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILESHAREDOPS_TD
#define ATTN_DIALECT_TILE_IR_TILESHAREDOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

def Tile_AllocOp : Tile_Op<"alloc"> {
  let summary = "shared memory for a tile, a ring of tiles, or scratch";
  let description = [{
    With `per_warp` every warp gets its own. `--tile-allocate-shared` sets `offset`, in bytes from the start of the
    block's dynamic shared memory. An allocation that `overlays` another starts where that one starts: the two are
    never live at once (a block barrier lies between).
  }];
  let arguments = (ins
    Arg<Optional<Tile_MemoryType>, "memory whose place this one takes">:$overlays,
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
  let summary = "where a ring has its tile of a number, counted from the first that was filled";
  let description = [{ Tile `i` of a ring of `n` stages is in stage `i % n`, in round `i / n`. }];
  let arguments = (ins Arg<I32, "the tile's number">:$tile,
                       Arg<ConfinedAttr<I64Attr, [IntPositive]>, "the ring's count of stages">:$stages);
  let results = (outs Res<I32, "its stage">:$stage, Res<I32, "parity of its round">:$parity);
  let assemblyFormat = "$tile `of` $stages attr-dict";
}

def Tile_LookupOp : Tile_Op<"lookup", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "looks up where the lines of a gather lie";
  let description = [{
    The region maps a line index (always below `end`, the last line if there are fewer) to a slot. Lane i looks up line
    i of what its warp copies in a gather of as many lines and the same scope, 32 at most: the result differs between
    lanes, and `tile.gather` hands it around. `end` must be above `begin` or a line before it readable. With `if`
    nothing is read where the tile does not exist, and the slots are 0.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<I64Attr, "lines of the tiles that will be filled">:$lines,
    Arg<Tile_Scope, "the threads that will copy">:$scope,
    Arg<Optional<I1>, "whether the tile exists; by default it does">:$exists);
  let regions = (region SizedRegion<1>:$slot);
  let results = (outs Res<I32, "the slot of this lane's line">:$slots);
  let assemblyFormat = "$scope $begin `to` $end `lines` $lines (`if` $exists^)? custom<Body>($slot) attr-dict";
  let hasRegionVerifier = 1;
}

def Tile_LookupBoxesOp : Tile_Op<"lookup_boxes", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "looks up where the boxes of a fetch lie";
  let description = [{
    The region maps the first line of a box (always one below `end`, that of the last box if there are fewer) to a slot.
    Lane i looks up box i: the result differs between lanes, as `tile.tma_load` takes it. Boxes from `end` on lie outside
    of every source, which costs no memory: the copy engine writes zeros. `end` must be above 0. With `if` nothing is
    read where the tile does not exist, and the slots are 0.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<I64Attr, "lines of a box">:$lines,
    Arg<Optional<I1>, "whether the tile exists; by default it does">:$exists);
  let regions = (region SizedRegion<1>:$slot);
  let results = (outs Res<I32, "where this lane's box begins">:$slots);
  let assemblyFormat = "$begin `to` $end `lines` $lines (`if` $exists^)? custom<Body>($slot) attr-dict";
  let hasRegionVerifier = 1;
}

def Tile_GatherOp : Tile_Op<"gather", [AttrSizedOperandSegments, SingleBlock]> {
  let summary = "starts asynchronous copies of lines from global memory into shared tiles";
  let description = [{
    Line i of every destination is line `begin + i` of its source; lines from `end` on are filled with zeros and not
    read. The region maps a line index (always below `end`) to a slot of the source, where all sources share the
    map: keys and values of a token lie at the same slot. The line starts at element `slot * stride + origin` of its
    source. Where slots come from a table, `tile.lookup` of the same lines reads it ahead, and there is no region.
    Where a target's lines are longer than the `features` of its source, zeros follow those. Distances of slots that
    are known before the kernel runs are `strides`, in elements; those that a launch says are `pitches`, in bytes, as
    origins are then, too. Where pages of `page` slots lie `apart` bytes from one another, slots of a page are strides
    apart and the first of page n lies `n * apart` bytes behind the source's start.

    Strides that are `times` a number are not known before the kernel runs: they are that many times what is written.

    With scope `block` all warps of the block take part, each copying a contiguous share of the lines; with `warp`
    the destination belongs to this warp. Copies belong to the next `tile.commit` of the same thread.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<Variadic<Tile_BufferType>, "the tensors to read, one per target">:$sources,
    Arg<Variadic<I64>, "element of a slot where its line starts, one per source">:$origins,
    Arg<Variadic<Tile_SharedType>, "the tiles to fill, all with the same lines">:$targets,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "elements from one slot to the next, one per source">:$strides,
    Arg<Optional<I32>, "what distances are multiplied by">:$factor,
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
  let summary = "barrier over the warp or the block; orders their shared-memory accesses";
  let arguments = (ins Arg<Tile_Scope, "the threads that meet">:$scope);
  let assemblyFormat = "$scope attr-dict";
}

#endif

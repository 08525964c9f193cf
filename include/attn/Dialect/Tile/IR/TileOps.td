#ifndef ATTN_DIALECT_TILE_IR_TILEOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"
include "attn/Dialect/Tile/IR/TileSchedule.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Where am I, and uniform reads
//===----------------------------------------------------------------------===//

class Tile_IdOp<string mnemonic, string what> : Tile_Op<mnemonic, [Pure]> {
  let summary = what;
  let results = (outs Res<I32, "the number">:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}
def Tile_BlockIdOp : Tile_IdOp<"block_id", "index of this block in the grid">;
def Tile_BlockCountOp : Tile_IdOp<"block_count", "blocks in the grid">;
def Tile_WarpIdOp : Tile_IdOp<"warp_id", "index of this warp in its block; uniform over the warp">;
def Tile_LaneIdOp : Tile_IdOp<"lane_id", "index of this thread in its warp; not uniform">;

def Tile_ReadOp : Tile_Op<"read", [MemoryEffects<[MemRead]>]> {
  let summary = "reads one element that no kernel of the launch writes";
  let description = [{ Unless `written`: then the launch in front wrote it, and `tile.await_previous` stands before. }];
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer, Arg<I64, "element index">:$index, UnitAttr:$written);
  let results = (outs Res<AnyType, "the element">:$value);
  let assemblyFormat = "(`written` $written^)? $buffer `[` $index `]` attr-dict `:` type($buffer) `->` type($value)";
  let hasVerifier = 1;
}

def Tile_ReadAdjacentOp : Tile_Op<"read_adjacent", [MemoryEffects<[MemRead]>]> {
  let summary = "reads two or four adjacent elements of memory that launches write";
  let description = [{
    The first lies at a multiple of as many. Where this launch may begin before the one in front has ended,
    `tile.await_previous` stands before.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer, Arg<I64, "index of the first">:$index);
  let results = (outs Res<Variadic<AnyType>, "the elements">:$values);
  let assemblyFormat = "$buffer `[` $index `]` attr-dict `:` type($buffer) `->` type($values)";
  let hasVerifier = 1;
}

def Tile_WriteAdjacentOp : Tile_Op<"write_adjacent", [MemoryEffects<[MemWrite]>]> {
  let summary = "this lane writes two or four adjacent elements, rounding f32 to the buffer's element type";
  let description = [{ The first lies at a multiple of as many. }];
  let arguments = (ins Arg<Variadic<AnyType>, "the values">:$values, Arg<Tile_BufferType, "the tensor">:$buffer,
                       Arg<I64, "index of the first">:$index);
  let assemblyFormat = "$values `to` $buffer `[` $index `]` attr-dict `:` type($values) `->` type($buffer)";
  let hasVerifier = 1;
}

def Tile_StartNextOp : Tile_Op<"start_next"> {
  let summary = "lets the launch behind this one begin when all blocks have got here";
  let description = [{
    What it may touch before `tile.await_previous` is what this launch does not write. Chips before Hopper begin it when
    this launch has ended.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_AwaitPreviousOp : Tile_Op<"await_previous"> {
  let summary = "waits until the launch in front has ended and what it wrote can be read";
  let assemblyFormat = "attr-dict";
}

def Tile_ReadRangeOp : Tile_Op<"read_range", [MemoryEffects<[MemRead]>]> {
  let summary = "reads an element of a CSR list and the next, as one request of the warp";
  let arguments = (ins Arg<Tile_BufferType, "i32 offsets">:$buffer, Arg<I64, "index of the first">:$index);
  let results = (outs Res<I32, "where the range begins">:$begin, Res<I32, "where it ends">:$end);
  let assemblyFormat = "$buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Tile_ReduceLanesOp : Tile_Op<"reduce_lanes", [Pure]> {
  let summary = "combines a scalar of each lane; uniform over the warp";
  let description = [{ Reassociates, in an order that depends on nothing. }];
  let arguments = (ins Arg<Tile_Combine, "how values are combined">:$kind, Arg<F32, "each lane's value">:$value);
  let results = (outs Res<F32, "the same in all lanes">:$result);
  let assemblyFormat = "$kind $value attr-dict";
}

def Tile_FromLaneOp : Tile_Op<"from_lane", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "the value that another lane holds";
  let arguments = (ins Arg<AnyTypeOf<[I32, F32]>, "each lane's value">:$value, Arg<I32, "the lane">:$lane);
  let results = (outs Res<AnyTypeOf<[I32, F32]>, "the lane's value">:$result);
  let assemblyFormat = "$value `[` $lane `]` attr-dict `:` type($value)";
}

def Tile_WriteOp : Tile_Op<"write", [MemoryEffects<[MemWrite]>]> {
  let summary = "this lane writes one element, rounding f32 to the buffer's element type";
  let arguments = (ins Arg<AnyType, "the value">:$value, Arg<Tile_BufferType, "the tensor">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($value) `->` type($buffer)";
  let hasVerifier = 1;
}

def Tile_AddToOp : Tile_Op<"add_to", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "this lane adds to one integer, which others may add to at the same time";
  let arguments = (ins Arg<I32, "what is added">:$value, Arg<Tile_BufferType, "the tensor, i32">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Tile_ReciprocalOp : Tile_Op<"reciprocal", [Pure]> {
  let summary = "1 / x for a scalar, to one unit in the last place";
  let arguments = (ins Arg<F32, "the divisor">:$x);
  let results = (outs Res<F32, "infinite where `x` is 0">:$result);
  let assemblyFormat = "$x attr-dict";
}

def Tile_RecordOp : Tile_Op<"record", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "reads one record of the plan in one request";
  let description = [{
    Records have 8 integers (a task, a segment), or 16 or 32 where more fields are asked for, and lie one behind the
    other. Of a record that a loop's first iteration reads, the fields may be known: they are `first`, of which
    `--tile-read-ahead` makes use. With `if` nothing is read where the record does not exist, and the fields are 0.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the array of records">:$buffer, Arg<I32, "record index">:$index,
                       Arg<Optional<I1>, "whether the record exists; by default it does">:$exists,
                       Arg<Variadic<I32>, "fields in the first iteration, where they are known">:$first);
  let results = (outs Res<Variadic<I32>, "the record's first fields, up to 32">:$fields);
  let assemblyFormat = [{
    $buffer `[` $index `]` (`if` $exists^)? (`first` $first^)? attr-dict `:` type($buffer) `->` type($fields)
  }];
  let hasVerifier = 1;
}

def Tile_PagedSlotOp : Tile_Op<"paged_slot", [MemoryEffects<[MemRead]>]> {
  let summary = "where a token lies, by the block table that lists the pages of its row";
  let description = [{
    A row of the table has `columns` entries, and each names the page of the next `page` tokens. With `start` the
    result is the first slot of the token's page. (attn_rt/Store.h says what it computes.)
  }];
  let arguments = (ins Arg<Tile_BufferType, "the block table">:$table, Arg<I32, "row of the table">:$row,
                       Arg<I32, "token of the row">:$token, Arg<I32, "entries of a row">:$columns,
                       Arg<I64Attr, "tokens of a page">:$page,
                       Arg<UnitAttr, "asks for the first slot of the page">:$start);
  let results = (outs Res<I32, "the slot">:$slot);
  let assemblyFormat = [{
    (`start` $start^)? $table `[` $row `,` $token `]` `columns` $columns `page` $page attr-dict `:` type($table)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Shared memory and copies
//===----------------------------------------------------------------------===//

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

def Tile_SlotOp : Tile_Op<"slot", [Pure]> {
  let summary = "one tile of a ring";
  let arguments = (ins Arg<Tile_RingType, "the ring">:$ring, Arg<I32, "slot, below the ring's count">:$index);
  let results = (outs Res<Tile_SharedType, "the tile in that slot">:$tile);
  let assemblyFormat = "$ring `[` $index `]` attr-dict `:` type($ring) `->` type($tile)";
  let hasVerifier = 1;
}

def Tile_LookupOp : Tile_Op<"lookup", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "looks up where the lines of a gather lie";
  let description = [{
    The region maps a line index (always below `end`, the last line if there are fewer) to a slot. Lane i looks up line
    i of what its warp copies in a gather of as many lines and the same scope, 32 at most: the result differs between
    lanes, and `tile.gather` hands it around. `end` must be above `begin` or a line before it readable.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<I64Attr, "lines of the tiles that will be filled">:$lines,
    Arg<Tile_Scope, "the threads that will copy">:$scope);
  let regions = (region SizedRegion<1>:$slot);
  let results = (outs Res<I32, "the slot of this lane's line">:$slots);
  let assemblyFormat = "$scope $begin `to` $end `lines` $lines $slot attr-dict";
  let hasRegionVerifier = 1;
}

def Tile_GatherOp : Tile_Op<"gather", [AttrSizedOperandSegments, SingleBlock]> {
  let summary = "starts asynchronous copies of lines from global memory into shared tiles";
  let description = [{
    Line i of every destination is line `begin + i` of its source; lines from `end` on are filled with zeros and not
    read. The region maps a line index (always below `end`) to a slot of the source, where all sources share the
    map: keys and values of a token lie at the same slot. The line starts at element `slot * stride + origin` of its
    source. Where slots come from a table, `tile.lookup` of the same lines reads it ahead, and there is no region.
    Where a target's lines are longer than the `features` of its source, zeros follow those.

    Slots may come in pages, so many to each, with a distance of their own from page to page: the line of slot `s` then
    starts at element `s / page * page_stride + s % page * stride + origin`. What is `times` a number is not known
    before the kernel runs: the distance of pages, or of slots where there are none, is that many times what is written.

    With scope `block` all warps of the block take part, each copying a contiguous share of the lines; with `warp`
    the destination belongs to this warp. Copies belong to the next `tile.commit` of the same thread.
  }];
  let arguments = (ins
    Arg<I32, "first line">:$begin,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<Variadic<Tile_BufferType>, "the tensors to read, one per target">:$sources,
    Arg<Variadic<I64>, "element of a slot where its line starts, one per source">:$origins,
    Arg<Variadic<Tile_SharedType>, "the tiles to fill, all with the same lines">:$targets,
    Arg<DenseI64ArrayAttr, "elements from one slot to the next, one per source">:$strides,
    Arg<Optional<I32>, "what distances are multiplied by">:$factor,
    Arg<Optional<I32>, "slots of the lines, as a lookup gives them">:$slots,
    Arg<Tile_Scope, "the threads that copy">:$scope,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "elements of a line that exist, one per source; by default all">:$features,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "slots of a page, powers of two, one per source; by default 1">:$pages,
    Arg<OptionalAttr<DenseI64ArrayAttr>, "elements from one page to the next">:$page_strides);
  let regions = (region AnyRegion:$slot);
  let assemblyFormat = [{
    $scope $begin `to` $end (`at` $slots^)? `from` $sources `origins` $origins `strides` $strides (`times` $factor^)?
    (`features` $features^)? (`pages` $pages^ `page_strides` $page_strides)? `into` $targets ($slot^)? attr-dict `:` type($sources) `->` type($targets)
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

def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "reads lines of a shared tile as the left operand of a dot";
  let description = [{ Elements of 8, 16 or 32 bits. }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "first line">:$line);
  let results = (outs Res<Tile_FragmentType, "as many lines as its type says">:$fragment);
  let assemblyFormat = "$tile `at` $line attr-dict `:` type($tile) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LoadRhsOp : Tile_Op<"load_rhs", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a shared tile of codes as the right operand of a dot";
  let description = [{
    The fragment's first axis is the one that the dot keeps, its second the one that is contracted: the tile's lines
    and columns, or its columns and lines. Elements stay what they are: floats of 8 bits, or unsigned integers of 8, 4
    or 2; `tile.widen` makes them what tensor cores multiply. Tiles of 16-bit elements need no such step: `tile.dot`
    reads them by itself.

    `per n`: what follows treats groups of n features differently (`tile.part`, factors of `tile.widen`), so runs of
    features stay inside of them.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile,
                       Arg<OptionalAttr<I64Attr>, "features of a group; by default all are alike">:$group);
  let results = (outs Res<Tile_FragmentType, "all of it">:$fragment);
  let assemblyFormat = "$tile (`per` $group^)? attr-dict `:` type($tile) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LoadColumnsOp : Tile_Op<"load_columns", [MemoryEffects<[MemRead]>]> {
  let summary = "reads the columns of a narrow shared tile as one-axis fragments over its lines";
  let description = [{
    For the few numbers that go with each token, a line of 4, 8 or 16 bytes: a fragment for each of them.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile);
  let results = (outs Res<Variadic<Tile_FragmentType>, "as many as the tile has columns">:$columns);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($columns)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Fragments
//===----------------------------------------------------------------------===//

def Tile_SplatOp : Tile_Op<"splat", [Pure]> {
  let summary = "a fragment whose elements are all the same scalar";
  let description = [{ Operands of dots (`lhs`, `rhs`) take scalars of 16 bits. }];
  let arguments = (ins Arg<AnyType, "the scalar">:$value);
  let results = (outs Res<Tile_FragmentType, "the fragment">:$fragment);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_UndefinedOp : Tile_Op<"undefined", [Pure]> {
  let summary = "a fragment without values, for a loop whose first iteration does not use what it carries";
  let results = (outs Res<Tile_FragmentType, "the fragment">:$fragment);
  let assemblyFormat = "attr-dict `:` type($fragment)";
}

def Tile_CoordinatesOp : Tile_Op<"coordinates", [Pure]> {
  let summary = "element i of a one-axis fragment is `start + i`";
  let arguments = (ins Arg<I32, "value of element 0">:$start);
  let results = (outs Res<Tile_FragmentType, "one axis of i32">:$fragment);
  let assemblyFormat = "$start attr-dict `:` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LaneCoordinatesOp : Tile_Op<"lane_coordinates", [Pure]> {
  let summary = "where a lane's elements lie along an axis, as its first coordinate and constants";
  let description = [{
    Element i of a lane has the coordinate `first + offsets[i]`; `first` differs from lane to lane, the offsets are
    constants of the layout. Bounds that are moved by `first` once can be compared with constants for every element,
    which is how masks stay at one instruction per element and end.
  }];
  let results = (outs
    Res<I32, "the lane's first coordinate">:$first,
    Res<Tile_FragmentType, "one axis of i32">:$offsets);
  let assemblyFormat = "attr-dict `:` type($offsets)";
  let hasVerifier = 1;
}

def Tile_MapOp : Tile_Op<"map", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "applies a scalar function to every element";
  let description = [{
    Operands with fewer axes than the result are broadcast along the axes they lack. The region takes one scalar per
    operand and may use uniform values from outside.
  }];
  let arguments = (ins Arg<Variadic<Tile_FragmentType>, "the operands of the function">:$inputs);
  let results = (outs Res<Tile_FragmentType, "its values">:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$inputs $body attr-dict `:` type($inputs) `->` type($result)";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_MaskOp : Tile_Op<"mask", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "sets the scores that may not be seen to minus infinity";
  let description = [{
    The region says, for one element, whether it is visible. `partial` = false is a promise that it is true for all
    of them: `--tile-skip-full-masks` then branches around the mask, so that full tiles execute no mask code.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32, any axes">:$scores,
    Arg<Variadic<Tile_FragmentType>, "what visibility depends on, broadcast as in `tile.map`">:$inputs,
    Arg<I1, "whether some element may be invisible">:$partial);
  let results = (outs Res<Tile_FragmentType, "the scores, -inf where invisible">:$result);
  let regions = (region SizedRegion<1>:$visible);
  let assemblyFormat = [{
    $scores `if` $partial `where` `(` $inputs `)` $visible attr-dict `:` type($scores) `,` type($inputs)
    `->` type($result)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_YieldOp
    : Tile_Op<"yield", [Pure, Terminator,
                        ParentOneOf<["AheadOp", "GatherOp", "LoadVectorOp", "LookupOp", "MapOp", "MaskOp",
                                     "ScatterOp", "StoreOp"]>]> {
  let summary = "ends the region of a tile operation with its value";
  let arguments = (ins Arg<AnyType, "the value">:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "combines the elements along the axis that the result lacks";
  let description = [{
    Along columns lanes of a quad meet, along rows lanes of different quads: two exchanges per row, or three per column.
    A result of `partial` type holds each lane's own share (no communication); `tile.complete` adds the shares.
    Reassociates.
  }];
  let arguments = (ins
    Arg<Tile_Combine, "how elements are combined">:$kind,
    Arg<Tile_FragmentType, "f32, two axes">:$source);
  let results = (outs Res<Tile_FragmentType, "one axis of the source">:$result);
  let assemblyFormat = "$kind $source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_CompleteOp : Tile_Op<"complete", [Pure]> {
  let summary = "adds the lanes' shares of a partial fragment";
  let arguments = (ins Arg<Tile_FragmentType, "f32 shares">:$source);
  let results = (outs Res<Tile_FragmentType, "their sums, the same in all lanes of a quad, or in all quads">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_AnyOp : Tile_Op<"any", [Pure]> {
  let summary = "whether an element is not zero in any lane; uniform over the warp";
  let arguments = (ins Arg<Tile_FragmentType, "one axis of i32">:$source);
  let results = (outs Res<I1, "the same in all lanes">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def Tile_CastOp : Tile_Op<"cast", [Pure]> {
  let summary = "rounds an accumulator to 16 bits, as the left operand of the next dot";
  let description = [{ Rounds to nearest even. Costs no communication: the two layouts place elements alike. }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, two axes">:$source);
  let results = (outs Res<Tile_FragmentType, "f16 or bf16, the same axes">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ConvertOp : Tile_Op<"convert", [Pure]> {
  let summary = "the same elements in another layout, or with the two axes exchanged";
  let description = [{
    Elements of 8, 16 or 32 bits move between lanes, unchanged. Between `acc` and `lhs` of 16-bit elements nothing
    moves: registers are packed or taken apart. Elements of 16 bits are transposed by `movmatrix`, one per 8x8 matrix,
    others by one exchange per element. `--tile-infer-layouts` inserts conversions where a value is needed in two
    layouts; to exchange axes is for the program. Nothing is converted to `rhs`, nor from it: right operands come from
    memory.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "complete">:$source);
  let results = (outs Res<Tile_FragmentType, "the same axes, in any order, and element">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_WidenOp : Tile_Op<"widen", [Pure, AttrSizedOperandSegments]> {
  let summary = "converts codes to the floats of 16 bits that a dot multiplies";
  let description = [{
    Exact: f16 and bf16 hold every unsigned integer of 8 bits and every number of e4m3 and e5m2 (a NaN stays one; of
    e5m2, bf16 and f16 hold all). What scales all codes alike is no part of it: a factor that a whole head shares
    belongs to the scores, or to the result.

    Factors along the contracted axis (a token's, of values) cannot wait until then. With `times` each code is
    multiplied by its column's factor, and with `plus` a term is added: in f16 or bf16, one rounding of code * factor +
    term. n factors are those of n groups of rows, all of one size.

    Integers come about as what `tile.biases` holds and the code; to leave them so, `biased`, costs less than exact ones.
    A dot of them is too much by that of the biases, whose rows are all alike: no matter of tokens, nor of the tile.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "codes, a right operand">:$source,
                       Arg<Variadic<Tile_FragmentType>, "factors of columns, for each group of rows">:$scales,
                       Arg<Variadic<Tile_FragmentType>, "terms of columns, for each group of rows">:$zeros,
                       UnitAttr:$biased);
  let results = (outs Res<Tile_FragmentType, "f16 or bf16, the same axes">:$result);
  let assemblyFormat = [{
    (`biased` $biased^)? $source (`times` $scales^)? (`plus` $zeros^)? attr-dict
    `:` type($source) (`times` type($scales)^)? (`plus` type($zeros)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_BiasesOp : Tile_Op<"biases", [Pure]> {
  let summary = "what integer codes are too much by, where `tile.widen` leaves them biased";
  let description = [{ The same in every row; constants. In layout `rhs` with the order that the dot's left operand has. }];
  let arguments = (ins TypeAttr:$codes);
  let results = (outs Res<Tile_FragmentType, "a right operand, features its columns">:$fragment);
  let assemblyFormat = "$codes attr-dict `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_NarrowOp : Tile_Op<"narrow", [Pure]> {
  let summary = "a left operand of bf16 as one of f16, whose exponents are fewer";
  let description = [{
    Codes of 8 bits become f16 with less work than bf16, and f16 is as exact where numbers are of like size. All
    elements are multiplied by one power of two, by which the largest comes to 2^13 and less than 2^14; those 2^38
    times smaller are lost. A dot with the result is to be multiplied by `factor`, the power's inverse. Costs a maximum
    over the warp.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "bf16">:$source);
  let results = (outs Res<Tile_FragmentType, "f16">:$result, Res<F32, "a power of two; uniform over the warp">:$factor);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_PartOp : Tile_Op<"part", [Pure]> {
  let summary = "some columns of an operand of a dot";
  let description = [{ From column `first` on, as many as the result has: whole blocks of 16. }];
  let arguments = (ins Arg<Tile_FragmentType, "a left or a right operand">:$source,
                       Arg<ConfinedAttr<I64Attr, [IntNonNegative]>, "the first column">:$first);
  let results = (outs Res<Tile_FragmentType, "some of its columns">:$result);
  let assemblyFormat = "$source `from` $first attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_DotOp : Tile_Op<"dot", [MemoryEffects<[MemRead]>]> {
  let summary = "acc + lhs * rhs on the tensor cores, contracted over the axis that the operands share";
  let description = [{
    `lhs` is a fragment, or a shared tile read from line `line` on; `rhs` a shared tile or a fragment. The axis of
    `rhs` that is not contracted becomes the second axis of the result. fp32 accumulation.
  }];
  let arguments = (ins
    Arg<AnyTypeOf<[Tile_FragmentType, Tile_SharedType]>, "f16 or bf16">:$lhs,
    Arg<Optional<I32>, "first line of `lhs`, where it is a shared tile">:$line,
    Arg<AnyTypeOf<[Tile_SharedType, Tile_FragmentType]>, "the right operand, in the element type of `lhs`">:$rhs,
    Arg<Tile_FragmentType, "f32, what the product is added to">:$acc);
  let results = (outs Res<Tile_FragmentType, "the sum">:$result);
  let assemblyFormat = [{
    $lhs (`at` $line^)? `,` $rhs `,` $acc attr-dict `:` type($lhs) `,` type($rhs) `,` type($acc) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_MergeWarpsOp : Tile_Op<"merge_warps"> {
  let summary = "merges the partial softmax states of the block's warps";
  let description = [{
    Every warp holds the state (max, sum, acc) of its own keys for the same rows. All warps get the merged max and
    sum; the merged accumulator is dealt out over the feature axis: warp w gets the columns from
    `w * (columns of the result)` on, and columns past the accumulator's are undefined. `unit` is the factor from the
    max's unit to log2. Contains two block barriers; `scratch` must be free when it starts.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "largest score of each row, -inf where nothing was seen">:$max,
    Arg<Tile_FragmentType, "sum of each row's weights">:$sum,
    Arg<Tile_FragmentType, "weighted sum of values; 16 rows">:$acc,
    Arg<Tile_ScratchType, "64 bytes per column and warp, and 128 per warp">:$scratch,
    Arg<F32, "log2 per unit of the max">:$unit,
    Arg<I32, "this warp">:$warp,
    Arg<ConfinedAttr<I64Attr, [IntPositive]>, "warps of the block">:$warps);
  let results = (outs
    Res<Tile_FragmentType, "largest score over all warps">:$merged_max,
    Res<Tile_FragmentType, "sum of weights over all warps">:$merged_sum,
    Res<Tile_FragmentType, "this warp's columns of the weighted sum">:$merged_acc);
  let assemblyFormat = [{
    $max `,` $sum `,` $acc `unit` $unit `warps` $warps `warp` $warp `scratch` $scratch attr-dict
    `:` type($max) `,` type($sum) `,` type($acc) `,` type($scratch)
    `->` type($merged_max) `,` type($merged_sum) `,` type($merged_acc)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Global memory and fragments
//===----------------------------------------------------------------------===//

def Tile_LoadVectorOp : Tile_Op<"load_vector", [SingleBlock, MemoryEffects<[MemRead]>]> {
  let summary = "reads a one-axis fragment element by element; the region maps the element's index to the buffer's";
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer);
  let results = (outs Res<Tile_FragmentType, "its elements">:$fragment);
  let regions = (region SizedRegion<1>:$index);
  let assemblyFormat = "$buffer $index attr-dict `:` type($buffer) `->` type($fragment)";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [SingleBlock]> {
  let summary = "writes a fragment to global memory, rounding to the buffer's element type";
  let description = [{
    The region maps a line of the fragment (its first axis, counted from 0) to the element index of its first
    column. Lines from `lines` on are not written, nor columns from `columns` on; `column` is the column of the
    fragment's first. Of the lanes that hold one element of a one-axis fragment, the first writes it.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32">:$fragment,
    Arg<Tile_BufferType, "the tensor: f32, or f16 or bf16 where the fragment has two axes">:$buffer,
    Arg<I32, "lines that exist">:$lines,
    Arg<Optional<I32>, "column of the fragment's first">:$column,
    Arg<OptionalAttr<I64Attr>, "columns that exist">:$columns);
  let regions = (region SizedRegion<1>:$index);
  let assemblyFormat = [{
    $fragment `to` $buffer `lines` $lines (`column` $column^)? $index attr-dict
    `:` type($fragment) `->` type($buffer)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_ScatterOp : Tile_Op<"scatter", [SingleBlock]> {
  let summary = "a warp writes lines of a shared tile to global memory, 16 bytes per lane";
  let description = [{
    `count` lines from `line` on, but none from `end` on. The region maps a line of the tile to the element index of
    its first column, a multiple of 16 bytes. Columns from `columns` on are not written.
  }];
  let arguments = (ins
    Arg<Tile_SharedType, "the tile">:$tile,
    Arg<I32, "the warp's first line">:$line,
    I64Attr:$count,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<Tile_BufferType, "the tensor, of the tile's elements">:$buffer,
    Arg<OptionalAttr<I64Attr>, "columns that exist, in whole chunks of 16 bytes">:$columns);
  let regions = (region SizedRegion<1>:$index);
  let assemblyFormat = [{
    $tile `from` $line `count` $count `end` $end `to` $buffer $index attr-dict `:` type($tile) `->` type($buffer)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

include "attn/Dialect/Tile/IR/TileAsyncOps.td"

#endif

//===- TileGlobalOps.td - Threads, launches and global memory ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEGLOBALOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEGLOBALOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

//===----------------------------------------------------------------------===//
// Ids, and the order of launches
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

def Tile_StartNextOp : Tile_Op<"start_next"> {
  let summary = "lets the next launch begin when all blocks have reached this point";
  let description = [{
    Before its `tile.wait_previous`, the next launch may touch only memory that this launch does not write.
    Chips before Hopper begin the next launch when this one has ended.
  }];
  let assemblyFormat = "attr-dict";
}

def Tile_WaitPreviousOp : Tile_Op<"wait_previous"> {
  let summary = "waits until the previous launch has ended and its writes are visible";
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Values of lanes
//===----------------------------------------------------------------------===//

def Tile_ReduceLanesOp : Tile_Op<"reduce_lanes", [Pure]> {
  let summary = "combines a scalar of each lane; uniform over the warp";
  let description = [{ Reassociates, in a fixed order. }];
  let arguments = (ins Arg<Tile_Combine, "how values are combined">:$kind, Arg<F32, "each lane's value">:$value);
  let results = (outs Res<F32, "equal in all lanes">:$result);
  let assemblyFormat = "$kind $value attr-dict";
}

def Tile_ScanOp : Tile_Op<"scan", [SameVariadicResultSize]> {
  let summary = "sums integers of each thread: over the threads before it, and over the block";
  let description = [{
    All threads of the block execute it. Contains two block barriers; `scratch` must be free when it starts.
    Several integers are summed side by side in the time of one.
  }];
  let arguments = (ins Arg<Variadic<I32>, "each thread's values">:$values,
                       Arg<Tile_ScratchType, "4 bytes for each warp and value">:$scratch,
                       Arg<ConfinedAttr<I64Attr, [IntPositive]>, "warps of the block">:$warps);
  let results = (outs Res<Variadic<I32>, "sums over lower threads">:$before,
                      Res<Variadic<I32>, "sums over the block">:$totals);
  let assemblyFormat = [{
    $values `in` $scratch `warps` $warps attr-dict `:` type($values) `in` type($scratch)
    `->` type($before) `total` type($totals)
  }];
  let hasVerifier = 1;
}

def Tile_FromLaneOp : Tile_Op<"from_lane", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "the value that another lane holds";
  let arguments = (ins Arg<AnyTypeOf<[I32, F32]>, "each lane's value">:$value, Arg<I32, "the lane">:$lane);
  let results = (outs Res<AnyTypeOf<[I32, F32]>, "the lane's value">:$result);
  let assemblyFormat = "$value `[` $lane `]` attr-dict `:` type($value)";
}

def Tile_ReciprocalOp : Tile_Op<"reciprocal", [Pure]> {
  let summary = "1 / x for a scalar, to one unit in the last place";
  let arguments = (ins Arg<F32, "the divisor">:$x);
  let results = (outs Res<F32, "infinite where `x` is 0">:$result);
  let assemblyFormat = "$x attr-dict";
}

def Tile_PackOp : Tile_Op<"pack", [Pure]> {
  let summary = "a word of neighbouring numbers, rounded to elements of 16 or 8 bits";
  let description = [{
    Two numbers of f16 or bf16, or four of e4m3, from the low bits of the word on. They are rounded to nearest,
    ties to even. Numbers beyond the largest of e4m3 become that; a NaN stays one.
  }];
  let arguments = (ins Arg<Variadic<F32>, "numbers of a lane">:$values,
                       Arg<TypeAttr, "f16, bf16 or f8E4M3FN">:$element);
  let results = (outs Res<I32, "the elements">:$word);
  let assemblyFormat = "$values `:` $element attr-dict";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Elements and records
//===----------------------------------------------------------------------===//

def Tile_ReadOp : Tile_Op<"read", [MemoryEffects<[MemRead]>]> {
  let summary = "reads one element that no kernel of the launch writes";
  let description = [{
    With `written` the element is written: by the previous launch, and a `tile.wait_previous` precedes, or by
    this block, and a `tile.sync block` precedes.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer, Arg<I64, "element index">:$index, UnitAttr:$written);
  let results = (outs Res<AnyType, "the element">:$value);
  let assemblyFormat = "(`written` $written^)? $buffer `[` $index `]` attr-dict `:` type($buffer) `->` type($value)";
  let hasVerifier = 1;
}

def Tile_ReadAdjacentOp : Tile_Op<"read_adjacent", [MemoryEffects<[MemRead]>]> {
  let summary = "reads two or four adjacent elements of memory that launches write";
  let description = [{
    The index of the first element is a multiple of their number. If this launch may begin before the previous
    one has ended, a `tile.wait_previous` precedes.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer, Arg<I64, "index of the first">:$index);
  let results = (outs Res<Variadic<AnyType>, "the elements">:$values);
  let assemblyFormat = "$buffer `[` $index `]` attr-dict `:` type($buffer) `->` type($values)";
  let hasVerifier = 1;
}

def Tile_ReadRangeOp : Tile_Op<"read_range", [MemoryEffects<[MemRead]>]> {
  let summary = "reads an element of a CSR list and the next, as one request of the warp";
  let arguments = (ins Arg<Tile_BufferType, "i32 offsets">:$buffer, Arg<I64, "index of the first">:$index);
  let results = (outs Res<I32, "begin of the range">:$begin, Res<I32, "end of the range">:$end);
  let assemblyFormat = "$buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Tile_RecordOp : Tile_Op<"record", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "reads one record of the plan in one request";
  let description = [{
    Records have 8 integers (a task, a segment), or 16 or 32 if more fields are read, and lie consecutively.
    The fields of the record of a loop's first iteration may be known: `first` holds them, for
    `--tile-read-ahead`. With `if` nothing is read where the record does not exist, and the fields are 0.
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
  let summary = "the slot of a token, from the block table";
  let description = [{
    A row of the table has `columns` entries, and each names the page of the next `page` tokens. With `start`
    the result is the first slot of the token's page. Consecutive pages are as many slots apart as a page has
    tokens, or `apart` slots. (attn_rt/tensor/Store.h defines the formula.)
  }];
  let arguments = (ins Arg<Tile_BufferType, "the block table">:$table, Arg<I32, "row of the table">:$row,
                       Arg<I32, "token of the row">:$token, Arg<I32, "entries of a row">:$columns,
                       Arg<I64Attr, "tokens of a page">:$page,
                       Arg<Optional<I32>, "slots from one page to the next">:$apart,
                       Arg<UnitAttr, "returns the first slot of the page">:$start);
  let results = (outs Res<I32, "the slot">:$slot);
  let assemblyFormat = [{
    (`start` $start^)? $table `[` $row `,` $token `]` `columns` $columns `page` $page (`apart` $apart^)?
    attr-dict `:` type($table)
  }];
  let hasVerifier = 1;
}

def Tile_PackedSlotOp : Tile_Op<"packed_slot", [Pure]> {
  let summary = "the slot of a packed row in a tensor of rows and heads";
  let description = [{
    Packed row p of a KV head h is query row `p / group` and query head `h * group + p % group`, of `heads` in
    a row. For other tensors `pitches` gives the distances of rows and of heads in bytes; the slot then counts
    pieces of `bytes` bytes, of which both are multiples.
  }];
  let arguments = (ins Arg<I32, "the packed row">:$row, Arg<I32, "KV head that its query head reads">:$head,
                       Arg<ConfinedAttr<I64Attr, [IntPositive]>, "query heads of a KV head">:$group,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "query heads">:$heads,
                       Arg<Variadic<I32>, "from a row to the next, and from a head to the next">:$pitches,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "bytes of a piece">:$bytes);
  let results = (outs Res<AnyTypeOf<[I32, I64]>, "the slot">:$slot);
  let assemblyFormat = [{
    $row `head` $head `group` $group (`of` $heads^)? (`pitches` $pitches^)? (`bytes` $bytes^)? attr-dict `:` type($slot)
  }];
  let hasVerifier = 1;
}

def Tile_WriteOp : Tile_Op<"write", [MemoryEffects<[MemWrite]>]> {
  let summary = "this lane writes one element, rounding f32 to the buffer's element type";
  let arguments = (ins Arg<AnyType, "the value">:$value, Arg<Tile_BufferType, "the tensor">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($value) `->` type($buffer)";
  let hasVerifier = 1;
}

def Tile_WriteAdjacentOp : Tile_Op<"write_adjacent", [MemoryEffects<[MemWrite]>]> {
  let summary = "this lane writes two or four adjacent elements, rounding f32 to the buffer's element type";
  let description = [{
    The index of the first element is a multiple of their number. For f8E4M3FN, numbers of f32 are clamped to
    ±448 before they are rounded.
  }];
  let arguments = (ins Arg<Variadic<AnyType>, "the values">:$values, Arg<Tile_BufferType, "the tensor">:$buffer,
                       Arg<I64, "index of the first">:$index);
  let assemblyFormat = "$values `to` $buffer `[` $index `]` attr-dict `:` type($values) `->` type($buffer)";
  let hasVerifier = 1;
}

def Tile_AddToOp : Tile_Op<"add_to", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "this lane adds to one integer atomically";
  let arguments = (ins Arg<I32, "the addend">:$value, Arg<Tile_BufferType, "the tensor, i32">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Fragments and tiles
//===----------------------------------------------------------------------===//

def Tile_LoadVectorOp : Tile_Op<"load_vector", [SingleBlock, MemoryEffects<[MemRead]>]> {
  let summary = "reads a one-axis fragment element by element; the region maps the element's index to the buffer's";
  let arguments = (ins Arg<Tile_BufferType, "the tensor">:$buffer);
  let results = (outs Res<Tile_FragmentType, "the fragment">:$fragment);
  let regions = (region SizedRegion<1>:$index);
  let assemblyFormat = "$buffer custom<Body>($index) attr-dict `:` type($buffer) `->` type($fragment)";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [SingleBlock]> {
  let summary = "writes a fragment to global memory, rounding to the buffer's element type";
  let description = [{
    The region maps a line of the fragment (its first axis, counted from 0) to its slot, which starts at
    element `slot * stride`. Lines from `lines` on are not written, nor columns from `columns` on; `column` is
    the column of the fragment's first column. If several lanes hold an element of a one-axis fragment, the
    first of them writes it. Numbers are rounded to nearest even; for f8E4M3FN, which has no infinity, they are
    clamped to ±448 first. There lines begin at multiples of 8 elements.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32">:$fragment,
    Arg<Tile_BufferType, "the tensor: f32, or f16, bf16 or f8E4M3FN where the fragment has two axes">:$buffer,
    Arg<I32, "lines that exist">:$lines,
    Arg<Optional<I32>, "column of the fragment's first column">:$column,
    Arg<OptionalAttr<I64Attr>, "columns that exist">:$columns,
    Arg<DefaultValuedAttr<I64Attr, "1">, "elements from one slot to the next">:$stride);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $fragment `to` $buffer `lines` $lines (`column` $column^)? (`stride` $stride^)? custom<Body>($slot) attr-dict
    `:` type($fragment) `->` type($buffer)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_LoadLinesOp : Tile_Op<"load_lines", [SingleBlock, MemoryEffects<[MemRead]>]> {
  let summary = "reads a fragment that `tile.store` wrote to a tensor of f32";
  let description = [{
    The operands mean what they mean for `tile.store`. Lines from `lines` on and columns from `columns` on are
    zeros. A lane reads the elements that it wrote.
  }];
  let arguments = (ins
    Arg<Tile_BufferType, "the tensor, of f32">:$buffer,
    Arg<I32, "lines that exist">:$lines,
    Arg<Optional<I32>, "column of the fragment's first column">:$column,
    Arg<OptionalAttr<I64Attr>, "columns that exist">:$columns,
    Arg<DefaultValuedAttr<I64Attr, "1">, "elements from one slot to the next">:$stride);
  let results = (outs Res<Tile_FragmentType, "f32, one axis or two">:$fragment);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $buffer `lines` $lines (`column` $column^)? (`stride` $stride^)? custom<Body>($slot) attr-dict
    `:` type($buffer) `->` type($fragment)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_StoreLanesOp : Tile_Op<"store_lanes", [MemoryEffects<[MemWrite]>]> {
  let summary = "writes a fragment to global memory as lanes hold it";
  let description = [{
    Four registers of each lane follow those of the lane before, from element `index` on: whole lines of the cache, where
    lines of the fragment would be sectors of eight. `tile.load_lanes` of the same type reads them.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, two axes">:$fragment,
                       Arg<Tile_BufferType, "the tensor, of f32">:$buffer,
                       Arg<I64, "the warp's first element, a multiple of four">:$index);
  let assemblyFormat = "$fragment `to` $buffer `[` $index `]` attr-dict `:` type($fragment) `->` type($buffer)";
  let hasVerifier = 1;
}

def Tile_LoadLanesOp : Tile_Op<"load_lanes", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a fragment that `tile.store_lanes` wrote: each lane what it wrote itself";
  let arguments = (ins Arg<Tile_BufferType, "the tensor, of f32">:$buffer,
                       Arg<I64, "the warp's first element, a multiple of four">:$index);
  let results = (outs Res<Tile_FragmentType, "f32, two axes">:$fragment);
  let assemblyFormat = "$buffer `[` $index `]` attr-dict `:` type($buffer) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LoadFeaturesOp : Tile_Op<"load_features", [SingleBlock, MemoryEffects<[MemRead]>]> {
  let summary = "reads lines of a tensor of f16 or bf16 into an accumulator";
  let description = [{
    The region maps a line of the fragment (its first axis, counted from 0) to the tensor's element at which
    it begins, a multiple of 8. Every line is read, so the region gives lines past the last a line that exists.
    `column` is the column of the fragment's first column. Columns from `columns` on have any numbers.
  }];
  let arguments = (ins
    Arg<Tile_BufferType, "the tensor, of f16 or bf16">:$buffer,
    Arg<Optional<I32>, "column of the fragment's first column">:$column,
    Arg<OptionalAttr<I64Attr>, "columns that exist">:$columns);
  let results = (outs Res<Tile_FragmentType, "f32, two axes">:$fragment);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $buffer (`column` $column^)? custom<Body>($slot) attr-dict `:` type($buffer) `->` type($fragment)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_LoadSumsOp : Tile_Op<"load_sums", [SingleBlock, MemoryEffects<[MemRead]>]> {
  let summary = "reads sums that a previous launch has added to";
  let description = [{
    Reads sums that `tile.stage` wrote into tiles of f32 and `tile.tma_store` added: of the 32 columns of a panel,
    a lane's eight are contiguous. Lines from `lines` on repeat the last line.
  }];
  let arguments = (ins
    Arg<Tile_BufferType, "the sums, of f32">:$buffer,
    Arg<I32, "lines that exist">:$lines,
    Arg<I64Attr, "elements from one slot to the next">:$stride);
  let results = (outs Res<Tile_FragmentType, "f32, two axes">:$fragment);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $buffer `lines` $lines `stride` $stride custom<Body>($slot) attr-dict `:` type($buffer) `->` type($fragment)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_StoreScoresOp : Tile_Op<"store_scores", [SingleBlock]> {
  let summary = "writes scores of one row's heads to global memory, rounded to 16-bit integers";
  let description = [{
    Rounds `unit` times each score to an integer and clamps it to [-32767, 32767]. Stores the integer plus
    32768, unsigned. One axis of the fragment is keys, the other queries: the `group` heads of a row, and
    lines that are not written. The region maps a key, counted from 0, to its slot, which starts at element
    `slot * group`; slots of consecutive keys are `apart` slots apart. Keys from `tokens` on are not written.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "f32">:$fragment,
    Arg<F32, "the integer of a score of 1">:$unit,
    Arg<Tile_BufferType, "the tensor, i16">:$buffer,
    Arg<I32, "keys that exist">:$tokens,
    I64Attr:$group,
    I64Attr:$apart);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $fragment `times` $unit `to` $buffer `tokens` $tokens `group` $group `apart` $apart custom<Body>($slot) attr-dict
    `:` type($fragment) `->` type($buffer)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Tile_ScatterOp : Tile_Op<"scatter", [SingleBlock]> {
  let summary = "a warp writes lines of a shared tile to global memory, 16 bytes per lane";
  let description = [{
    Writes `count` lines from `line` on, but none from `end` on. The region maps a line of the tile to its
    slot, which starts at element `slot * stride`, a multiple of 16 bytes. Columns from `columns` on are not
    written.
  }];
  let arguments = (ins
    Arg<Tile_SharedType, "the tile">:$tile,
    Arg<I32, "the warp's first line">:$line,
    I64Attr:$count,
    Arg<I32, "end of the lines that exist">:$end,
    Arg<Tile_BufferType, "the tensor, of the tile's elements">:$buffer,
    Arg<OptionalAttr<I64Attr>, "columns that exist, in whole chunks of 16 bytes">:$columns,
    Arg<DefaultValuedAttr<I64Attr, "1">, "elements from one slot to the next">:$stride);
  let regions = (region SizedRegion<1>:$slot);
  let assemblyFormat = [{
    $tile `from` $line `count` $count `end` $end `to` $buffer (`stride` $stride^)? custom<Body>($slot)
    attr-dict
    `:` type($tile) `->` type($buffer)
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

#endif

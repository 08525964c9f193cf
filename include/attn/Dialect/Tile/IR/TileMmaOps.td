//===- TileMmaOps.td - MMAs, their operands and their results -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEMMAOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEMMAOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

//===----------------------------------------------------------------------===//
// Operands from shared memory
//===----------------------------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "reads lines of a shared tile as an operand of an MMA";
  let description = [{
    Reads a left operand, of elements of 8, 16 or 32 bits. Eight lines of 16-bit elements with features in
    runs can also be the right operand of an MMA whose result has eight columns.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "first line">:$line);
  let results = (outs Res<Tile_FragmentType, "as many lines as its type says">:$fragment);
  let assemblyFormat = "$tile `at` $line attr-dict `:` type($tile) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LoadRhsOp : Tile_Op<"load_rhs", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a quantized shared tile as the right operand of an MMA";
  let description = [{
    The MMA keeps the fragment's first axis and contracts its second: the tile's lines and columns, or its
    columns and lines. Kept columns may be fewer than the tile has, its first ones. Elements keep their type: floats of 8 bits, or unsigned integers of 8, 4 or 2;
    `tile.widen` converts them to elements that tensor cores multiply. Tiles of 16-bit elements need no such
    step: `tile.mma` reads them directly.

    `per n`: later operations treat groups of n features differently (`tile.part`, factors of `tile.widen`),
    so runs of features stay inside of groups.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile,
                       Arg<OptionalAttr<I64Attr>, "features of a group; by default there is one group">:$group);
  let results = (outs Res<Tile_FragmentType, "the whole tile, or its first columns">:$fragment);
  let assemblyFormat = "$tile (`per` $group^)? attr-dict `:` type($tile) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_PanelsOp : Tile_Op<"panels", [Pure]> {
  let summary = "whole panels of a shared tile, as a tile";
  let description = [{
    A view: columns of all lines from `column` on, the first column of a panel. Panels lie one after the other in
    memory. A result that is no multiple of 128 bytes wide ends with the last panel of the tile.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile, in one piece">:$tile,
                       Arg<I32, "the first column, a multiple of 128 bytes">:$column);
  let results = (outs Res<Tile_SharedType, "the columns">:$result);
  let assemblyFormat = "$tile `from` $column attr-dict `:` type($tile) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_LoadColumnsOp : Tile_Op<"load_columns", [MemoryEffects<[MemRead]>]> {
  let summary = "reads the columns of a narrow shared tile as one-axis fragments over its lines";
  let description = [{
    Serves the few numbers of each token, a line of 4, 8 or 16 bytes: one fragment per number.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile);
  let results = (outs Res<Variadic<Tile_FragmentType>, "as many as the tile has columns">:$columns);
  let assemblyFormat = "$tile attr-dict `:` type($tile) `->` type($columns)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Other elements, other layouts
//===----------------------------------------------------------------------===//

def Tile_CastOp : Tile_Op<"cast", [Pure]> {
  let summary = "rounds an accumulator to 16 bits, as an operand of the next MMA";
  let description = [{
    Rounds to nearest even. In the left operand the result costs no communication: the two layouts place
    elements alike. With the axes exchanged it becomes a right operand, by one `movmatrix` for each 8x8
    matrix.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, two axes">:$source);
  let results = (outs Res<Tile_FragmentType, "f16 or bf16, the same axes in this order or the other">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_ConvertOp : Tile_Op<"convert", [Pure]> {
  let summary = "converts a fragment to another layout, or exchanges its two axes";
  let description = [{
    Elements of 8, 16 or 32 bits move between lanes, unchanged. Between `acc` and `lhs` of 16-bit elements
    nothing moves: registers are packed or unpacked. Elements of 16 bits are transposed by `movmatrix`, one
    per 8x8 matrix, others by one exchange per element. `--tile-infer-layouts` inserts conversions where a
    value is needed in two layouts; only the program exchanges axes. There is no conversion to or from `rhs`:
    right operands come from memory.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "complete">:$source);
  let results = (outs Res<Tile_FragmentType, "the same axes, in any order, and element">:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_WidenOp : Tile_Op<"widen", [Pure, AttrSizedOperandSegments]> {
  let summary = "widens quantized elements to the 16-bit floats that an MMA multiplies";
  let description = [{
    Exact: f16 and bf16 hold every unsigned integer of 8 bits and every number of e4m3 and e5m2 (a NaN stays
    one; bf16 and f16 hold all numbers of e5m2). A factor that all elements share is not applied here: a
    factor of a whole head belongs to the scores, or to the result.

    Factors along the contracted axis (a token's factor for values) cannot wait until then. With `times` each
    element is multiplied by its column's factor, and with `plus` a term is added: in f16 or bf16, with one
    rounding of code * factor + term. n factors belong to n groups of rows of equal size.

    `blocks` are neighbouring features that share a scale of 8 bits, `count` blocks of `size` features each;
    later features belong to the last block. Words hold the scales of four blocks of a token, the first in the
    lowest byte. Each element is multiplied by its block's scale, in f16 and exactly. The scale is an e4m3
    without sign, or the power of two 2^(e8m0 - `most`), where `most` is the largest exponent of the token.

    `tiny` integers stay in the low bits of an f16, where one mask extracts them: subnormal numbers, which
    tensor cores multiply exactly. Each is its value times a power of two that its feature alone decides.
    `tile.restore` removes this power from an MMA that keeps features, `tile.balance` from the other operand
    of an MMA that contracts them. `tiny` e2m1 is 2^-14 of its number, an f16 with the same bits: the caller
    multiplies by the rest of the factor. Powers of two that blocks share contain it.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "quantized elements, a right operand">:$source,
                       Arg<Variadic<Tile_FragmentType>, "factors of columns, for each group of rows">:$scales,
                       Arg<Variadic<Tile_FragmentType>, "terms of columns, for each group of rows">:$zeros,
                       Arg<Variadic<Tile_FragmentType>, "scales of a token's blocks, four a word">:$words,
                       Arg<Optional<Tile_FragmentType>, "the largest exponent of each token">:$most,
                       Arg<OptionalAttr<Tile_BlocksAttr>, "which features share a scale">:$blocks,
                       UnitAttr:$tiny);
  let results = (outs Res<Tile_FragmentType, "f16 or bf16, the same axes">:$result);
  let assemblyFormat = [{
    (`tiny` $tiny^)? $source (`times` $scales^)? (`plus` $zeros^)? (`blocks` $blocks^ `by` $words)? (`over` $most^)?
    attr-dict `:` type($source) (`times` type($scales)^)? (`plus` type($zeros)^)? (`by` type($words)^)?
    (`over` type($most)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def Tile_RestoreOp : Tile_Op<"restore", [Pure]> {
  let summary = "removes the powers of two of tiny elements from an accumulator";
  let description = [{
    Multiplies the sum of each feature by the inverse of the power of two of `tile.widen tiny` for that
    feature. Exact, unless f32 overflows.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, features its rows, in runs">:$source, TypeAttr:$codes);
  let results = (outs Res<Tile_FragmentType, "a fragment of the same type">:$result);
  let assemblyFormat = "$source `of` $codes attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_BalanceOp : Tile_Op<"balance", [Pure]> {
  let summary = "divides queries by the powers of two of tiny elements, for an MMA that contracts features";
  let description = [{
    Divides each feature by the power of two by which its element lies further up in its half than others: an
    MMA of the result with elements of `tile.widen tiny` is 2^-24 of the MMA with the elements themselves.
    Exact, unless f16 underflows.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f16, features its columns">:$source, TypeAttr:$codes);
  let results = (outs Res<Tile_FragmentType, "a fragment of the same type">:$result);
  let assemblyFormat = "$source `for` $codes attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_NarrowOp : Tile_Op<"narrow", [Pure]> {
  let summary = "converts queries to f16 of a known magnitude";
  let description = [{
    Quantized elements widen to f16 with less work than to bf16, and f16 is as exact for numbers of similar
    size. All elements are multiplied by one power of two, which brings the largest to at least 2^13 and below
    2^14; elements 2^38 times smaller are lost. The MMA with the result must be multiplied by `factor`, the
    power's inverse. Costs a maximum over the warp.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "bf16 or f16">:$source);
  let results = (outs Res<Tile_FragmentType, "f16">:$result, Res<F32, "a power of two; uniform over the warp">:$factor);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_NarrowTileOp : Tile_Op<"narrow_tile", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "makes queries in shared memory left operands of f16, in place";
  let description = [{
    Does what `tile.narrow` does, for queries that do not fit registers, if `first` holds: once for a tile. All
    warps of the block share the work, with a `tile.sync` of the block within it and one at its end. Then the
    memory has no lines: it has 512 bytes for 16 columns of 16 rows, 16 of each lane, which are its registers
    of a left operand with features in runs of 64. `tile.load_lhs` reads them.
  }];
  let arguments = (ins Arg<Tile_SharedType, "16 queries of bf16 or f16">:$tile,
                       Arg<Tile_ScratchType, "4 bytes for each warp, which keep the largest elements">:$largest,
                       Arg<I1, "whether the tile still has lines; uniform over the block">:$first);
  let results = (outs Res<Tile_ScratchType, "the tile's memory">:$queries,
                      Res<F32, "a power of two; uniform over the block">:$factor);
  let assemblyFormat = "$tile `by` $largest `if` $first attr-dict `:` type($tile) `,` type($largest) `->` type($queries)";
  let hasVerifier = 1;
}

def Tile_LoadLhsOp : Tile_Op<"load_lhs", [MemoryEffects<[MemRead]>]> {
  let summary = "reads columns of what `tile.narrow_tile` left";
  let arguments = (ins Arg<Tile_ScratchType, "queries">:$queries,
                       Arg<ConfinedAttr<I64Attr, [IntNonNegative]>, "the first column, a multiple of 64">:$first);
  let results = (outs Res<Tile_FragmentType, "a left operand of f16, features in runs">:$fragment);
  let assemblyFormat = "$queries `from` $first attr-dict `:` type($queries) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_PartOp : Tile_Op<"part", [Pure]> {
  let summary = "some columns of an operand or of an accumulator of an MMA";
  let description = [{ Takes columns from `first` on, as many as the result has: whole blocks of 16. }];
  let arguments = (ins Arg<Tile_FragmentType, "a left or a right operand, or an accumulator">:$source,
                       Arg<ConfinedAttr<I64Attr, [IntNonNegative]>, "the first column">:$first);
  let results = (outs Res<Tile_FragmentType, "these columns">:$result);
  let assemblyFormat = "$source `from` $first attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_JoinOp : Tile_Op<"join", [Pure]> {
  let summary = "accumulators of the same rows side by side";
  let description = [{ The inverse of `tile.part` on an accumulator: columns of the sources, one after the other. }];
  let arguments = (ins Arg<Variadic<Tile_FragmentType>, "accumulators of equal sizes">:$sources);
  let results = (outs Res<Tile_FragmentType, "all columns">:$result);
  let assemblyFormat = "$sources attr-dict `:` type($sources) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// MMAs
//===----------------------------------------------------------------------===//

def Tile_MmaOp : Tile_Op<"mma", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "acc + lhs * rhs on the tensor cores, contracted over the axis that the operands share";
  let description = [{
    `lhs` is a fragment, or a shared tile read from line `line` on; `rhs` is a shared tile or a fragment. The
    axis of `rhs` that is not contracted becomes the second axis of the result. Accumulates in fp32.

    If the lines of a shared right operand are contracted, a result with fewer columns has its first columns,
    or those from `column` on: whole panels of 128 bytes.

    A result of eight columns has few rows of queries. Queries are then the right operand, and tokens or
    features, sixteen or more, the left one, so no row of an instruction is wasted. Both operands are
    fragments of layout `rhs`: two blocks of the left operand are the registers of one block of `lhs`.
  }];
  let arguments = (ins
    Arg<AnyTypeOf<[Tile_FragmentType, Tile_SharedType]>, "f16 or bf16">:$lhs,
    Arg<Optional<I32>, "first line of `lhs`, where it is a shared tile">:$line,
    Arg<AnyTypeOf<[Tile_SharedType, Tile_FragmentType]>, "the right operand, in the element type of `lhs`">:$rhs,
    Arg<Optional<I32>, "first column of the right operand, a multiple of 128 bytes">:$column,
    Arg<Tile_FragmentType, "the accumulator, f32">:$acc);
  let results = (outs Res<Tile_FragmentType, "the sum">:$result);
  let assemblyFormat = [{
    $lhs (`at` $line^)? `,` $rhs (`from` $column^)? `,` $acc attr-dict
    `:` type($lhs) `,` type($rhs) `,` type($acc) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether queries are the right operand, because they are few.
    bool transposesQueries() { return getAcc().getType().getSizes().back() == ScheduleAttr::fewRows; }
    /// The layout of a left operand in registers.
    Layout getLeftLayout() { return transposesQueries() ? Layout::Rhs : Layout::Lhs; }
    /// The operand that comes from the cache, and the operand that comes from the queries.
    ::mlir::OpOperand &getStoredOperand() { return transposesQueries() ? getLhsMutable() : getRhsMutable(); }
    ::mlir::OpOperand &getQueryOperand() { return transposesQueries() ? getRhsMutable() : getLhsMutable(); }
  }];
}

def Tile_MergeWarpsOp : Tile_Op<"merge_warps"> {
  let summary = "merges the partial softmax states of the block's warps";
  let description = [{
    Every warp holds the state (max, sum, acc) of its own keys for the same rows. All warps get the merged max
    and sum. The merged accumulator is divided over the feature axis: warp w gets the columns from
    `w * (columns of the result)` on, and columns past the accumulator's are undefined. An accumulator of
    eight columns, whose rows are features, becomes one of sixteen rows, of which the last eight are empty.
    `unit` is the factor from the max's unit to log2. Contains two block barriers; `scratch` must be free when
    it starts.
  }];
  let arguments = (ins
    Arg<Tile_FragmentType, "largest score of each row, -inf where nothing was seen">:$max,
    Arg<Tile_FragmentType, "sum of each row's weights">:$sum,
    Arg<Tile_FragmentType, "weighted sum of values; of 16 rows, or for 8 columns">:$acc,
    Arg<Tile_ScratchType, "for each warp 4 bytes per feature and row, and 8 per row">:$scratch,
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

def Tile_ReduceWarpsOp : Tile_Op<"reduce_warps"> {
  let summary = "combines a number of each row over the block's warps";
  let description = [{
    Every warp holds the number of some of the columns of the same rows. All warps get the combined numbers.
    Contains two block barriers; `scratch` must be free when it starts.
  }];
  let arguments = (ins
    Arg<Tile_Combine, "how numbers are combined">:$kind,
    Arg<Tile_FragmentType, "one f32 of each of 16 rows, equal in the lanes that share a row">:$source,
    Arg<Tile_ScratchType, "for each warp 4 bytes per row">:$scratch,
    Arg<I32, "this warp">:$warp,
    Arg<ConfinedAttr<I64Attr, [IntPositive]>, "warps of the block">:$warps);
  let results = (outs Res<Tile_FragmentType, "the numbers, combined over all warps">:$result);
  let assemblyFormat = [{
    $kind $source `warps` $warps `warp` $warp `scratch` $scratch attr-dict `:` type($source) `,` type($scratch)
    `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif

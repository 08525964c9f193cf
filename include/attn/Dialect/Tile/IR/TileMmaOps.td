//===- TileMmaOps.td - Mmas, their operands and what becomes of results ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEMMAOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEMMAOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"

//===----------------------------------------------------------------------===//
// Operands from shared memory
//===----------------------------------------------------------------------===//

def Tile_LoadOp : Tile_Op<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "reads lines of a shared tile as an operand of an mma";
  let description = [{
    The left one, of elements of 8, 16 or 32 bits; or, eight lines of 16-bit elements with features in runs, the right
    one of an mma whose result has eight columns.
  }];
  let arguments = (ins Arg<Tile_SharedType, "the tile">:$tile, Arg<I32, "first line">:$line);
  let results = (outs Res<Tile_FragmentType, "as many lines as its type says">:$fragment);
  let assemblyFormat = "$tile `at` $line attr-dict `:` type($tile) `->` type($fragment)";
  let hasVerifier = 1;
}

def Tile_LoadRhsOp : Tile_Op<"load_rhs", [MemoryEffects<[MemRead]>]> {
  let summary = "reads a shared tile of codes as the right operand of an mma";
  let description = [{
    The fragment's first axis is the one that the mma keeps, its second the one that is contracted: the tile's lines
    and columns, or its columns and lines. Elements stay what they are: floats of 8 bits, or unsigned integers of 8, 4
    or 2; `tile.widen` makes them what tensor cores multiply. Tiles of 16-bit elements need no such step: `tile.mma`
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
// Other elements, other layouts
//===----------------------------------------------------------------------===//

def Tile_CastOp : Tile_Op<"cast", [Pure]> {
  let summary = "rounds an accumulator to 16 bits, as an operand of the next mma";
  let description = [{
    Rounds to nearest even. As the left operand it costs no communication: the two layouts place elements alike. With
    the axes exchanged it becomes the right operand, by one `movmatrix` for each 8x8 matrix.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, two axes">:$source);
  let results = (outs Res<Tile_FragmentType, "f16 or bf16, the same axes in this order or the other">:$result);
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
  let summary = "converts codes to the floats of 16 bits that an mma multiplies";
  let description = [{
    Exact: f16 and bf16 hold every unsigned integer of 8 bits and every number of e4m3 and e5m2 (a NaN stays one; of
    e5m2, bf16 and f16 hold all). What scales all codes alike is no part of it: a factor that a whole head shares
    belongs to the scores, or to the result.

    Factors along the contracted axis (a token's, of values) cannot wait until then. With `times` each code is
    multiplied by its column's factor, and with `plus` a term is added: in f16 or bf16, one rounding of code * factor +
    term. n factors are those of n groups of rows, all of one size.

    `blocks` are neighbouring features that share a scale of 8 bits, `count` blocks of `size` features each; features
    behind these are of the last block. Words hold the scales of four blocks of a token, the first in the lowest byte. Each
    code is multiplied by its block's scale, in f16 and exactly: by an e4m3 without sign, or by the power of two
    2^(e8m0 - `most`), `most` being the largest exponent of the token.

    `tiny` integers stay in the low bits of an f16, where one mask finds them: numbers below its normal ones, which
    tensor cores multiply exactly. Each is its code times a power of two that its feature alone decides. `tile.restore`
    takes it out of an mma that keeps features, `tile.balance` out of what an mma that sums them is multiplied with. `tiny`
    e2m1 is 2^-14 of its number, an f16 with the same bits: whoever asks for it multiplies the rest of the factor. Powers
    of two that blocks share have it.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "codes, a right operand">:$source,
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
  let summary = "an accumulator of tiny codes as one of codes";
  let description = [{
    Multiplies what stands for each feature by the inverse of the power of two by which `tile.widen tiny` left the codes
    of that feature too small. Exact, but where f32 overflows.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f32, features its rows, in runs">:$source, TypeAttr:$codes);
  let results = (outs Res<Tile_FragmentType, "the same type">:$result);
  let assemblyFormat = "$source `of` $codes attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_BalanceOp : Tile_Op<"balance", [Pure]> {
  let summary = "queries for an mma with tiny codes, whose features it sums";
  let description = [{
    Divides each feature by the power of two by which its code lies further up in its half than others: an mma of that with
    codes of `tile.widen tiny` is 2^-24 of the mma with the codes themselves. Exact, but where f16 underflows.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "f16, features its columns">:$source, TypeAttr:$codes);
  let results = (outs Res<Tile_FragmentType, "the same type">:$result);
  let assemblyFormat = "$source `for` $codes attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_NarrowOp : Tile_Op<"narrow", [Pure]> {
  let summary = "queries as f16 of a known size";
  let description = [{
    Codes become f16 with less work than bf16, and f16 is as exact where numbers are of like size. All
    elements are multiplied by one power of two, by which the largest comes to 2^13 and less than 2^14; those 2^38
    times smaller are lost. An mma with the result is to be multiplied by `factor`, the power's inverse. Costs a maximum
    over the warp.
  }];
  let arguments = (ins Arg<Tile_FragmentType, "bf16 or f16">:$source);
  let results = (outs Res<Tile_FragmentType, "f16">:$result, Res<F32, "a power of two; uniform over the warp">:$factor);
  let assemblyFormat = "$source attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

def Tile_PartOp : Tile_Op<"part", [Pure]> {
  let summary = "some columns of an operand of an mma";
  let description = [{ From column `first` on, as many as the result has: whole blocks of 16. }];
  let arguments = (ins Arg<Tile_FragmentType, "a left or a right operand">:$source,
                       Arg<ConfinedAttr<I64Attr, [IntNonNegative]>, "the first column">:$first);
  let results = (outs Res<Tile_FragmentType, "some of its columns">:$result);
  let assemblyFormat = "$source `from` $first attr-dict `:` type($source) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Mmas
//===----------------------------------------------------------------------===//

def Tile_MmaOp : Tile_Op<"mma", [MemoryEffects<[MemRead]>]> {
  let summary = "acc + lhs * rhs on the tensor cores, contracted over the axis that the operands share";
  let description = [{
    `lhs` is a fragment, or a shared tile read from line `line` on; `rhs` a shared tile or a fragment. The axis of
    `rhs` that is not contracted becomes the second axis of the result. fp32 accumulation.

    A result of eight columns is that of few rows of queries, which are then the right operand: tokens or features,
    of which there are sixteen and more, are the left one, and no row of an instruction is wasted. Both operands are
    fragments of layout `rhs`: two blocks of the left one are the registers of one of `lhs`.
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
  let extraClassDeclaration = [{
    /// Whether queries are the right operand, because they are few.
    bool transposesQueries() { return getAcc().getType().getSizes().back() == ScheduleAttr::fewRows; }
    /// The layout of a left operand in registers.
    Layout getLeftLayout() { return transposesQueries() ? Layout::Rhs : Layout::Lhs; }
    /// The operand that is made of what a cache holds, and the one that is made of queries.
    ::mlir::OpOperand &getStoredOperand() { return transposesQueries() ? getLhsMutable() : getRhsMutable(); }
    ::mlir::OpOperand &getQueryOperand() { return transposesQueries() ? getRhsMutable() : getLhsMutable(); }
  }];
}

def Tile_MergeWarpsOp : Tile_Op<"merge_warps"> {
  let summary = "merges the partial softmax states of the block's warps";
  let description = [{
    Every warp holds the state (max, sum, acc) of its own keys for the same rows. All warps get the merged max and
    sum; the merged accumulator is dealt out over the feature axis: warp w gets the columns from
    `w * (columns of the result)` on, and columns past the accumulator's are undefined. An accumulator of eight columns,
    whose rows are features, becomes one of sixteen rows, of which the last eight are empty. `unit` is the factor from
    the max's unit to log2. Contains two block barriers; `scratch` must be free when it starts.
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

#endif

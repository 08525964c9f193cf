//===- AttnStepOps.td - An update, step by step ------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The steps of an update on one tile
// ==================================
//
// An `attn.update` says which tokens join a state. On one tile of rows and tokens it is a composition of
// steps. Each step is defined by its operands and its types alone: a lowering reads its operation and knows
// neither the kernel around it nor the other steps.
//
//   state         S = scores(q, k)   score_fn   mask
//                 m', l', P, decay = softmax_step(S, m, l)
//                 O' = accumulate(P, v) + rescale(O, decay)
//
//   gradient      S, score_fn, mask as above   P = weights(S, lse)
//                 dP = scores(do, v)           dS = score_grad(P, dP, delta)
//                 dq += accumulate(dS, k)      rows are stationary
//                 dv += accumulate(P, do)      tokens are stationary
//                 dk += accumulate(dS, q)
//
//   significance  S, score_fn, mask as above   P = weights(S, lse)   w += P
//
// The first axis of a result shows which operand is stationary: scores of `[query, key]` have queries as
// their left operand, scores of `[key, query]` have tokens. The first word of a product names the
// instructions that multiply: `mma`, those of a warp; `wgmma`, those of four warps as one, which wait for the
// result; `started`, the same instructions, whose result tile.wait_mmas returns.
//
// Quantized keys and values become factors of a product by attn.dequantize, which stands between the staged
// tile and its use. Scales stay out of the product where possible: attn.scores takes the scales of keys, and
// weights take those of values (attn.lift, attn.scale_weights).
//
// Scores enter a softmax in any unit: the `unit` of an operation is the log2 of a score of 1. Exponentials
// are powers of two (attn.softmax_step, attn.weights).
//
// These operations have a header of their own (StepOps.h): few files know them.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNSTEPOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNSTEPOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "attn/Dialect/Attn/IR/AttnVisibility.td"
include "attn/Dialect/Tile/IR/TileTypes.td"
include "attn/Dialect/Tile/IR/TileSchedule.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Attn_StepOp<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;
class Attn_Fragment<string prose> : Attn_Described<Tile_FragmentType, prose>;

class Attn_Shaped<string prose, string isShape> : Type<
  And<[Tile_FragmentType.predicate, CPred<"::mlir::attn::" # isShape # "($_self)">]>, prose, "::mlir::tile::FragmentType">;
// One number per pair of a row and a token.
class Attn_Pairs<string prose> : Attn_Shaped<prose # ", f32 with the axes query and key", "isOfPairs">;
// One number per row, or per token.
class Attn_PerRow<string prose> : Attn_Shaped<prose # ", with the axis query", "isOfRows">;
class Attn_PerRowOrPair<string prose> : Attn_Shaped<prose # ", with the axis query, and key if one per pair",
                                                   "isOfRowsOrPairs">;
class Attn_PerToken<string prose> : Attn_Shaped<prose # ", with the axis key", "isOfTokens">;
// Features of each row.
class Attn_Queries<string prose> : Attn_Shaped<prose # ", with the axes query and feature", "isOfQueries">;
// A sum over rows or tokens.
class Attn_Sum<string prose> : Attn_Shaped<prose # ", f32 with an axis of features", "isOfFeatures">;

// A shared tile, or a fragment of it.
def Attn_Factor : AnyTypeOf<[Tile_FragmentType, Tile_SharedType], "a fragment or a shared tile">;

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def Attn_ScoresOp : Attn_StepOp<"scores", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "the product of rows and tokens";
  let description = [{
    Computes `S = rows tokens^T`, contracted over features, in f32, plus `begin` if given. The operand whose
    axis comes first in the result is the left one, read from line `at` on if it is a shared tile. `scale` and
    `token_scales` multiply the product: `scale` is the factor that all quantized keys share, `token_scales`
    has one factor per token.

    `features` is given if lines are padded with zeros: asynchronous MMAs skip the padding.

    Products of output gradients and values are the same operation. Rounds as the tensor cores do, and once
    more for each factor.

    ```mlir
    %s = attn.scores mma %q, %k : !tile.fragment<[query 16, feature 128], bf16>, !keys -> <[query 16, key 64], f32>
    ```
  }];
  let arguments = (ins Attn_Mmas:$mmas, Arg<Attn_Factor, "queries, or gradients of outputs">:$rows,
                       Arg<Attn_Factor, "keys, or values">:$tokens,
                       Arg<Optional<I32>, "first line of the left operand">:$line,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "features of a line before its padding">:$features,
                       Optional<Attn_Pairs<"the addend of the product">>:$begin,
                       Arg<Optional<F32>, "a factor of all scores">:$scale,
                       Optional<Attn_PerToken<"a factor of each token, f32">>:$token_scales);
  let results = (outs Attn_Pairs<"the scores">:$scores);
  let assemblyFormat = [{
    $mmas $rows `,` $tokens (`at` $line^)? (`features` $features^)? (`plus` $begin^ `:` type($begin))? (`times` $scale^)?
    (`tokens` $token_scales^ `:` type($token_scales))? attr-dict `:` type($rows) `,` type($tokens) `->` type($scores)
  }];
  let hasVerifier = 1;
}

def Attn_GroupSumsOp : Attn_StepOp<"group_sums", [Pure]> {
  let summary = "sums of the features of each group, per row";
  let description = [{
    `attn.group_scores` multiplies zeros by these sums. A group has `group` features; without it one group has all.
    The sums come from a product with ones, so they are exact up to the order of f32 sums.
  }];
  let arguments = (ins Attn_Queries<"queries">:$rows,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "features of a group">:$group);
  let results = (outs Variadic<Attn_PerRow<"a number per row">>:$sums);
  let assemblyFormat = "$rows (`per` $group^)? attr-dict `:` type($rows) `->` type($sums)";
  let hasVerifier = 1;
}

def Attn_GroupScoresOp : Attn_StepOp<"group_scores", [Pure, AttrSizedOperandSegments]> {
  let summary = "the product of rows and tokens with scales per group of features";
  let description = [{
    `S = sum over groups g of scale[g] (rows[g] codes[g]^T) + zero[g] sum(rows[g])`, times `scale`; without
    zeros the first terms alone.
  }];
  let arguments = (ins Attn_Queries<"queries">:$rows, Attn_Fragment<"quantized elements, widened">:$tokens,
                       Variadic<Attn_PerToken<"a number per token for each group, f16 or f32">>:$scales,
                       Variadic<Attn_PerToken<"a zero per token for each group, f16">>:$zeros,
                       Variadic<Attn_PerRow<"a number per row for each group">>:$sums,
                       Arg<Optional<F32>, "a factor of all scores">:$scale,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "features of a group">:$group);
  let results = (outs Attn_Pairs<"the scores">:$scores);
  let assemblyFormat = [{
    $rows `,` $tokens `scales` $scales `:` type($scales) (`zeros` $zeros^ `:` type($zeros) `sums` $sums `:` type($sums))?
    (`times` $scale^)? (`per` $group^)? attr-dict `:` type($rows) `,` type($tokens) `->` type($scores)
  }];
  let hasVerifier = 1;
}

def Attn_AccumulateOp : Attn_StepOp<"accumulate", [MemoryEffects<[MemRead]>, AllTypesMatch<["sum", "result"]>]> {
  let summary = "adds the terms of pairs of rows and tokens to a sum over rows or tokens";
  let description = [{
    Computes `sum + pairs other`, contracted over the axis that the two share: tokens where rows are
    stationary, rows where tokens are. `pairs`, weights or gradients of scores, are rounded to the elements of
    `other`. If the sum has features first, `other` is the left operand. A sum of fewer features than `other`
    has its first features, or those from `first` on: values that are a part of their keys, and warps that
    share rows.

    ```mlir
    %o = attn.accumulate mma %p, %v into %acc : <[query 16, key 64], f32>, !keys -> <[query 16, feature 128], f32>
    ```
  }];
  let arguments = (ins Attn_Mmas:$mmas, Attn_Pairs<"a number of each pair">:$pairs,
                       Arg<Attn_Factor, "values, keys, queries, or gradients of outputs">:$other,
                       Arg<Optional<I32>, "first feature of `other`, a multiple of 128 bytes">:$first,
                       Attn_Sum<"the sum so far">:$sum);
  let results = (outs Attn_Sum<"the sum">:$result);
  let assemblyFormat = [{
    $mmas $pairs `,` $other (`from` $first^)? `into` $sum attr-dict
    `:` type($pairs) `,` type($other) `->` type($result)
  }];
}

def Attn_DequantizeOp : Attn_StepOp<"dequantize", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "dequantizes a staged tile to a factor of a product";
  let description = [{
    Loads quantized elements and widens them to the result's element, exactly. With `scales` and `zeros`, one
    of each per group of features, the result is `code * scale + zero` in f16, rounded once. `per` gives the
    number of features of a group; without it one group has all. If features come in `blocks`, `words` have
    the scales of a token's blocks, and the result is `code * scale`, exactly; scales that are powers of two
    are divided by 2^`most` (tile.widen). `tiny` leaves integers in the low bits of an f16, each times a power
    of two that its feature decides. It leaves e2m1 at 2^-14 of its number (tile.widen, tile.restore). The
    first axis of the result is the one that the product keeps.

    ```mlir
    %v = attn.dequantize %tile : <key 32, feature 64, i4> -> <[feature 64, key 32], f16>
    ```
  }];
  let arguments = (ins Arg<Tile_SharedType, "the quantized tile">:$tile,
                       Variadic<Attn_PerToken<"a scale per token for each group, f16">>:$scales,
                       Variadic<Attn_PerToken<"a zero per token for each group, f16">>:$zeros,
                       Variadic<Attn_PerToken<"scales of the token's blocks, four a word">>:$words,
                       Optional<Attn_PerToken<"the largest exponent among these scales">>:$most,
                       Arg<OptionalAttr<Tile_BlocksAttr>, "which features share a scale">:$blocks,
                       Arg<OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>, "features of a group">:$group,
                       UnitAttr:$tiny);
  let results = (outs Attn_Fragment<"numbers of 16 bits">:$result);
  let assemblyFormat = [{
    $tile (`scales` $scales^ `:` type($scales))? (`zeros` $zeros^ `:` type($zeros))?
    (`blocks` $blocks^ `by` $words `:` type($words))? (`over` $most^ `:` type($most))? (`per` $group^)? (`tiny` $tiny^)?
    attr-dict `:` type($tile) `->` type($result)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

def Attn_ScoreFnOp : Attn_StepOp<"score_fn", [RecursiveMemoryEffects, SingleBlock]> {
  let summary = "the score region of an attention, on a tile of scores";
  let description = [{
    The region is that of `attn.attend`: it takes a score, the query head and the positions of query and key.
    Scores come as products of queries and keys, and `scale` makes them the region's input. The tile's first
    token is `first`, at position `first + pos0`. Reads of tables are reads of buffers here.

    With one result, constant factors of the score merge with the scale. A tanh of a multiple of the score has
    a short form for tiles whose arguments all lie within 0.5. It is as exact as the long form: 1.3e-7.

    Further results are derivatives: by the score, and by the results of the reads whose numbers `reads` has.
    A derivative that does not exist is 0 for |x| at 0, and that of the first for a maximum of equals.
  }];
  let arguments = (ins Attn_Pairs<"products of queries and keys">:$scores, F32:$scale,
                       Attn_PerRow<"the query head of each row">:$heads,
                       Attn_PerRow<"the position of each row">:$positions,
                       Arg<I32, "the tile's first token">:$first, Arg<I32, "position of token 0">:$pos0,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$reads);
  let regions = (region SizedRegion<1>:$score);
  let results = (outs Variadic<Attn_Pairs<"scores and their derivatives">>:$results);
  let assemblyFormat = [{
    $scores `times` $scale `heads` $heads `at` $positions `tokens` $first `pos0` $pos0
    attr-dict-with-keyword $score
    `:` type($scores) `,` type($heads) `,` type($positions) `->` type($results)
  }];
  let hasRegionVerifier = 1;
}

def Attn_MaskOp : Attn_StepOp<"mask", [Pure, AttrSizedOperandSegments, AllTypesMatch<["scores", "result"]>]> {
  let summary = "scores of visible pairs, -inf elsewhere";
  let description = [{
    The tile's first token is `first`, `end` ends the tokens that exist, and the position of token 0 is
    `pos0`. `ends` are the sizes of the visibility's terms, in the order of its text. `partial` = false
    promises that every row sees all of the tile; without `partial` the lowering derives it from the rows.
    Tokens before `begin` are hidden from all rows. `front` hides only the tokens in front of those that a row
    sees, `behind` only those behind them: one compare for each pair, where a tile has only one of the two.

    ```mlir
    %m = attn.mask %s at %positions tokens %first to %end pos0 %p see window(64) ends %w if %partial : <[query 16], i32>, <[query 16, key 64], f32>
    ```
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Attn_PerRow<"the position of each row">:$positions,
                       Arg<I32, "the tile's first token">:$first, Arg<I32, "end of the tokens that exist">:$end,
                       Arg<I32, "position of token 0">:$pos0, Attn_VisibilityAttr:$visibility,
                       Arg<Variadic<I32>, "sizes of the visibility's terms">:$ends,
                       Arg<Optional<I1>, "whether some row may not see some token">:$partial,
                       Arg<Optional<I32>, "begin of the tokens that a row may see">:$begin,
                       UnitAttr:$front, UnitAttr:$behind);
  let results = (outs Attn_Pairs<"the scores">:$result);
  let assemblyFormat = [{
    $scores `at` $positions `tokens` $first `to` $end `pos0` $pos0 `see` custom<Visibility>($visibility) (`ends` $ends^)?
    (`if` $partial^)? (`begin` $begin^)? (`front` $front^)? (`behind` $behind^)?
    attr-dict `:` type($positions) `,` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_ListMaskOp : Attn_StepOp<"list_mask", [MemoryEffects<[MemRead]>, AllTypesMatch<["scores", "result"]>]> {
  let summary = "scores of visible pairs in a list of single tokens, -inf elsewhere";
  let description = [{
    Bits say which row sees which token: one word per 32 tokens and query row, `pitch` rows to a word's row of
    memory. Rows are packed, `group` heads to a query row. This warp has the packed rows from `packed` on, and
    none past `last`. `origin` is the query row of the first word.
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Arg<I32, "the tile's first token">:$first,
                       Arg<I32, "the warp's first packed row">:$packed, Arg<I32, "the last packed row that exists">:$last,
                       Arg<I32, "the query row of the first word">:$origin, Arg<Tile_BufferType, "the words">:$words,
                       ConfinedAttr<I64Attr, [IntPositive]>:$group,
                       ConfinedAttr<I64Attr, [IntPositive]>:$pitch);
  let results = (outs Attn_Pairs<"the scores">:$result);
  let assemblyFormat = [{
    $scores `tokens` $first `rows` $packed `to` $last `in` $words `from` $origin `group` $group `pitch` $pitch attr-dict
    `:` type($words) `,` type($result)
  }];
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

def Attn_SoftmaxStepOp : Attn_StepOp<"softmax_step", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "a step of the online softmax";
  let description = [{
    The monoid's step (AttnOnlineOps.td). It takes a tile of scores, the largest score `m` and the sum of
    weights `l` so far. It returns the new ones, the weights of the tile, and the factor of all older weights.

        m' = m,              where max(S) - m is at most `slack` in log2
             max(S) [+ lift] else, or max(S + lift) with a lift per pair
        P  = exp(S - m')     decay = exp(m - m')     l' = l decay + sum(P)

    `m` is a unit, not a result: weights stay below 2^slack, which 16 bits hold as exactly as weights below 1.
    `moved` says whether the unit of some row moved; otherwise the decay is 1 to the bit. Rows that have seen
    nothing have weights of 0. `lift` is the distance of the unit above the largest score (attn.lift). `largest` is
    max(S) where these scores are a part of the tile's.

    `fixed`: scores are bounded, and a row keeps the first unit that it can have. There is no decay then. A
    unit of 0 says that the row has seen nothing yet.

    ```mlir
    %m1, %l1, %p, %d, %moved = attn.softmax_step %s, %m, %l unit %log2 : <[query 16, key 64], f32>, <[query 16], f32>, <[query 16], f32, partial> -> <[query 16], f32>, <[query 16], f32, partial>, <[query 16, key 64], f32>, !tile.fragment<[query 16], f32>, i1
    ```
  }];
  let arguments = (ins Attn_Pairs<"the tile's scores">:$scores,
                       Attn_PerRow<"the unit so far">:$max, Attn_PerRow<"the sum so far, in shares of lanes">:$sum,
                       Arg<F32, "log2 of a score of 1">:$unit,
                       Optional<Attn_PerRowOrPair<"the distance of the unit above the largest score">>:$lift,
                       Optional<Attn_PerRow<"the largest scores of all of the tile, without a lift">>:$largest,
                       UnitAttr:$fixed, DefaultValuedAttr<I64Attr, "8">:$slack);
  let results = (outs Attn_PerRow<"the new unit">:$new_max, Attn_PerRow<"the new sum">:$new_sum,
                      Attn_Pairs<"the tile's weights">:$weights,
                      Optional<Attn_PerRow<"the factor of older weights">>:$decay,
                      Optional<Attn_Described<I1, "whether some decay is not 1">>:$moved);
  let assemblyFormat = [{
    (`fixed` $fixed^)? $scores `,` $max `,` $sum `unit` $unit (`lift` $lift^)?
    (`largest` $largest^ `:` type($largest))? (`slack` $slack^)? attr-dict
    `:` type($scores) `,` type($max) `,` type($sum) (`,` type($lift)^)?
    `->` type($new_max) `,` type($new_sum) `,` type($weights) (`,` type($decay)^ `,` type($moved))?
  }];
  let hasVerifier = 1;
}

def Attn_RescaleOp : Attn_StepOp<"rescale", [Pure, AllTypesMatch<["sum", "result"]>]> {
  let summary = "rescales an accumulator to a new unit";
  let description = [{
    Computes `sum * decay`, with a decay per row, where `moved`; otherwise the decay is 1 and nothing is done.

    ```mlir
    %o = attn.rescale %acc by %decay if %moved : <[query 16, feature 128], f32>, <[query 16], f32>
    ```
  }];
  let arguments = (ins Attn_Sum<"the sum so far">:$sum, Attn_PerRow<"a factor of each row">:$decay,
                       Arg<I1, "whether some factor is not 1">:$moved);
  let results = (outs Attn_Sum<"the sum in the new unit">:$result);
  let assemblyFormat = "$sum `by` $decay `if` $moved attr-dict `:` type($result) `,` type($decay)";
}

def Attn_WeightsOp : Attn_StepOp<"weights", [Pure, AllTypesMatch<["scores", "result"]>]> {
  let summary = "weights of finished rows";
  let description = [{
    Computes `P = exp(S - lse)`: no maximum is searched and no sum is kept. `lse` is in log2, and +inf for
    rows whose weights are all 0; `unit` is the log2 of a score of 1.
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Attn_PerRow<"the LSE of each row, in log2">:$lse,
                       Arg<F32, "log2 of a score of 1">:$unit);
  let results = (outs Attn_Pairs<"the weights">:$result);
  let assemblyFormat = "$scores `less` $lse `unit` $unit attr-dict `:` type($lse) `,` type($result)";
}

def Attn_ScoreGradOp : Attn_StepOp<"score_grad", [Pure, AttrSizedOperandSegments, AllTypesMatch<["weights", "result"]>]> {
  let summary = "the gradient of scores";
  let description = [{
    Computes `dS = P (dP - delta) slope`. Without `delta`, dP contains it already. Without `products` the
    result is `P slope`. `slopes` are the derivatives of a score region or of its reads. If a weight is 0
    the slope counts as 0, whatever the region returns for a pair that does not see each other.
  }];
  let arguments = (ins Attn_Pairs<"the weights P">:$weights,
                       Optional<Attn_Pairs<"the products dP of output gradients and values">>:$products,
                       Optional<Attn_PerRow<"<do, o> - dlse of each row">>:$delta,
                       Optional<Attn_Pairs<"derivatives of scores">>:$slopes);
  let results = (outs Attn_Pairs<"the gradient of scores">:$result);
  let assemblyFormat = [{
    $weights (`,` $products^ `:` type($products))? (`less` $delta^ `:` type($delta))?
    (`times` $slopes^ `:` type($slopes))? attr-dict `:` type($result)
  }];
}

//===----------------------------------------------------------------------===//
// Weights times the scales of values
//===----------------------------------------------------------------------===//

def Attn_LiftOp : Attn_StepOp<"lift", [Pure]> {
  let summary = "the distance of a row's unit above its largest score, so that weights times scales fit 16 bits";
  let description = [{
    Returns the largest magnitude among the tile's `scales`, in the unit of scores: with it weights times
    scales are below 2^8. Scales count as no less than 2^-24 in f16, its least number, and no less than 2^-64
    in f32. So sums of weights stay finite with scales of 0.

    With a result per pair, each pair has the lift of its own token. Under a numerics contract, tokens that a
    row does not see must not decide its unit.
  }];
  let arguments = (ins Attn_PerToken<"a number per token">:$scales, Arg<F32, "log2 of a score of 1">:$unit,
                       TypeAttrOf<Tile_FragmentType>:$scores_type);
  let results = (outs Attn_PerRowOrPair<"a number per row, or per pair">:$result);
  let assemblyFormat = "$scales `unit` $unit `of` $scores_type attr-dict `:` type($scales) `->` type($result)";
  let hasVerifier = 1;
}

def Attn_ScaleWeightsOp : Attn_StepOp<"scale_weights", [Pure, AllTypesMatch<["weights", "result"]>]> {
  let summary = "weights times a number per token";
  let arguments = (ins Attn_Pairs<"the weights">:$weights, Attn_PerToken<"a number per token, f16 or f32">:$tokens);
  let results = (outs Attn_Pairs<"the products">:$result);
  let assemblyFormat = "$weights `by` $tokens attr-dict `:` type($tokens) `,` type($result)";
}

#endif

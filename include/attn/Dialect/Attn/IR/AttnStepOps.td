//===- AttnStepOps.td - An update, step by step ------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The steps of an update on one tile
// ==================================
//
// An `attn.update` says which tokens join a state. On one tile of rows and tokens
// it is a composition of steps, each with its operands, its types and nothing
// else: a lowering reads its operation and knows neither the kernel around it nor
// the other steps.
//
//   state         S = scores(q, k)   score_fn   mask
//                 m', l', P, decay = softmax_step(S, m, l)
//                 O' = accumulate(P, v) + rescale(O, decay)
//
//   gradient      S, score_fn, mask as above   P = weights(S, lse)
//                 dP = scores(do, v)           dS = score_grad(P, dP, delta)
//                 dq += accumulate(dS, k)      rows are held
//                 dv += accumulate(P, do)      tokens are held
//                 dk += accumulate(dS, q)
//
//   significance  S, score_fn, mask as above   P = weights(S, lse)   w += P
//
// Which axis a result has first says what is stationary: scores of
// `[query, key]` have queries as their left operand, those of `[key, query]`
// have tokens. The first word of a product says which instructions multiply:
// `mma`, those of a warp; `wgmma`, those of four warps as one, which wait for the
// result; `started`, the same, of which tile.wait_mmas gives the result.
//
// Keys and values that are codes become factors of a product by attn.dequantize,
// which stands between the staged tile and its use. What scales codes stays out of
// the product where it can: of keys attn.scores takes it, of values weights do
// (attn.lift, attn.scale_weights).
//
// Scores enter a softmax in any unit: `unit` of an operation is what a score of 1
// is in log2. Exponentials are powers of two (attn.softmax_step, attn.weights).
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
// A number for each pair of a row and a token.
class Attn_Pairs<string prose> : Attn_Shaped<prose # ", f32 with the axes query and key", "isOfPairs">;
// A number for each row, or for each token.
class Attn_PerRow<string prose> : Attn_Shaped<prose # ", with the axis query", "isOfRows">;
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
    `S = rows tokens^T`, contracted over features, in f32; with `begin` that is added. The operand whose axis comes
    first in the result is the left one, read from line `at` on where it is a shared tile. `scale` and `token_scales`
    multiply the product: what keys that are codes share, and what each token has.

    Products of output gradients and values are the same operation. Rounds as the tensor cores do, and once more for
    each factor.

    ```mlir
    %s = attn.scores mma %q, %k : !tile.fragment<[query 16, feature 128], bf16>, !keys -> <[query 16, key 64], f32>
    ```
  }];
  let arguments = (ins Attn_Mmas:$mmas, Arg<Attn_Factor, "queries, or gradients of outputs">:$rows,
                       Arg<Attn_Factor, "keys, or values">:$tokens,
                       Arg<Optional<I32>, "first line of the left operand">:$line,
                       Optional<Attn_Pairs<"what the product is added to">>:$begin,
                       Arg<Optional<F32>, "a factor of all scores">:$scale,
                       Optional<Attn_PerToken<"a factor of each token, f32">>:$token_scales);
  let results = (outs Attn_Pairs<"the scores">:$scores);
  let assemblyFormat = [{
    $mmas $rows `,` $tokens (`at` $line^)? (`plus` $begin^ `:` type($begin))? (`times` $scale^)?
    (`tokens` $token_scales^ `:` type($token_scales))? attr-dict `:` type($rows) `,` type($tokens) `->` type($scores)
  }];
  let hasVerifier = 1;
}

def Attn_GroupSumsOp : Attn_StepOp<"group_sums", [Pure]> {
  let summary = "of each row the sum of the features of each group";
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
  let summary = "the product of rows and tokens whose groups of features have scales";
  let description = [{
    `S = sum over groups g of scale[g] (rows[g] codes[g]^T) + zero[g] sum(rows[g])`, times `scale`; without zeros the
    products alone.
  }];
  let arguments = (ins Attn_Queries<"queries">:$rows, Attn_Fragment<"codes, widened">:$tokens,
                       Variadic<Attn_PerToken<"of each group a number per token, f16 or f32">>:$scales,
                       Variadic<Attn_PerToken<"the same, f16">>:$zeros,
                       Variadic<Attn_PerRow<"of each group a number per row">>:$sums,
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
  let summary = "adds what pairs of rows and tokens give to a sum over one of them";
  let description = [{
    `sum + pairs other`, contracted over the axis that the two share: tokens where rows are stationary, rows where
    tokens are. `pairs`, weights or gradients of scores, are rounded to the elements of `other`. Where the sum has
    features first, `other` is the left operand.

    ```mlir
    %o = attn.accumulate mma %p, %v into %acc : <[query 16, key 64], f32>, !keys -> <[query 16, feature 128], f32>
    ```
  }];
  let arguments = (ins Attn_Mmas:$mmas, Attn_Pairs<"a number of each pair">:$pairs,
                       Arg<Attn_Factor, "values, keys, queries, or gradients of outputs">:$other,
                       Attn_Sum<"the sum so far">:$sum);
  let results = (outs Attn_Sum<"the sum">:$result);
  let assemblyFormat = [{
    $mmas $pairs `,` $other `into` $sum attr-dict `:` type($pairs) `,` type($other) `->` type($result)
  }];
}

def Attn_DequantizeOp : Attn_StepOp<"dequantize", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "a staged tile of codes as a factor of a product";
  let description = [{
    Codes are loaded and widened to the result's element, exactly. With `scales` and `zeros`, one of each for a group of
    features, the result is `code * scale + zero` in f16, rounded once. `per` says how many features a group has; without
    it one group has all. Where features come in `blocks`, `words` have the scales of a token's, and the result is `code *
    scale`, exactly; powers of two are divided by 2^`most` (tile.widen). `tiny` leaves integers in the low bits of an f16,
    each its code times a power of two that its feature decides, and e2m1 at 2^-14 of its number (tile.widen, tile.restore).
    The result's first axis is the one that the product keeps.

    ```mlir
    %v = attn.dequantize %tile : <key 32, feature 64, i4> -> <[feature 64, key 32], f16>
    ```
  }];
  let arguments = (ins Arg<Tile_SharedType, "the codes">:$tile,
                       Variadic<Attn_PerToken<"of each group a number per token, f16">>:$scales,
                       Variadic<Attn_PerToken<"the same">>:$zeros,
                       Variadic<Attn_PerToken<"scales of its blocks, four a word">>:$words,
                       Optional<Attn_PerToken<"the largest exponent among them">>:$most,
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
    The region is that of `attn.attend`: it takes a score, the query head and the positions of query and key. Scores
    come as products of queries and keys, and `scale` makes them what the region takes; token `first` is the tile's
    first, and its position `first + pos0`. What the region reads of tables are reads of buffers here.

    With one result constant factors of the score merge with the scale, and a tanh of a multiple of the score has a
    short form where all arguments of a warp's tile lie within 0.5, as exact as the long one: 1.3e-7.

    Further results are derivatives: by the score, and by what those reads find whose numbers `reads` has. Where a
    function has no derivative it is 0 of |x| at 0, and of a maximum of equals that of the first.
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
  let summary = "scores of what rows see; of all else -inf";
  let description = [{
    Token `first` is the tile's first, `end` ends those that exist, and the position of token 0 is `pos0`. `ends` are
    the sizes of the visibility's terms, in the order of its text. `partial` = false promises that every row sees all
    of the tile; without it the lowering finds that out from the rows.

    ```mlir
    %m = attn.mask %s at %positions tokens %first to %end pos0 %p see window(64) ends %w if %partial : <[query 16], i32>, <[query 16, key 64], f32>
    ```
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Attn_PerRow<"the position of each row">:$positions,
                       Arg<I32, "the tile's first token">:$first, Arg<I32, "end of the tokens that exist">:$end,
                       Arg<I32, "position of token 0">:$pos0, Attn_VisibilityAttr:$visibility,
                       Arg<Variadic<I32>, "sizes of the visibility's terms">:$ends,
                       Arg<Optional<I1>, "whether some row may not see some token">:$partial);
  let results = (outs Attn_Pairs<"the scores">:$result);
  let assemblyFormat = [{
    $scores `at` $positions `tokens` $first `to` $end `pos0` $pos0 `see` custom<Visibility>($visibility) (`ends` $ends^)?
    (`if` $partial^)? attr-dict `:` type($positions) `,` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_ListMaskOp : Attn_StepOp<"list_mask", [MemoryEffects<[MemRead]>, AllTypesMatch<["scores", "result"]>]> {
  let summary = "scores of what rows see of a list of single tokens; of all else -inf";
  let description = [{
    Bits say which row sees which token: a word for 32 tokens and a query row, `pitch` rows to a word's row of memory.
    Rows are packed, `group` heads to a query row. This warp has the packed rows from `packed` on, and none behind
    `last`. `origin` is the query row of the first word.
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Arg<I32, "the tile's first token">:$first,
                       Arg<I32, "the warp's first packed row">:$packed, Arg<I32, "the last one that exists">:$last,
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

def Attn_SoftmaxStepOp : Attn_StepOp<"softmax_step", [Pure, AttrSizedResultSegments]> {
  let summary = "a step of the online softmax";
  let description = [{
    The monoid's step (AttnOnlineOps.td): from a tile of scores and the largest score `m` and the sum of weights `l` so
    far it makes the new ones, the weights of the tile and what all older weights are to be multiplied by.

        m' = m,              where max(S) - m is at most `slack` in log2
             max(S) [+ lift] else
        P  = exp(S - m')     decay = exp(m - m')     l' = l decay + sum(P)

    `m` is a unit, not a result: weights stay below 2^slack, which 16 bits hold as exactly as those below 1, and `moved`
    says whether the unit of some row moved; else the decay is 1 to the bit. Rows that have seen nothing have weights of
    0. `lift` is how far above the largest score the unit is to be (attn.lift).

    `fixed`: scores are bounded, and a row keeps the first unit that it can have. There is no decay then. A unit of 0
    says that the row has seen nothing yet.

    ```mlir
    %m1, %l1, %p, %d, %moved = attn.softmax_step %s, %m, %l unit %log2 : <[query 16, key 64], f32>, <[query 16], f32>, <[query 16], f32, partial> -> <[query 16], f32>, <[query 16], f32, partial>, <[query 16, key 64], f32>, !tile.fragment<[query 16], f32>, i1
    ```
  }];
  let arguments = (ins Attn_Pairs<"the tile's scores">:$scores,
                       Attn_PerRow<"the unit so far">:$max, Attn_PerRow<"the sum so far, shares of lanes">:$sum,
                       Arg<F32, "log2 of a score of 1">:$unit,
                       Optional<Attn_PerRow<"how much higher than the largest score a unit is">>:$lift,
                       UnitAttr:$fixed, DefaultValuedAttr<I64Attr, "8">:$slack);
  let results = (outs Attn_PerRow<"the new unit">:$new_max, Attn_PerRow<"the new sum">:$new_sum,
                      Attn_Pairs<"the tile's weights">:$weights,
                      Optional<Attn_PerRow<"what older weights are multiplied by">>:$decay,
                      Optional<Attn_Described<I1, "whether some decay is not 1">>:$moved);
  let assemblyFormat = [{
    (`fixed` $fixed^)? $scores `,` $max `,` $sum `unit` $unit (`lift` $lift^)? (`slack` $slack^)? attr-dict
    `:` type($scores) `,` type($max) `,` type($sum) (`,` type($lift)^)?
    `->` type($new_max) `,` type($new_sum) `,` type($weights) (`,` type($decay)^ `,` type($moved))?
  }];
  let hasVerifier = 1;
}

def Attn_RescaleOp : Attn_StepOp<"rescale", [Pure, AllTypesMatch<["sum", "result"]>]> {
  let summary = "brings what was accumulated to a new unit";
  let description = [{
    `sum * decay`, of each row its own, where `moved`; else the decay is 1 and nothing is done.

    ```mlir
    %o = attn.rescale %acc by %decay if %moved : <[query 16, feature 128], f32>, <[query 16], f32>
    ```
  }];
  let arguments = (ins Attn_Sum<"the sum so far">:$sum, Attn_PerRow<"a factor of each row">:$decay,
                       Arg<I1, "whether some factor is not 1">:$moved);
  let results = (outs Attn_Sum<"the same in the new unit">:$result);
  let assemblyFormat = "$sum `by` $decay `if` $moved attr-dict `:` type($result) `,` type($decay)";
}

def Attn_WeightsOp : Attn_StepOp<"weights", [Pure, AllTypesMatch<["scores", "result"]>]> {
  let summary = "weights of finished rows";
  let description = [{
    `P = exp(S - lse)`: no maximum is looked for and no sum is kept. `lse` is in log2, and +inf of rows whose weights are
    all 0; `unit` is what a score of 1 is there.
  }];
  let arguments = (ins Attn_Pairs<"scores">:$scores, Attn_PerRow<"the LSE of each row, in log2">:$lse,
                       Arg<F32, "log2 of a score of 1">:$unit);
  let results = (outs Attn_Pairs<"the weights">:$result);
  let assemblyFormat = "$scores `less` $lse `unit` $unit attr-dict `:` type($lse) `,` type($result)";
}

def Attn_ScoreGradOp : Attn_StepOp<"score_grad", [Pure, AttrSizedOperandSegments, AllTypesMatch<["weights", "result"]>]> {
  let summary = "the gradient of scores";
  let description = [{
    `dS = P (dP - delta) slope`. Without `delta` dP has it already. Without `products` it is `P slope`. `slopes` are
    those of a score region or of what it reads; where a weight is 0 the slope counts as 0, whatever number the region
    gives of a pair that does not see each other.
  }];
  let arguments = (ins Attn_Pairs<"the weights P">:$weights,
                       Optional<Attn_Pairs<"the products dP of output gradients and values">>:$products,
                       Optional<Attn_PerRow<"of each row <do, o> - dlse">>:$delta,
                       Optional<Attn_Pairs<"derivatives of scores">>:$slopes);
  let results = (outs Attn_Pairs<"the gradient of scores">:$result);
  let assemblyFormat = [{
    $weights (`,` $products^ `:` type($products))? (`less` $delta^ `:` type($delta))?
    (`times` $slopes^ `:` type($slopes))? attr-dict `:` type($result)
  }];
}

//===----------------------------------------------------------------------===//
// Weights that take what scales values
//===----------------------------------------------------------------------===//

def Attn_LiftOp : Attn_StepOp<"lift", [Pure]> {
  let summary = "how far above its largest score a row's unit is to be, for weights times scales to fit 16 bits";
  let description = [{
    The largest magnitude among the tile's `scales`, in the unit of scores: with it weights times scales are below 2^8.
    Scales count as no less than 2^-24 in f16, the least that it holds, and no less than 2^-64 in f32, so that sums of
    weights stay finite beside scales of 0.
  }];
  let arguments = (ins Attn_PerToken<"a number per token">:$scales, Arg<F32, "log2 of a score of 1">:$unit,
                       TypeAttrOf<Tile_FragmentType>:$scores_type);
  let results = (outs Attn_PerRow<"a number per row">:$result);
  let assemblyFormat = "$scales `unit` $unit `of` $scores_type attr-dict `:` type($scales) `->` type($result)";
  let hasVerifier = 1;
}

def Attn_ScaleWeightsOp : Attn_StepOp<"scale_weights", [Pure, AllTypesMatch<["weights", "result"]>]> {
  let summary = "weights times a number of each token";
  let arguments = (ins Attn_Pairs<"the weights">:$weights, Attn_PerToken<"a number per token, f16 or f32">:$tokens);
  let results = (outs Attn_Pairs<"their products">:$result);
  let assemblyFormat = "$weights `by` $tokens attr-dict `:` type($tokens) `,` type($result)";
}

#endif

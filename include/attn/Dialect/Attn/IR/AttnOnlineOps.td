//===- AttnOnlineOps.td - The online level -----------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Partial softmax is a monoid
// ===========================
//
// The softmax of a row seems to need all scores at once: the weight of a token divides by a sum over every
// token. It does not. Keep for the set S of tokens seen so far
//
//   m   = max of s(t) over S            -inf for the empty set
//   l   = sum of exp(s(t) - m)          0
//   acc = sum of exp(s(t) - m) v(t)     0
//
// and two disjoint sets are joined without looking at a single token again:
//
//   m   = max(a.m, b.m)
//   l   = a.l   * exp(a.m - m) + b.l   * exp(b.m - m)
//   acc = a.acc * exp(a.m - m) + b.acc * exp(b.m - m)      exp(-inf - m) = 0
//
// A state *denotes* the pair (sum exp(s), sum exp(s) v). m is a choice of unit that keeps both in range, as
// an exponent does in a floating-point number. On the denoted pairs, merge is addition of vectors, so:
//
//   identity      merge(a, empty) = a, to the bit: the other factor is exp(0) = 1
//   commutative   merge(a, b) = merge(b, a), to the bit: max and + are
//   associative   in real arithmetic; in f32 the grouping moves rounding, by about
//                 one ulp of l and acc per merge
//
// and therefore regions, splits of a region, tree nodes, tiles, warps, blocks and machines may be visited in
// any order and grouping. The whole compiler rests on it: a *chain* of updates is a loop that keeps one state
// in registers, a *merge* is where two loops may run at once. Which of the two is wanted is a scheduling
// decision, and the rewrites below go from one to the other without a change of meaning. Since the grouping
// moves rounding, a plan fixes it: same plan, same bits.
//
// A learned sink is one more token, with a score and a zero value: the state (m = logit, l = 1, acc = 0). It
// starts one chain and no other. A state in memory may be stored as (acc / l, m + log l), normalised output
// and LSE: the unit is then chosen so that l = 1, and the same merge applies. So `lse` is enough to merge
// across kernels and machines.
//
// finish is a homomorphism out of the monoid, not part of it: it divides, and
// nothing can be merged after the division unless the LSE is kept.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNONLINEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNONLINEOPS_TD

include "attn/Dialect/Attn/IR/AttnHeadClasses.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "attn/Dialect/Attn/IR/AttnVisibility.td"

def Attn_InitOp : Attn_Op<"init", [Pure]> {
  let summary = "the state before any token was seen";
  let description = [{
    Without `sinks`, returns the identity of `attn.merge`: `m = -inf, l = 0, acc = 0`. With `sinks`, returns
    the state of one token of score `sinks[head]` and value zero: `m = sinks[head], l = 1, acc = 0`. Exact.
    `query` only gives the number of rows.

    ```mlir
    %s0 = attn.init %q sinks %logits : !q, tensor<32xf32> -> !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "the query rows whose state this is">:$query,
    Optional<Attn_Described<AnyRankedTensor, "a logit per query head, f32">>:$sinks);
  let results = (outs Attn_Described<Attn_StateType, "the state">:$state);
  let assemblyFormat = [{
    $query (`sinks` $sinks^)? attr-dict `:` type($query) (`,` type($sinks)^)? `->` qualified(type($state))
  }];
  let extraClassDeclaration = [{
    /// Whether this is the identity of the monoid.
    bool isIdentity() { return !getSinks(); }
  }];
  let hasVerifier = 1;
}

def Attn_UpdateOp : Attn_Op<"update", [Pure, AllTypesMatch<["state", "result"]>]> {
  let summary = "folds the visible tokens of one region into a state";
  let description = [{
    `update(a, R) = merge(a, update(init, R))`, exactly so in real arithmetic.
    Inside, the tokens of R come in tiles, each merged into the running state (the *online softmax*). The
    order of tiles and the grouping change only rounding. A region without visible tokens leaves the state
    unchanged, to the bit. Scale, head classes and score region are those of `attn.attend`.

    On a gradient (`AttnGradientOps.td`) it adds the terms of the rows and the region's tokens, and on a
    significance (`AttnSignificanceOps.td`) the rows' weights of those tokens.

    ```mlir
    %s1 = attn.update %s0, %q, %kv see causal scale 0.08838835 : !q, !cache -> !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType, Attn_SignificanceType]>, "the state, gradient or significance so far">:$state,
    Attn_Described<AnyRankedTensor, "the query rows">:$query,
    Attn_Described<Attn_KVType, "the region">:$kv,
    Attn_VisibilityAttr:$visibility,
    OptionalAttr<Attn_RegionClassAttr>:$region_class,
    Optional<Attn_ClassesTensor>:$classes,
    OptionalAttr<Attn_HeadClassesAttr>:$head_classes,
    Attn_ScaleAttr:$scale);
  let results = (outs
    Attn_Described<AnyTypeOf<[Attn_StateType, Attn_GradientType, Attn_SignificanceType]>, "the state, gradient or significance with the region's tokens">:$result);
  let regions = (region MaxSizedRegion<1>:$score);
  let assemblyFormat = [{
    $state `,` $query `,` $kv `see` custom<Visibility>($visibility) (`for` custom<ClassName>($region_class)^)?
    (`heads` $classes^ custom<HeadClasses>($head_classes))? `scale` custom<Scale>($scale) (`score` $score^)?
    attr-dict `:` type($query) `,` qualified(type($kv)) (`,` type($classes)^)? `->` qualified(type($result))
  }];
  let extraClassDeclaration = [{
    /// KV heads of the attention, of which the region may hold only a part.
    int64_t getKVHeads();
    /// The number of the class whose heads alone the region holds; none: the region holds all heads.
    std::optional<unsigned> getClassOfRegion();
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasFolder = 1;
}

def Attn_MergeOp : Attn_Op<"merge", [Pure, Commutative, AllTypesMatch<["lhs", "rhs", "result"]>]> {
  let summary = "joins the states of two disjoint sets of tokens";
  let description = [{
    Commutative, and an `attn.init` without sinks is its identity, both to the bit. Associative in real
    arithmetic, in f32 up to rounding. Both states belong to the same query rows.

    Canonicalization: a merge with the identity is the other state. A merge with a chain that starts at the
    identity and has no other use continues the chain instead (`merge(a, update(init, R))` becomes
    `update(a, R)`). The second rewrite regroups and so moves rounding.

    ```mlir
    %s = attn.merge %a, %b : !attn.state<heads = 32, value_dim = 128>
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_StateType, "one state">:$lhs,
    Attn_Described<Attn_StateType, "another state">:$rhs);
  let results = (outs Attn_Described<Attn_StateType, "the state of the union">:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` qualified(type($result))";
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def Attn_FinishOp : Attn_Op<"finish", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "turns a state into output and LSE";
  let description = [{
    `o = acc / l`, rounded once to the output's element type, and
    `lse = m + log(l)`; exact zeros and -inf where `l = 0`.

    With `gate`, the output is multiplied by the gate's sigmoid before it is rounded. With `output_scale`, it is
    then divided by the scale, clamped to ±448 and rounded to f8E4M3FN. With `output_scales` among the results,
    the scale is that of the row and head, made of its output.

    In a kernel, `rows` and `sinks` name the rows of the state and the sinks that they count, and `attn.write`
    has the gate and the scale, and says whether it writes scales.

    ```mlir
    %o, %lse = attn.finish %s : !attn.state<heads = 32, value_dim = 128> -> !q, tensor<?x32xf32>

    %o = attn.finish %s gate %g : !attn.state<heads = 32, value_dim = 128> gate !q -> !q

    %o, %scales = attn.finish %s : !attn.state<heads = 32, value_dim = 128>
      -> tensor<?x32x128xf8E4M3FN> output_scales tensor<?x32xf32>
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_StateType, "the state of all tokens">:$state,
    Optional<Attn_Described<AnyRankedTensor, "the rows">>:$rows,
    Optional<Attn_Described<AnyRankedTensor, "a logit per query head, f32">>:$sinks,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads, value_dim]` or `[rows, q_heads]`">>:$gate,
    Optional<Attn_Described<AnyRankedTensor, "the scale of an output of f8E4M3FN, `[1]`, f32">>:$output_scale);
  let results = (outs
    Attn_Described<AnyRankedTensor, "`[rows, q_heads, value_dim]`, f16, bf16 or f8E4M3FN">:$output,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads]` f32, natural logarithm">>:$lse,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads]` f32, the scales of an output of f8E4M3FN">>:$output_scales);
  let assemblyFormat = [{
    $state (`of` $rows^)? (`sinks` $sinks^)? (`gate` $gate^)? (`output_scale` $output_scale^)? attr-dict
    `:` qualified(type($state)) (`of` type($rows)^)? (`sinks` type($sinks)^)? (`gate` type($gate)^)?
    (`output_scale` type($output_scale)^)? `->` type($output) (`,` type($lse)^)?
    (`output_scales` type($output_scales)^)?
  }];
  let builders = [OpBuilder<(ins "::mlir::Type":$output, "::mlir::Type":$lse, "::mlir::Type":$output_scales,
                                 "::mlir::Value":$state, "::mlir::Value":$gate, "::mlir::Value":$output_scale)>];
  let hasVerifier = 1;
}

#endif

//===- AttnOps.td - The problem level ----------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The root of the dialect's TableGen. This file has attention at the problem level. AttnCacheOps.td has
// operations on caches, AttnOnlineOps.td the online level, AttnGradientOps.td gradients and
// AttnSignificanceOps.td significance. AttnKernelOps.td has the operations in a kernel's loops, AttnRowOps.td
// those of kernels that copy rows. Two files have roots of their own: AttnPageOps.td, with operations on
// tables of pages, and AttnStepOps.td, with the steps of an update on a tile.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNOPS_TD

include "attn/Dialect/Attn/IR/AttnDialect.td"
include "attn/Dialect/Attn/IR/AttnHeadClasses.td"
include "attn/Dialect/Attn/IR/AttnTypes.td"
include "attn/Dialect/Attn/IR/AttnVisibility.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_ScaleAttr : ConfinedAttr<F32Attr, []> {
  let summary = "factor of Q K^T, f32, positive and finite; without it attend uses 1/sqrt(dim)";
}

def Attn_RegionClassAttr : ConfinedAttr<StrAttr, []> {
  let summary = "the head class that alone sees the region, and whose heads its store holds";
}

def Attn_RegionClassesAttr : ConfinedAttr<StrArrayAttr, []> {
  let summary = "for each region the head class that alone sees it, or the empty string";
}

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<Attn_Dialect, mnemonic, traits>;

def Attn_AttendOp : Attn_Op<"attend", [Pure, AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "query rows attend to a set of KV regions";
  let description = [{
    For every query row `r` and head `h`, over the tokens `t` of all regions together that the row sees:

    ```
    s(t)   = score(scale * <q[r, h], k(t)>)            // f32 and exact at heart
    lse    = log(sum_t exp(s(t)) [+ exp(sinks[h])])    // natural logarithm
    o[r,h] = sum_t exp(s(t) - lse) * v(t) [* 1 / (1 + exp(-gate[r,h]))]
    ```

    A row sees a token if the row lies in the range of rows of the token's instance and the region's
    visibility admits the two positions. A row that sees nothing, or whose scores are all -inf, gives exact
    zeros, and an `lse` of -inf (of the sink's logit if there is one).

    Query head `h` reads KV head `h / (q_heads / kv_heads)`; any whole ratio is
    legal. Regions may differ in store, in how many instances they have and in
    visibility; heads, dimensions and element types agree.

    *Head classes* (`heads`) narrow the visibility of some KV heads, and of the query heads that read them. A
    region may belong to one class alone: `AttnHeadClasses.td`.

    *The score region* changes a score before the softmax: a soft cap, ALiBi, an additive bias, a mask (-inf).
    It is called for every visible pair with the scaled score, the query head and both positions, and yields
    the new score. It may hold `attn.read`, `math.tanh`, `exp`, `exp2`, `log`, `log2`, `absf`, `sqrt`, `fma`,
    and scalar `arith` operations on f32, i32 and i1. Integer division, remainder and shifts need a legal
    constant; on i1 only and, or, xor, select and conversions are legal. From outside it may use constants,
    and tensors through `attn.read`. It must not yield NaN or +inf. Factors may be merged with each other and
    with `scale`.

    *A gate* (`gate`) multiplies each output by the sigmoid of a number: one for each feature of the output, or
    one for each row and head. The product is f32, before the output is rounded, once for each row. The LSE
    does not change. A gate of -inf gives zeros, and so does one so low that its sigmoid is below 2^-126.

    *A scale of outputs* (`output_scale`) makes outputs f8E4M3FN. In f32, and after the gate, they are multiplied
    by the scale's reciprocal, clamped to ±448 and rounded to nearest even, once for each row. A NaN stays a NaN.
    The scale is positive, one number for the tensor. The LSE does not change.

    *Scales of outputs* (`output_scales`) are a result instead: f32, one for each row and head. A scale is the
    largest size of the head's features in f32, after the gate and at least 1e-10, divided by 448. A row that
    sees nothing has codes of 0 and the scale 1e-10 / 448. A value has at most 256 features.

    *Numerics.* Scores and the softmax are f32. MMAs multiply in the operands' element type and accumulate in
    f32; weights are rounded to the values' element type before the second MMA. Against float64 on the stored
    inputs, the largest relative error of a row and head is at most 1e-3 for f16 and 8e-3 for bf16. The error
    of `lse` is at most 2e-3 absolute. For d < 32 features of a value the bound is 32/d times larger: the norm
    of few features is by chance small beside the values. *Approximate functions:* a `math.tanh` marked
    `fastmath<afn>` may become `tanh.approx.f32`, whose documented relative error is 2^-11. After a soft cap
    of at most 50 that moves a score by up to 0.025, and the tolerance of such an op is 3e-2.
    `usesApproximateFunctions` in `Score.h` tells whether an op has one.

    *Range.* A score is an f32, so a score of size s is known to s * 2^-24 at best, and its weight to that
    relative error. The tolerances, that of `lse` included, are for scores up to 1000 or so. Beyond, outputs
    are as exact as the remaining difference of two scores. If the type of values is f16, scores must stay
    below 9e7 in size (1.5e9 for bf16): above that the rounding of s * log2(e) alone moves a weight out of the
    type's range, and a row may become zero or NaN.

    Visible queries, keys and values should be finite. A row that sees a score of NaN or +inf has NaN in its
    output and its `lse`, in this head, no matter how its keys were split. Keys that a row does not see may
    hold anything. Values may not: a value of infinity or NaN can put NaN into its feature in rows that do not
    see it. This happens where another row of the same tile sees a token of the same tile of keys. Masked
    weights are zeros, and zero times infinity is NaN. Memory without tokens (past an instance's last token,
    in pages that no table lists) may hold anything.

    ```mlir
    %o, %lse = attn.attend %q over (%context see all), (%response see causal) scale 0.08838835
        : !q, !dense, !cache -> !q, tensor<?x32xf32>

    %o = attn.attend %q over (%kv see causal)
        heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)}
        : !q, !cache, tensor<8xi32> -> !q

    %o = attn.attend %q over (%kv see causal) score {
      ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
        %t = math.absf %s : f32
        attn.yield %t : f32
      } : !q, !cache -> !q

    %o = attn.attend %q over (%kv see causal) gate %gate : !q, !cache, !q -> !q

    %o = attn.attend %q over (%kv see causal) output_scale %scale
      : !q, !cache, tensor<1xf32> -> tensor<?x32x128xf8E4M3FN>

    %o, %scales = attn.attend %q over (%kv see causal)
      : !q, !cache -> tensor<?x32x128xf8E4M3FN> output_scales tensor<?x32xf32>
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "query rows `[rows, q_heads, dim]`, f16 or bf16, rows dynamic">:$query,
    Variadic<Attn_Described<Attn_KVType, "the regions, one or more">>:$kv,
    Attn_VisibilityArrayAttr:$visibility,
    OptionalAttr<Attn_RegionClassesAttr>:$region_classes,
    Optional<Attn_ClassesTensor>:$classes,
    OptionalAttr<Attn_HeadClassesAttr>:$head_classes,
    OptionalAttr<Attn_ScaleAttr>:$scale,
    Optional<Attn_Described<AnyRankedTensor, "a logit per query head, f32, that joins the softmax and carries no value">>:$sinks,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads, value_dim]` or `[rows, q_heads]` in the query's element type: outputs are multiplied by its sigmoid">>:$gate,
    Optional<Attn_Described<AnyRankedTensor, "`[1]` f32: outputs are divided by it, and f8E4M3FN">>:$output_scale);
  let results = (outs
    Attn_Described<AnyRankedTensor, "`[rows, q_heads, value_dim]` in the query's element type, or f8E4M3FN with a scale or scales">:$output,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads]` f32 (or `tensor<?x?xf32>`), natural logarithm, -inf where a row sees nothing">>:$lse,
    Optional<Attn_Described<AnyRankedTensor, "`[rows, q_heads]` f32: an output is its code times this">>:$output_scales);
  let regions = (region MaxSizedRegion<1>:$score);
  let assemblyFormat = [{
    $query `over` custom<Regions>($kv, $visibility, $region_classes) (`heads` $classes^ custom<HeadClasses>($head_classes))?
    (`scale` custom<Scale>($scale)^)? (`sinks` $sinks^)? (`gate` $gate^)? (`output_scale` $output_scale^)? (`score` $score^)? attr-dict
    `:` custom<AttendTypes>(ref($kv), ref($classes), ref($sinks), ref($gate), ref($output_scale), type($query),
                            type($kv), type($classes), type($sinks), type($gate), type($output_scale),
                            type($output), type($lse), type($output_scales))
  }];
  let extraClassDeclaration = [{
    /// The KV regions, one value each.
    OperandRange getRegions() { return getKv(); }

    RankedTensorType getQueryType() { return cast<RankedTensorType>(getQuery().getType()); }
    RankedTensorType getOutputType() { return cast<RankedTensorType>(getOutput().getType()); }
    KVType getRegionType(unsigned i) { return cast<KVType>(getRegions()[i].getType()); }
    VisibilityAttr getRegionVisibility(unsigned i) { return cast<VisibilityAttr>(getVisibility()[i]); }

    int64_t getQueryHeads() { return getQueryType().getDimSize(1); }
    /// KV heads of a region that holds them all, or the number that `classes` assigns.
    int64_t getKVHeads();
    /// The class that alone sees a region; null: all heads see it.
    StringAttr getRegionClass(unsigned i);
    LogicalResult verifyRegion(unsigned i);
    int64_t getKeyDim() { return getRegionType(0).getKeyDim(); }
    int64_t getValueDim() { return getRegionType(0).getValueDim(); }

    /// The scale, or 1/sqrt(key dim) if the text gives none.
    FloatAttr getScaleOrDefault();
    static FloatAttr getDefaultScale(MLIRContext *context, int64_t keyDim);
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Attn_ReadOp : Attn_Op<"read", [Pure]> {
  let summary = "reads one element of a tensor argument in a score region";
  let description = [{
    A bias, ALiBi's slopes or any table reaches a score through this operation. Each index is clamped into the
    extent of its dimension, `max(0, min(i, extent - 1))`, because a tile may evaluate the region past the end
    of an instance.

    ```mlir
    %o = attn.attend %q over (%kv see causal) score {
      ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
        %slope = attn.read %slopes[%head] : tensor<32xf32>
        %t = arith.mulf %s, %slope : f32
        attn.yield %t : f32
      } : !q, !cache -> !q
    ```
  }];
  let arguments = (ins
    Attn_Described<AnyRankedTensor, "f32, an argument of the function">:$tensor,
    Arg<Variadic<I32>, "one index per dimension">:$indices);
  let results = (outs Res<F32, "the element">:$element);
  let assemblyFormat = "$tensor `[` $indices `]` attr-dict `:` type($tensor)";
  let hasVerifier = 1;
}

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, ParentOneOf<["AttendOp", "UpdateOp", "ScoreFnOp"]>]> {
  let summary = "ends a score region with the new score";
  let arguments = (ins Arg<F32, "the score that enters the softmax">:$score);
  let assemblyFormat = "$score attr-dict `:` type($score)";
}

include "attn/Dialect/Attn/IR/AttnCacheOps.td"
include "attn/Dialect/Attn/IR/AttnOnlineOps.td"
include "attn/Dialect/Attn/IR/AttnGradientOps.td"
include "attn/Dialect/Attn/IR/AttnSignificanceOps.td"
include "attn/Dialect/Attn/IR/AttnKernelOps.td"
include "attn/Dialect/Attn/IR/AttnRowOps.td"

#endif

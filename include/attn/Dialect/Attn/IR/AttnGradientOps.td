//===- AttnGradientOps.td - Gradients at the online level ---*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradient of a chain
// =======================
//
// With s(t) the scores of a row, p(t) = exp(s(t) - lse) its weights and o = sum
// p(t) v(t), the gradients of a loss that has do of the output and dlse of the LSE
// are, for a row and a token that see each other,
//
//   dp(t) = <do, v(t)>                 delta = <do, o> - dlse, of the row
//   ds(t) = p(t) (dp(t) - delta)
//   dv(t) += p(t) do                   of all rows and heads of the group
//   dq    += scale ds(t) k(t)          of all tokens
//   dk(t) += scale ds(t) q             of all rows and heads of the group
//
// A finished row needs its LSE and delta and nothing else: p follows from a score
// alone, so that no maximum is looked for and no sum is kept. What is left are sums,
// over tokens for a row and over rows for a token. So the chain that made the
// output, update for update, makes its gradient with another thing to add up:
//
//   %g0 = attn.init_gradient %q : ...               zeros
//   %g1 = attn.update %g0, %q, %kv see causal ...   the same update
//   attn.write_gradient %g1 of %q : ...
//
// in a kernel that holds rows and walks the tokens they see, and, for each region,
// in one that holds tokens and walks the rows that see them. Neither adds to
// memory that another adds to: each element of a gradient has one writer, and the
// order of its terms is that of a loop.
//
// Both make ds, from scores and dp of their own. Kernels that hold tokens may add to
// the rows' gradient, too, in memory, where all of them add to the same sums and in
// no order. Two kernels that hold rows and see no token stand around them:
//
//   %g0 = attn.init_gradient %q                attn.write_gradient sums %g0 of %q
//   %g0 = attn.init_gradient adds_rows %kv ...               the update of a region
//   %g0 = attn.init_gradient summed %q         attn.write_gradient %g0 of %q
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNGRADIENTOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNGRADIENTOPS_TD

include "attn/Dialect/Attn/IR/AttnTypes.td"

def Attn_InitGradientOp : Attn_Op<"init_gradient"> {
  let summary = "the gradient before anything was added";
  let description = [{
    `part`, the query or a region or a part of one, is what the gradient is of.
    Rows are told their deltas here: of what was finished and of its gradient,
    which the LSE has, too, where `with_lse` says so.

    Of tokens, `adds_rows` says that updates add to sums of their rows' gradients in memory, too. Of rows, `summed`
    says that the gradient begins with those sums and that deltas are nobody's matter any more. Where no update
    follows that would say it, there are `kv_heads`.

    ```mlir
    %g0 = attn.init_gradient %q : !q -> !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128>
    ```
  }];
  let arguments = (ins Attn_Described<AnyType, "rows, or a region">:$part, UnitAttr:$with_lse,
                       UnitAttr:$adds_rows, UnitAttr:$summed, OptionalAttr<I64Attr>:$kv_heads);
  let results = (outs Attn_Described<Attn_GradientType, "zeros, or what was summed">:$gradient);
  let assemblyFormat = [{
    (`adds_rows` $adds_rows^)? (`summed` $summed^)? $part (`with_lse` $with_lse^)? (`kv_heads` $kv_heads^)? attr-dict
    `:` qualified(type($part)) `->` qualified(type($gradient))
  }];
}

def Attn_WriteGradientOp : Attn_Op<"write_gradient"> {
  let summary = "writes a gradient, rounded once";
  let description = [{
    Of rows `dq`, their LSEs in log2 and their deltas, of tokens `dk` and `dv` of their region. Where a kernel
    makes gradients of tables that the score region reads, each row and head leaves for each read the sum of what
    its tokens give, and where in the table that belongs. As `sums`, rows' gradients are written where others will
    add to them, with LSEs and deltas beside. With `partial`, of tokens, they are those of a part of the rows that
    see them, unless it is negative: they then go as they are to lines of `partial.dk` and `partial.dv` from that
    one on, where a launch behind adds up parts (--attn-sum-parts). `summed`: of rows, where others have made LSEs
    and deltas (see `attn.init_gradient`).

    ```mlir
    attn.write_gradient %g of %rows : !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128> of !q
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_GradientType, "what was added up">:$gradient,
    Attn_Described<AnyType, "rows, or tokens of a region">:$part,
    Arg<Optional<I32>, "the first line of a part's sums">:$partial,
    UnitAttr:$sums,
    UnitAttr:$summed);
  let assemblyFormat = [{
    (`sums` $sums^)? (`summed` $summed^)? $gradient `of` $part (`partial` $partial^)? attr-dict
    `:` qualified(type($gradient)) `of` qualified(type($part))
  }];
}

#endif

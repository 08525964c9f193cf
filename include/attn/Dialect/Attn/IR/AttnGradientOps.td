//===- AttnGradientOps.td - Gradients at the online level ---*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The gradient of a chain
// =======================
//
// Let s(t) be the scores of a row, p(t) = exp(s(t) - lse) its weights and o = sum p(t) v(t). Let do and dlse
// be the gradients of a loss by the output and by the LSE. For a row and a token that see each other, the
// gradients are
//
//   dp(t) = <do, v(t)>                 delta = <do, o> - dlse, of the row
//   ds(t) = p(t) (dp(t) - delta)
//   dv(t) += p(t) do                   of all rows and heads of the group
//   dq    += scale ds(t) k(t)          of all tokens
//   dk(t) += scale ds(t) q             of all rows and heads of the group
//
// A finished row needs only its LSE and delta: p follows from a score alone, so no maximum is searched and no
// sum is kept. The rest are sums, over tokens for a row and over rows for a token. So the chain that made the
// output also makes its gradient, update for update, with another quantity to add up:
//
//   %g0 = attn.init_gradient %q : ...               zeros
//   %g1 = attn.update %g0, %q, %kv see causal ...   the same update
//   attn.write_gradient %g1 of %q : ...
//
// once in a kernel with stationary rows, which walks the tokens they see, and once per region in a kernel
// with stationary tokens, which walks their rows. No two kernels add to the same memory: each element of a
// gradient has one writer, and the order of its terms is that of a loop.
//
// Both kernels compute ds, from scores and dp of their own. Kernels with stationary tokens may also add to
// the rows' gradient in memory. All of them add to the same sums, in no fixed order unless `in_order`. Two kernels with
// stationary rows that see no token come before and after them:
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
  let summary = "the gradient before anything is added";
  let description = [{
    `part` is the query or a region, or a part of one: the operand whose gradient this is. Rows get their
    deltas here, from the output and its gradient. With `with_lse` the LSE has a gradient, too.

    On tokens, `adds_rows` says that updates also add to sums of their rows' gradients in memory, and `in_order`
    that the terms of a row have an order: those of the task `after`, if it is not negative, come before those
    of this task. Both walk their rows from the last, and that task has all rows of this one. On rows,
    `summed` says that the gradient begins with those sums and that deltas are no longer needed. `kv_heads`
    gives the number of KV heads where no update follows that would say it.

    ```mlir
    %g0 = attn.init_gradient %q : !q -> !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128>
    ```
  }];
  let arguments = (ins Attn_Described<AnyType, "rows, or a region">:$part,
                       Arg<Optional<I32>, "a task whose terms come before">:$after, UnitAttr:$with_lse,
                       UnitAttr:$adds_rows, UnitAttr:$in_order, UnitAttr:$summed, OptionalAttr<I64Attr>:$kv_heads);
  let results = (outs Attn_Described<Attn_GradientType, "zeros, or the sums in memory">:$gradient);
  let assemblyFormat = [{
    (`adds_rows` $adds_rows^)? (`in_order` $in_order^)? (`summed` $summed^)? $part (`after` $after^)?
    (`with_lse` $with_lse^)? (`kv_heads` $kv_heads^)? attr-dict
    `:` qualified(type($part)) `->` qualified(type($gradient))
  }];
}

def Attn_WriteGradientOp : Attn_Op<"write_gradient"> {
  let summary = "writes a gradient, rounded once";
  let description = [{
    On rows it writes `dq`, their LSEs in log2 and their deltas; on tokens `dk` and `dv` of their region. A
    kernel may compute gradients of tables that the score region reads. Each row and head then stores, for
    each read, the sum of its tokens' terms and the index into the table.

    With `sums`, rows' gradients are written where other kernels will add to them, together with LSEs and
    deltas. With `partial`, tokens' gradients cover only a part of the rows that see them, unless `partial` is
    negative. They then go unrounded to lines of `partial.dk` and `partial.dv` from that line on, and a later
    launch adds up the parts (--attn-sum-parts). With `summed`, on rows, other kernels have computed LSEs and
    deltas (see `attn.init_gradient`).

    ```mlir
    attn.write_gradient %g of %rows : !attn.gradient<of = rows, heads = 32, key_dim = 128, value_dim = 128> of !q
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_GradientType, "the gradient">:$gradient,
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

//===- AttnSignificanceOps.td - Significance of tokens -----*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The significance of a token
// ===========================
//
// Policies of caches ask for the sum of weights that a token got from the rows that saw it:
//
//   w(t, h) = sum over rows of exp(s(t) - lse), of query head h
//
// and for the largest, the mean or the sum over the heads of a group. A weight needs the row's LSE, which is
// known once the row is finished. So a launch after the attention has stationary tokens and walks the rows
// that see them. It is the launch of a token's gradients without two of the three products:
//
//   %w0 = attn.init_significance %kv : ...          zeros
//   %w1 = attn.update %w0, %q, %kv see causal ...   the same update
//   attn.write_significance %w1 of %kv : ...
//
// Values are not read, and a query row is read only if it counts.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNSIGNIFICANCEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNSIGNIFICANCEOPS_TD

include "attn/Dialect/Attn/IR/AttnTypes.td"

def Attn_InitSignificanceOp : Attn_Op<"init_significance"> {
  let summary = "significance before any row is seen";
  let description = [{
    ```mlir
    %w0 = attn.init_significance %kv : !cache -> !attn.significance<of = max, heads = 32>
    ```
  }];
  let arguments = (ins Attn_Described<Attn_KVType, "the tokens">:$tokens);
  let results = (outs Attn_Described<Attn_SignificanceType, "zeros">:$significance);
  let assemblyFormat = "$tokens attr-dict `:` qualified(type($tokens)) `->` qualified(type($significance))";
}

def Attn_WriteSignificanceOp : Attn_Op<"write_significance"> {
  let summary = "writes a number for each token and KV head";
  let description = [{
    ```mlir
    attn.write_significance %w of %tokens : !attn.significance<of = max, heads = 32> of !cache
    ```
  }];
  let arguments = (ins
    Attn_Described<Attn_SignificanceType, "the significance">:$significance,
    Attn_Described<Attn_KVType, "the tokens">:$tokens);
  let assemblyFormat = [{
    $significance `of` $tokens attr-dict `:` qualified(type($significance)) `of` qualified(type($tokens))
  }];
}

#endif

//===- AttnSignificanceOps.td - What tokens are worth ------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The significance of a token
// ===========================
//
// Policies of caches ask what a token was worth to the rows that saw it:
//
//   w(t, h) = sum over rows of exp(s(t) - lse), of query head h
//
// and of the heads of a group the largest, the mean or the sum. A weight needs the
// row's LSE, which is known when the row is finished: so a launch behind the attention
// holds tokens and walks the rows that see them, as that of a token's gradients does,
// and leaves two of the three products out:
//
//   %w0 = attn.init_significance %kv : ...          zeros
//   %w1 = attn.update %w0, %q, %kv see causal ...   the same update
//   attn.write_significance %w1 of %kv : ...
//
// Values are not read, and a query row only if it is one of those that count.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ATTNSIGNIFICANCEOPS_TD
#define ATTN_DIALECT_ATTN_IR_ATTNSIGNIFICANCEOPS_TD

include "attn/Dialect/Attn/IR/AttnTypes.td"

def Attn_InitSignificanceOp : Attn_Op<"init_significance"> {
  let summary = "significance before any row was seen";
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
    Attn_Described<Attn_SignificanceType, "what was added up">:$significance,
    Attn_Described<Attn_KVType, "the tokens">:$tokens);
  let assemblyFormat = [{
    $significance `of` $tokens attr-dict `:` qualified(type($significance)) `of` qualified(type($tokens))
  }];
}

#endif

//===- Passes.td - Passes over the attn dialect ------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_PASSES_TD
#define ATTN_DIALECT_ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def CheckSignaturePass : Pass<"attn-check-signature", "func::FuncOp"> {
  let summary = "report arguments and results that files and kernels could not name";
  let description = [{
    Reads the signature of every function that holds an attention or an operation on a cache. Emits an error
    for an argument without `attn.name`, a name taken twice or reserved, unnamed dynamic dimensions, results
    other than the output and the LSE (of a gather: the rows), and any other operation beside an operation on
    a cache. Changes nothing.
  }];
}

def NormalizePass : Pass<"attn-normalize", "func::FuncOp"> {
  let summary = "make the defaults of attention explicit and its visibility simple";
  let description = [{
    On every `attn.attend`:
    - a missing scale becomes 1/sqrt(dim);
    - visibility expressions are simplified, for every value of their ends
      (`causal and window(w)` is `window(w)`);
    - head classes with equal visibility of every region are removed, and their visibility becomes the
        regions' visibility;
    - regions of which nothing is visible are dropped, except that one always stays.

    Numeric effect: none, results keep their bits.
  }];
  let statistics = [
    Statistic<"simplified", "simplified", "visibilities of regions that became simpler">,
    Statistic<"dropped", "dropped", "regions that were dropped">
  ];
}

def SplitRegionsPass : Pass<"attn-split-regions", "func::FuncOp"> {
  let summary = "turn attention over regions into merges of partial-softmax states";
  let description = [{
    Replaces `attn.attend` by one state per region (`attn.init`, `attn.update`), merges of the states, and
    `attn.finish`. A sink logit starts the state of the first region. Canonicalization then joins states into
    chains, in which one loop keeps one state.

    Numeric effect: reassociates, within the tolerance of `attn.attend`.
  }];
  let dependentDialects = ["::mlir::attn::AttnDialect"];
  let statistics = [
    Statistic<"attentions", "attentions", "attentions that were split">,
    Statistic<"states", "states", "states that were created, one per region">
  ];
}

#endif

//===- AttnDialect.td - The attn dialect -------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNDIALECT_TD
#define ATTN_DIALECT_ATTN_IR_ATTNDIALECT_TD

include "mlir/IR/DialectBase.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::mlir::attn";
  let summary = "What is attended: regions of keys and values, who may see them, and the algebra of partial softmax";
  let description = [{
    The dialect has three levels. At the *problem* level one `attn.attend` states
    that query rows attend to a set of KV regions, each a store with a format
    and a visibility. At the *online* level the same work is a chain of
    `attn.init`, `attn.update`, `attn.merge` and `attn.finish` over states of a
    partial softmax. Neither of the two knows any hardware. In a kernel an update
    becomes a composition of *steps* on one tile (`AttnStepOps.td`).

    ### Function arguments

    IR names do not survive, so the arguments of a function carry what files,
    Python and the manifest call them:

    | attribute | on | meaning |
    |---|---|---|
    | `attn.name` | every argument | the name of the tensor, or the prefix `<name>.` of the tensors a KV operand expands into |
    | `attn.dims` | arguments with dynamic dimensions | their names, in order |

    A query argument is called `q` and has one dynamic dimension, the class of
    each KV head `classes`, and sink logits `sink_logits`. A KV argument
    has two: how many instances there are, and how many tokens one has
    (`["batch", "kv_len"]` by default). `readSignature` in `Signature.h` reads
    them. Operations on a cache (`attn.append`, `attn.move`, `attn.gather`)
    call their rows `k` and `v`, their lists `slots`, or `from` and `to`, and
    the dynamic dimensions are `["layers", "rows"]` of rows, `["rows"]` of lists
    and `["layers", "pages"]` (packed: `"tokens"`) of the cache.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tile::TileDialect"];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
}

#endif

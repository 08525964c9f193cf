//===- AttnDialect.td - The attn dialect -------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_ATTNDIALECT_TD
#define ATTN_DIALECT_ATTN_IR_ATTNDIALECT_TD

include "mlir/IR/DialectBase.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::mlir::attn";
  let summary = "Attention: regions of keys and values, their visibility, and the algebra of partial softmax";
  let description = [{
    The dialect has three levels. At the *problem* level one `attn.attend` states that query rows attend to a
    set of KV regions, each a store with a format and a visibility. At the *online* level the same work is a
    chain of `attn.init`, `attn.update`, `attn.merge` and `attn.finish` over states of a partial softmax.
    These two levels know no hardware. In a kernel an update becomes a composition of *steps* on one tile
    (`AttnStepOps.td`).

    ### Function arguments

    IR names do not survive, so the arguments of a function carry the names that files, Python and the
    manifest use:

    | attribute | on | meaning |
    |---|---|---|
    | `attn.name` | every argument | the name of the tensor, or the prefix `<name>.` of the tensors a KV operand expands into |
    | `attn.dims` | arguments with dynamic dimensions | their names, in order |

    A query argument is called `q` and has one dynamic dimension. The class of each KV head is called
    `classes`, sink logits `sink_logits`, the scale of outputs `output_scale`, and a gate `gate`, whose dynamic
    dimension is the query's. A KV argument has two dynamic dimensions: the number of instances, and the number
    of tokens of one (`["batch", "kv_len"]` by default). `readSignature` in `Signature.h` reads them. Operations on a cache (`attn.append`, `attn.move`, `attn.gather`) call their
    rows `k` and `v`, and their lists `slots`, or `from` and `to`. Their dynamic dimensions are `["layers",
    "rows"]` of rows, `["rows"]` of lists and `["layers", "pages"]` (packed: `"tokens"`) of the cache.

    ### Requests of a function

    | attribute | meaning |
    |---|---|
    | `attn.backward` | gradients; a list of names adds the gradients of these tables |
    | `attn.ordered` | with `attn.backward`: whether gradients have the same bits in every run; `"apart"`: they have, and rows and tokens have a launch each, which is faster where rows see few tokens |
    | `attn.significance` | the significance of tokens: `"max"`, `"mean"` or `"sum"` over the heads of a group |
    | `attn.significance_rows` | the number of last rows of each sequence that count |
    | `attn.device_plan` | a kernel that makes plans on the device |
    | `attn.numerics` | `"row"`: all kernels share a numerics contract, so a row has the same bits in each |

    A program asks for the same with data (`AttnAsks` in `attn-c/Compiler.h`, `Asks` in
    `Pipelines/Compile.h`). These attributes are then put on the function before the first pass. Text and data
    may not contradict each other.

    ### Facts of a kernel that passes hand to later passes

    | attribute | on | meaning |
    |---|---|---|
    | `attn.fused` | a function with `attn.backward` | kernels with stationary tokens also add to the gradient of rows |
    | `attn.splits_tokens` | a function with `attn.backward` | gradients of keys and gradients of values have separate kernels |
    | `attn.plans` | a kernel | it makes plans |
    | `attn.gradient` | a kernel | the stationary operand while it adds up gradients: `#attn.stationary` |
    | `attn.fused_part` | a kernel | its part in the sums of rows' gradients: `#attn.fused_part` |
    | `attn.tables` | a kernel with stationary rows | the names of the tables whose gradients it computes |
    | `attn.operand`, `attn.first_end` | a kernel with stationary tokens | the number of its region, where there are several, and of its first end |
    | `attn.operand`, `attn.first_end`, `attn.first_class_end` | `attn.update` in a kernel | the number of its region, of its first end, and of the first end of the first class |
    | `attn.form` | a kernel that walks the plan | the shapes of rows, tokens and states in its warps: `#attn.form` |
    | `attn.row_sums` | `attn.init_gradient` in a kernel | the count of numbers that each row sums beside its gradient |
    | `attn.sums_parts` | a kernel | it adds up gradients of tokens whose tasks were split |
    | `attn.stores_scores` | a kernel that decodes, or plans | it stores the scores of tokens, where the plan says so |
    | `attn.weighs_scores`, `attn.weighs_tokens` | a kernel | it computes significance from stored scores, or from keys: `#attn.together` |
    | `attn.numerics` | a kernel that attends or merges | its results follow the contract of that name |
    | `attn.starts_next` | a kernel that merges | the next launch may begin while it waits for the previous one |
    | `attn.first` | `attn.finish`, `attn.write` | its state is continued by another operation |
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tile::TileDialect"];
  let discardableAttrs = (ins
    "::mlir::Attribute":$backward,
    "::mlir::Attribute":$ordered,
    "::mlir::StringAttr":$significance,
    "::mlir::IntegerAttr":$significance_rows,
    "::mlir::UnitAttr":$device_plan,
    "::mlir::StringAttr":$numerics,
    "::mlir::UnitAttr":$fused,
    "::mlir::UnitAttr":$splits_tokens,
    "::mlir::UnitAttr":$plans,
    "::mlir::attn::StationaryAttr":$gradient,
    "::mlir::attn::FusedPartAttr":$fused_part,
    "::mlir::ArrayAttr":$tables,
    "::mlir::IntegerAttr":$operand,
    "::mlir::IntegerAttr":$first_end,
    "::mlir::IntegerAttr":$first_class_end,
    "::mlir::attn::FormAttr":$form,
    "::mlir::IntegerAttr":$row_sums,
    "::mlir::UnitAttr":$sums_parts,
    "::mlir::UnitAttr":$stores_scores,
    "::mlir::attn::TogetherAttr":$weighs_scores,
    "::mlir::attn::TogetherAttr":$weighs_tokens,
    "::mlir::UnitAttr":$starts_next,
    "::mlir::UnitAttr":$first);
  let hasOperationAttrVerify = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasRegionArgAttrVerify = 1;
}

#endif

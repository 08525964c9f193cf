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

    ### What a function asks for

    | attribute | meaning |
    |---|---|
    | `attn.backward` | gradients; as a list of names, of these tables, too |
    | `attn.ordered` | beside it: whether gradients have the same bits in every run |
    | `attn.significance` | what tokens are worth to rows: `"max"`, `"mean"` or `"sum"` of the heads of a group |
    | `attn.significance_rows` | of how many of the last rows of each sequence |
    | `attn.device_plan` | a kernel that makes plans on the device |

    A program asks for the same by data (`AttnAsks` in `attn-c/Compiler.h`, `Asks` in `Pipelines/Compile.h`), which
    puts these attributes on the function before the first pass. Text and data may not contradict each other.

    ### What passes say of a kernel to those behind them

    | attribute | on | meaning |
    |---|---|---|
    | `attn.fused` | a function with `attn.backward` | kernels that hold tokens add to the gradient of rows, too |
    | `attn.splits_tokens` | a function with `attn.backward` | gradients of keys and those of values have kernels of their own |
    | `attn.plans` | a kernel | it makes plans |
    | `attn.gradient` | a kernel | what it holds while it adds up gradients: `#attn.stationary` |
    | `attn.fused_part` | a kernel | what it does to the sums of rows' gradients: `#attn.fused_part` |
    | `attn.tables` | a kernel that holds rows | the tables that it makes gradients of, by their names |
    | `attn.operand`, `attn.first_end` | a kernel that holds tokens | the number of its region, where there are several, and of its first end |
    | `attn.operand`, `attn.first_end`, `attn.first_class_end` | `attn.update` in a kernel | the number of its region, of its first end, and of that of the first class |
    | `attn.form` | a kernel that walks the plan | how its warps hold rows, tokens and states: `#attn.form` |
    | `attn.row_sums` | `attn.init_gradient` in a kernel | how many numbers each row sums beside its gradient |
    | `attn.sums_parts` | a kernel | it adds up gradients of tokens whose tasks were cut |
    | `attn.stores_scores` | a kernel that decodes, or plans | it stores what tokens score, where the plan says so |
    | `attn.weighs_scores`, `attn.weighs_tokens` | a kernel | it makes significance of stored scores, or of keys: `#attn.together` |
    | `attn.starts_next` | a kernel that merges | the launch behind it may begin while it waits for the one in front |
    | `attn.first` | `attn.finish`, `attn.write` | of a state with which another operation goes on |
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::tile::TileDialect"];
  let discardableAttrs = (ins
    "::mlir::Attribute":$backward,
    "::mlir::Attribute":$ordered,
    "::mlir::StringAttr":$significance,
    "::mlir::IntegerAttr":$significance_rows,
    "::mlir::UnitAttr":$device_plan,
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

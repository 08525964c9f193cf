//===- TileDialect.td - The tile dialect -------------------*- tablegen -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEDIALECT_TD
#define ATTN_DIALECT_TILE_IR_TILEDIALECT_TD

include "mlir/IR/DialectBase.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::mlir::tile";
  let summary = "Loops, copies, shared-memory tiles, register fragments with layouts, MMAs and masks";
  let description = [{
    A tile program is written from the point of view of *one warp*: every value is either uniform over the warp
    (scalars, buffers, shared tiles) or a *fragment*, spread over the warp's lanes by its layout. Control flow is
    `scf`, scalars are `arith`.

    Tile code uses the axes `query`, `key` and `feature`, never rows and columns. The operands of an MMA
    decide which axis lies along the rows of an accumulator, and all else follows, value by value. A
    transposed kernel (keys as rows) has the same operations with other layouts, and one kernel may have both
    (`--tile-infer-layouts`).

    Attributes that passes set for later passes (`discardableAttrs`; verified in TileDialect.cpp):

    | attribute | on | meaning |
    |---|---|---|
    | `tile.schedules` | a problem's function | the schedules of its kernels, one per number of rows |
    | `tile.token_schedule` | a problem's function | the schedule of kernels with stationary tokens |
    | `tile.value_schedule` | a problem's function | the schedule of kernels for gradients of values, where it differs |
    | `tile.merge_schedule` | a problem's function, and a merge kernel | the schedule of the merge kernel |
    | `tile.schedule` | a kernel | its schedule |
    | `tile.parameters` | a kernel | its parameters in order: a `#tile.parameter` each |
    | `tile.tensor_maps` | a kernel | its tensor maps: a `#tile.tensor_map` each |
    | `tile.threads` | a kernel | threads per block |
    | `tile.blocks_per_sm` | a kernel | blocks that should share a multiprocessor |
    | `tile.shared_bytes` | a kernel | dynamic shared memory of a block |
    | `tile.launch` | a kernel | its role, and the quantity that its launch has blocks for (`Launch.h`) |
    | `tile.key_align` | a kernel | the first token of a segment is a multiple of this |
    | `tile.several_ranges` | a kernel | its rows may see several ranges of tokens |
    | `tile.stages` | a loop | copies to keep in flight, see `--tile-pipeline-copies` |
    | `tile.unroll` | a loop | iterations to do at once, see `--tile-unroll-loops` |
    | `tile.l2` | a copy or a store | how long the L2 cache keeps its lines (`CacheHint.h`) |
  }];
  let discardableAttrs = (ins
    "::mlir::ArrayAttr":$schedules,
    "::mlir::tile::ScheduleAttr":$token_schedule,
    "::mlir::tile::ScheduleAttr":$value_schedule,
    "::mlir::tile::MergeScheduleAttr":$merge_schedule,
    "::mlir::tile::ScheduleAttr":$schedule,
    "::mlir::ArrayAttr":$parameters,
    "::mlir::ArrayAttr":$tensor_maps,
    "::mlir::IntegerAttr":$threads,
    "::mlir::IntegerAttr":$blocks_per_sm,
    "::mlir::IntegerAttr":$shared_bytes,
    "::mlir::DictionaryAttr":$launch,
    "::mlir::IntegerAttr":$key_align,
    "::mlir::UnitAttr":$several_ranges,
    "::mlir::IntegerAttr":$stages,
    "::mlir::IntegerAttr":$unroll,
    "::mlir::StringAttr":$l2);
  let hasOperationAttrVerify = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

#endif

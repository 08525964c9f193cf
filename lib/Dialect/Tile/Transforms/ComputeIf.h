//===- ComputeIf.h - Values that are computed ahead -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_COMPUTEIF_H
#define ATTN_DIALECT_TILE_TRANSFORMS_COMPUTEIF_H

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::tile {

/// Clones `operations`, of one block and in order, and returns what stands for `value`, which is 0 or
/// anything where `condition` is false: then nothing is read. Lookups see to that themselves; other reads
/// stand in a branch.
Value computeIf(ImplicitLocOpBuilder &b, Value condition, ArrayRef<Operation *> operations, Value value,
                IRMapping &mapping);

} // namespace mlir::tile

#endif

//===- ComputeIf.h - Values that are computed early -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_COMPUTEIF_H
#define ATTN_DIALECT_TILE_TRANSFORMS_COMPUTEIF_H

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::tile {

/// Clones `operations`, which are in one block and in order, and returns the clone of `value`. If `condition`
/// is false, the result is 0 or arbitrary, and nothing is read. Lookups take the condition themselves; other
/// reads are put into a branch.
Value computeIf(ImplicitLocOpBuilder &b, Value condition, ArrayRef<Operation *> operations, Value value,
                IRMapping &mapping);

} // namespace mlir::tile

#endif

//===- MovedMma.h - Copies of a late MMA ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_MOVEDMMA_H
#define ATTN_DIALECT_TILE_TRANSFORMS_MOVEDMMA_H

#include "LateMma.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::tile {

/// Writes copies of a late MMA, of the waits before it and of the arrivals after it, at its builder's
/// insertion point.
class MovedMma {
public:
  MovedMma(const LateMma &mma, ImplicitLocOpBuilder &builder) : mma(mma), b(builder) {}

  /// Returns the loop's counters as they were one iteration before `carried`, which returns them by number.
  /// If `isLater` is given and false, they are unchanged.
  IRMapping countBack(function_ref<Value(unsigned)> carried, Value isLater = {});
  /// Waits for the MMA's tile and starts it.
  Value start(Value lhs, Value acc, const IRMapping &counted, bool fences);
  /// Releases the MMA's tile; with a condition, only if it holds.
  void release(const IRMapping &counted, Value condition = {});
  Value finish(Value started) { return WaitMmasOp::create(b, started.getType(), 0, started).getResult(0); }
  /// Writes the whole MMA, which a loop with one iteration less leaves over. Returns the finished sum.
  Value runAll(Value lhs, Value acc, function_ref<Value(unsigned)> carried);

private:
  /// Copies an operation of the loop, or of an enclosing loop that ends before the copy, and the operations
  /// that compute its operands, unless they are mapped.
  Operation *copy(Operation *op, IRMapping &mapping);

  const LateMma &mma;
  ImplicitLocOpBuilder &b;
};

} // namespace mlir::tile

#endif

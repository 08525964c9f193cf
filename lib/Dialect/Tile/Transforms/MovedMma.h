//===- MovedMma.h - A late mma, written where it starts ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_MOVEDMMA_H
#define ATTN_DIALECT_TILE_TRANSFORMS_MOVEDMMA_H

#include "LateMma.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::tile {

/// Writes copies of a late mma, of the waits in front of it and of the arrivals behind it, where its builder
/// stands.
class MovedMma {
public:
  MovedMma(const LateMma &mma, ImplicitLocOpBuilder &builder) : mma(mma), b(builder) {}

  /// The values that the loop counts, as they were an iteration before `carried` gives them by number.
  /// Where `isLater` is given and false, as they are.
  IRMapping countBack(function_ref<Value(unsigned)> carried, Value isLater = {});
  /// Waits for the mma's tile and starts it.
  Value start(Value lhs, Value acc, const IRMapping &counted, bool fences);
  /// Gives the mma's tile back, where a condition is given if that holds.
  void release(const IRMapping &counted, Value condition = {});
  Value finish(Value started) { return WaitMmasOp::create(b, started.getType(), 0, started).getResult(0); }
  /// The whole mma: what an iteration less leaves to do. Returns the finished sum.
  Value runAll(Value lhs, Value acc, function_ref<Value(unsigned)> carried);

private:
  /// Copies an operation of the loop, or of a loop around it that the copy stands behind, and what its
  /// operands are computed from, as far as they are not mapped.
  Operation *copy(Operation *op, IRMapping &mapping);

  const LateMma &mma;
  ImplicitLocOpBuilder &b;
};

} // namespace mlir::tile

#endif

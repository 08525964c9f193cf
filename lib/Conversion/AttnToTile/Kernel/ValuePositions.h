//===- ValuePositions.h - The arithmetic of positions on values -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_VALUEPOSITIONS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_VALUEPOSITIONS_H

#include "Kernel.h"

#include "attn_rt/artifact/VisibilityTerms.h"

namespace mlir::attn {

/// Implements the arithmetic of VisibilityTerms.h with operations on i32. Positions are measured from
/// `origin`.
class ValuePositions {
public:
  explicit ValuePositions(KernelBuilder &b, Value origin = {}) : b(b), origin(origin) {}

  /// The sum does not wrap, so LLVM compares with `p` itself where it can.
  Value next(Value p) const {
    return b.createOrFold<arith::AddIOp>(p, b.i32(1), arith::IntegerOverflowFlags::nsw);
  }
  Value plus(Value p, Value n) const {
    return b.add(b.min(p, b.i32(farthest - 1)), b.min(n, b.i32(farthest)));
  }
  Value minus(Value p, Value n) const { return b.sub(b.max(p, b.i32(-farthest)), b.min(n, b.i32(farthest))); }
  Value at(Value n) const { return origin ? b.sub(n, origin) : n; }
  Value chunkOf(Value p, Value n) const {
    Value rest = b.createOrFold<arith::RemSIOp>(origin ? b.add(p, origin) : p, n);
    Value isBefore = b.less(rest, b.i32(0)); // the remainder has the sign of the position
    return b.sub(p, b.select(isBefore, b.add(rest, n), rest));
  }

private:
  /// No context reaches half the range of i32. A value that is clamped to this range cannot overflow in a
  /// sum.
  static constexpr int32_t farthest = 1 << 30;

  KernelBuilder &b;
  Value origin;
};

} // namespace mlir::attn

#endif

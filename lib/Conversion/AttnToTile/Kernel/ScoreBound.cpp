//===- ScoreBound.cpp - How large a score can get -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreBound.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

using namespace mlir;

double attn::scoreBound(Block &region) {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  llvm::DenseMap<Value, double> bounds; // of the region's values; arguments have none
  auto boundOf = [&](Value value) {
    FloatAttr constant;
    if (matchPattern(value, m_Constant(&constant)))
      return std::abs(constant.getValueAsDouble());
    auto found = bounds.find(value);
    return found == bounds.end() ? unbounded : found->second;
  };
  for (Operation &op : region.without_terminator()) {
    auto of = [&](unsigned i) { return boundOf(op.getOperand(i)); };
    const double bound = llvm::TypeSwitch<Operation *, double>(&op)
                             .Case<math::TanhOp>([](auto) { return 1.0; })
                             .Case<arith::NegFOp, math::AbsFOp>([&](auto) { return of(0); })
                             .Case<arith::AddFOp, arith::SubFOp>([&](auto) { return of(0) + of(1); })
                             .Case<arith::MulFOp>([&](auto) { return of(0) * of(1); })
                             .Case<arith::SelectOp>([&](auto) { return std::max(of(1), of(2)); })
                             .Default([](Operation *) { return unbounded; });
    // 0 times an unbounded value may be anything.
    if (op.getNumResults() == 1)
      bounds[op.getResult(0)] = std::isnan(bound) ? unbounded : bound;
  }
  return boundOf(region.getTerminator()->getOperand(0));
}

//===- LowerWeights.cpp - Weights of finished rows ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERWEIGHTSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerWeights : mlir::attn::impl::LowerWeightsPassBase<LowerWeights> {
  void runOnOperation() override { lowered += lowerSteps<WeightsOp>(getOperation(), lower); }

  static SmallVector<Value> lower(WeightsOp op, KernelBuilder &b) {
    return {
        b.map(op.getResult().getType(), ValueRange{op.getScores(), op.getLse()}, [&](ValueRange v) -> Value {
          Value base = arith::NegFOp::create(b, v[1]);
          return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], op.getUnit(), base));
        })};
  }
};

} // namespace

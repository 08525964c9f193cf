//===- LowerScoreGrad.cpp - Gradients of scores ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERSCOREGRADPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerScoreGrad : mlir::attn::impl::LowerScoreGradPassBase<LowerScoreGrad> {
  void runOnOperation() override { lowered += lowerSteps<ScoreGradOp>(getOperation(), lower); }

  static SmallVector<Value> lower(ScoreGradOp op, KernelBuilder &b) {
    SmallVector<Value> inputs{op.getWeights()};
    auto add = [&](Value input) {
      if (input)
        inputs.push_back(input);
    };
    add(op.getProducts()), add(op.getDelta()), add(op.getSlopes());
    return {b.map(op.getResult().getType(), inputs, [&](ValueRange v) -> Value {
      Value weight = v[0], gradient = weight;
      if (op.getProducts()) {
        Value product = v[1];
        if (op.getDelta())
          product = arith::SubFOp::create(b, product, v[2]);
        gradient = arith::MulFOp::create(b, weight, product);
      }
      if (!op.getSlopes())
        return gradient;
      // The region may give any number for a token that the row does not see, so its slope may be NaN.
      Value seen = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, weight, b.f32(0));
      return b.select(seen, arith::MulFOp::create(b, gradient, v.back()), b.f32(0));
    })};
  }
};

} // namespace

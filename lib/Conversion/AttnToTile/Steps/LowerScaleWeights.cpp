//===- LowerScaleWeights.cpp - Weights times numbers of tokens ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERSCALEWEIGHTSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerScaleWeights : mlir::attn::impl::LowerScaleWeightsPassBase<LowerScaleWeights> {
  void runOnOperation() override { lowered += lowerSteps<ScaleWeightsOp>(getOperation(), lower); }

  static SmallVector<Value> lower(ScaleWeightsOp op, KernelBuilder &b) {
    auto asF32 = [&](Value x) -> Value {
      return x.getType().isF32() ? x : arith::ExtFOp::create(b, b.getF32Type(), x).getResult();
    };
    return {b.map(op.getResult().getType(), ValueRange{op.getWeights(), op.getTokens()},
                  [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], asF32(v[1])); })};
  }
};

} // namespace

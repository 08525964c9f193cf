//===- LowerScores.cpp - Products of rows and tokens ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERSCORESPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerScores : mlir::attn::impl::LowerScoresPassBase<LowerScores> {
  void runOnOperation() override { lowered += lowerSteps<ScoresOp>(getOperation(), lower); }

  static SmallVector<Value> lower(ScoresOp op, KernelBuilder &b) {
    FragmentType type = op.getScores().getType();
    const bool rowsFirst = type.getAxes().front() == Axis::Query;
    Value left = rowsFirst ? op.getRows() : op.getTokens(), right = rowsFirst ? op.getTokens() : op.getRows();
    Value scores =
        multiply(b, op.getMmas(), type, left, op.getLine(), right, op.getBegin(), op.getFeatures());
    Value scale = op.getScale(), ofTokens = op.getTokenScales();
    if (!scale && !ofTokens)
      return {scores};
    SmallVector<Value> inputs{scores};
    if (ofTokens)
      inputs.push_back(ofTokens);
    return {b.map(type, inputs, [&](ValueRange v) -> Value {
      Value factor = !ofTokens ? scale : scale ? arith::MulFOp::create(b, v[1], scale).getResult() : v[1];
      return arith::MulFOp::create(b, v[0], factor);
    })};
  }
};

} // namespace

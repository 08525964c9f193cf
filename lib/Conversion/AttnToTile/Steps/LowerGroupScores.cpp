//===- LowerGroupScores.cpp - Products with scales and zeros --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERGROUPSCORESPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerGroupScores : mlir::attn::impl::LowerGroupScoresPassBase<LowerGroupScores> {
  void runOnOperation() override { lowered += lowerSteps<GroupScoresOp>(getOperation(), lower); }

  static SmallVector<Value> lower(GroupScoresOp op, KernelBuilder &b) {
    FragmentType type = op.getScores().getType();
    const bool rowsFirst = type.getAxes().front() == Axis::Query;
    auto wide = [&](Value x) -> Value { return arith::ExtFOp::create(b, b.getF32Type(), x); };
    Value scores;
    for (unsigned group = 0; group < op.getScales().size(); ++group) {
      Value rows = partOfFeatures(b, op.getRows(), group, op.getGroup());
      Value tokens = partOfFeatures(b, op.getTokens(), group, op.getGroup());
      Value zeros = b.splat(b.f32(0), type);
      Value product =
          DotOp::create(b, type, rowsFirst ? rows : tokens, Value(), rowsFirst ? tokens : rows, zeros);
      SmallVector<Value> inputs{product, op.getScales()[group], op.getZeros()[group], op.getSums()[group]};
      if (scores)
        inputs.push_back(scores);
      scores = b.map(type, inputs, [&](ValueRange v) -> Value {
        Value zero = wide(v[2]);
        Value rest = v.size() > 4 ? math::FmaOp::create(b, zero, v[3], v[4]).getResult()
                                  : arith::MulFOp::create(b, zero, v[3]).getResult();
        return math::FmaOp::create(b, wide(v[1]), v[0], rest);
      });
    }
    if (Value scale = op.getScale())
      scores = b.map(type, ValueRange{scores},
                     [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], scale); });
    return {scores};
  }
};

} // namespace

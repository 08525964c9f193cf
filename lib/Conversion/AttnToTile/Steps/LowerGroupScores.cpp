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
    auto wide = [&](Value x) -> Value {
      return x.getType().isF32() ? x : arith::ExtFOp::create(b, b.getF32Type(), x).getResult();
    };
    const bool zeros = !op.getZeros().empty();
    Value scores;
    for (unsigned group = 0; group < op.getScales().size(); ++group) {
      Value rows = partOfFeatures(b, op.getRows(), group, op.getGroup());
      Value tokens = partOfFeatures(b, op.getTokens(), group, op.getGroup());
      Value none = b.splat(b.f32(0), type);
      Value product = MmaOp::create(b, type, rowsFirst ? rows : tokens, Value(), rowsFirst ? tokens : rows,
                                    Value(), none);
      SmallVector<Value> inputs{product, op.getScales()[group]};
      if (zeros)
        llvm::append_values(inputs, op.getZeros()[group], op.getSums()[group]);
      if (group > 0)
        inputs.push_back(scores);
      scores = b.map(type, inputs, [&](ValueRange v) -> Value {
        Value rest = group > 0 ? v.back() : Value();
        if (zeros) {
          Value zero = wide(v[2]);
          rest = rest ? math::FmaOp::create(b, zero, v[3], rest).getResult()
                      : arith::MulFOp::create(b, zero, v[3]).getResult();
        }
        return rest ? math::FmaOp::create(b, wide(v[1]), v[0], rest).getResult()
                    : arith::MulFOp::create(b, wide(v[1]), v[0]).getResult();
      });
    }
    if (Value scale = op.getScale())
      scores = b.map(type, ValueRange{scores},
                     [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], scale); });
    return {scores};
  }
};

} // namespace

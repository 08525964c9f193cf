//===- LowerGroupSums.cpp - Sums of groups of features --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERGROUPSUMSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerGroupSums : mlir::attn::impl::LowerGroupSumsPassBase<LowerGroupSums> {
  void runOnOperation() override { lowered += lowerSteps<GroupSumsOp>(getOperation(), lower); }

  /// Multiplies by ones: every column of the product is the sum.
  static SmallVector<Value> lower(GroupSumsOp op, KernelBuilder &b) {
    constexpr int64_t leftLines = 16, columns = 16; // the fewest that operands have
    FragmentType rows = op.getRows().getType();
    const int64_t count = sizeOf(rows, Axis::Query);
    const bool turned = count < leftLines; // few rows are the right operand
    SmallVector<Value> sums;
    for (unsigned group = 0; group < op.getSums().size(); ++group) {
      Value some = partOfFeatures(b, op.getRows(), group, op.getGroup());
      FragmentType type = fragmentOf(some);
      FragmentType ones =
          b.fragment({Axis::Key, Axis::Feature}, {columns, sizeOf(type, Axis::Feature)}, type.getElement());
      FragmentType product = turned ? b.fragment({Axis::Key, Axis::Query}, {columns, count}, b.getF32Type())
                                    : b.fragment({Axis::Query, Axis::Key}, {count, columns}, b.getF32Type());
      Value one = arith::ConstantOp::create(b, b.getFloatAttr(type.getElement(), 1));
      Value right = b.splat(one, ones), zeros = b.splat(b.f32(0), product);
      Value sum =
          MmaOp::create(b, product, turned ? right : some, Value(), turned ? some : right, Value(), zeros);
      sums.push_back(ReduceOp::create(b, fragmentOf(op.getSums()[group]), Combine::Max, sum));
    }
    return sums;
  }
};

} // namespace

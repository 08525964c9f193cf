//===- LowerAccumulate.cpp - Sums over rows or tokens ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERACCUMULATEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerAccumulate : mlir::attn::impl::LowerAccumulatePassBase<LowerAccumulate> {
  void runOnOperation() override { lowered += lowerSteps<AccumulateOp>(getOperation(), lower); }

  static SmallVector<Value> lower(AccumulateOp op, KernelBuilder &b) {
    FragmentType sum = op.getResult().getType(), pairs = op.getPairs().getType();
    Value other = op.getOther();
    auto shared = dyn_cast<SharedType>(other.getType());
    Type element = shared ? shared.getElement() : fragmentOf(other).getElement();
    // Pairs stay as they come as the left operand; as the right operand they are transposed.
    const bool otherFirst = sum.getAxes().front() == Axis::Feature;
    FragmentType rounded = pairs.withElement(element);
    if (otherFirst)
      rounded = b.fragment({pairs.getAxes()[1], pairs.getAxes()[0]},
                           {pairs.getSizes()[1], pairs.getSizes()[0]}, element);
    Value factor = CastOp::create(b, rounded, op.getPairs());
    return {multiply(b, op.getMmas(), sum, otherFirst ? other : factor, Value(), otherFirst ? factor : other,
                     op.getSum(), /*features=*/{}, op.getFirst())};
  }
};

} // namespace

//===- LowerLift.cpp - Units with headroom for scales ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

#include "AttnToTile/Kernel/Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERLIFTPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerLift : mlir::attn::impl::LowerLiftPassBase<LowerLift> {
  void runOnOperation() override { lowered += lowerSteps<LiftOp>(getOperation(), lower); }

  static SmallVector<Value> lower(LiftOp op, KernelBuilder &b) {
    Type f32 = b.getF32Type();
    const bool isWide = op.getScales().getType().getElement().isF32();
    auto sizeOf = [&](Value x) -> Value {
      return math::AbsFOp::create(b, isWide ? x : arith::ExtFOp::create(b, f32, x).getResult());
    };
    FragmentType result = op.getResult().getType();
    Value sizes;
    if (!isOfPairs(result)) {
      Value ofPairs = b.map(cast<FragmentType>(op.getScoresType()), ValueRange{op.getScales()},
                            [&](ValueRange v) { return sizeOf(v[0]); });
      sizes = ReduceOp::create(b, result, Combine::Max, ofPairs);
    }
    Value perUnit = unitsPerLog2(b, op.getUnit());
    return {b.map(result, ValueRange{sizes ? sizes : op.getScales()}, [&](ValueRange v) -> Value {
      Value some =
          arith::MaxNumFOp::create(b, sizes ? v[0] : sizeOf(v[0]), b.f32(isWide ? 0x1p-64 : 0x1p-24));
      if (!sizes) // A score of -inf plus a lift of inf would be NaN.
        some = arith::MinNumFOp::create(b, some, b.f32(std::numeric_limits<float>::max()));
      return arith::MulFOp::create(b, math::Log2Op::create(b, some), perUnit);
    })};
  }
};

} // namespace

//===- LowerLift.cpp - Units with headroom for scales ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

#include "AttnToTile/Kernel/Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"

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
    auto asF32 = [&](Value x) -> Value { return isWide ? x : arith::ExtFOp::create(b, f32, x).getResult(); };
    Value sizes = b.map(cast<FragmentType>(op.getScoresType()), ValueRange{op.getScales()},
                        [&](ValueRange v) -> Value { return math::AbsFOp::create(b, asF32(v[0])); });
    Value largest = ReduceOp::create(b, op.getResult().getType(), Combine::Max, sizes);
    Value perUnit = unitsPerLog2(b, op.getUnit());
    return {b.map(op.getResult().getType(), ValueRange{largest}, [&](ValueRange v) -> Value {
      Value some = arith::MaxNumFOp::create(b, v[0], b.f32(isWide ? 0x1p-64 : 0x1p-24));
      return arith::MulFOp::create(b, math::Log2Op::create(b, some), perUnit);
    })};
  }
};

} // namespace

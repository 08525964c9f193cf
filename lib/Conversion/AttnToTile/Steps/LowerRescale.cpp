//===- LowerRescale.cpp - The accumulator in a new unit ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERRESCALEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerRescale : mlir::attn::impl::LowerRescalePassBase<LowerRescale> {
  void runOnOperation() override { lowered += lowerSteps<RescaleOp>(getOperation(), lower); }

  static SmallVector<Value> lower(RescaleOp op, KernelBuilder &b) {
    FragmentType type = op.getResult().getType();
    auto branch = scf::IfOp::create(b, type, op.getMoved(), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value scaled = b.map(type, ValueRange{op.getSum(), op.getDecay()},
                         [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
    scf::YieldOp::create(b, scaled);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, op.getSum());
    return {branch.getResult(0)};
  }
};

} // namespace

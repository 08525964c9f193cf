//===- LowerDequantize.cpp - Quantized factors of products ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERDEQUANTIZEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerDequantize : mlir::attn::impl::LowerDequantizePassBase<LowerDequantize> {
  void runOnOperation() override { lowered += lowerSteps<DequantizeOp>(getOperation(), lower); }

  static SmallVector<Value> lower(DequantizeOp op, KernelBuilder &b) {
    FragmentType type = op.getResult().getType();
    FragmentType codes = b.fragment(type.getAxes(), type.getSizes(), op.getTile().getType().getElement());
    Value loaded = LoadRhsOp::create(b, codes, op.getTile(), op.getGroupAttr());
    return {WidenOp::create(b, type, loaded, op.getScales(), op.getZeros(), op.getWords(), op.getMost(),
                            op.getBlocksAttr(), op.getTiny())};
  }
};

} // namespace

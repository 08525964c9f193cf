//===- ExpandConversions.cpp - e4m3 on chips without an instruction -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine level converts two e4m3 elements at a time. Chips before Ada have no instruction for that, and
// Ada's needs a newer PTX than its kernels require. An element's exponent and mantissa, moved to their
// positions in an f16, are a number 2^8 too small, subnormal ones included, and f16 holds the product. This
// takes two integer operations for both elements and a multiplication. The element with all bits set, the
// NaN, gets the exponent of NaNs before that.
//
//===----------------------------------------------------------------------===//
#include "attn/Target/PTX.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;

static Value expand(NVVM::ConvertF8x2ToF16x2Op op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Type i16 = b.getI16Type(), i32 = b.getI32Type();
  auto constant = [&](uint32_t value) -> Value {
    return LLVM::ConstantOp::create(b, i32, b.getIntegerAttr(i32, value));
  };
  auto mask = [&](Value x, uint32_t bits) -> Value { return LLVM::AndOp::create(b, x, constant(bits)); };
  auto shift = [&](Value x, uint32_t by) -> Value { return LLVM::ShlOp::create(b, x, constant(by)); };
  Value codes = LLVM::ZExtOp::create(b, i32, LLVM::BitcastOp::create(b, i16, op.getSrc()));
  Value apart = mask(LLVM::OrOp::create(b, codes, shift(codes, 8)), 0x00ff00ff);
  Value sign = shift(mask(apart, 0x00800080), 8), magnitude = mask(apart, 0x007f007f);
  Value nan = mask(LLVM::AddOp::create(b, magnitude, constant(0x00010001)), 0x00800080);
  Value bits = LLVM::OrOp::create(b, sign, shift(LLVM::OrOp::create(b, magnitude, nan), 7));
  auto halves = cast<VectorType>(op.getType());
  Value scale =
      LLVM::ConstantOp::create(b, halves, DenseElementsAttr::get(halves, b.getF16FloatAttr(256).getValue()));
  return LLVM::FMulOp::create(b, LLVM::BitcastOp::create(b, halves, bits), scale);
}

void mlir::attn::expandConversions(gpu::GPUModuleOp module) {
  SmallVector<NVVM::ConvertF8x2ToF16x2Op> found;
  module.walk([&](NVVM::ConvertF8x2ToF16x2Op op) { found.push_back(op); });
  for (NVVM::ConvertF8x2ToF16x2Op op : found) {
    op.replaceAllUsesWith(expand(op));
    op.erase();
  }
}

//===- ExpandConversions.cpp - e4m3 on chips without an instruction -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine level converts two e4m3 elements at a time. Chips before Ada have no instruction for that, and
// Ada's needs a newer PTX than its kernels require. An element's exponent and mantissa, moved to their
// positions in an f16, are a number 2^8 too small, subnormal ones included, and f16 holds the product. This
// takes two integer operations for both elements and a multiplication. The element with all bits set, the
// NaN, gets the exponent of NaNs before that.
//
// On the way from f32 a normal element's mantissa is rounded in place, and the others are rounded to
// multiples of 2^-9 by a sum with 2^14, whose last bit that is.
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

/// The bits of a number of f32 in e4m3, rounded to nearest even and clamped to 448.
static Value narrow(ImplicitLocOpBuilder &b, Value x) {
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  auto constant = [&](uint32_t value) -> Value {
    return LLVM::ConstantOp::create(b, i32, b.getIntegerAttr(i32, value));
  };
  auto number = [&](double value) -> Value {
    return LLVM::ConstantOp::create(b, f32, b.getF32FloatAttr(static_cast<float>(value)));
  };
  auto bits = [&](Value of) -> Value { return LLVM::BitcastOp::create(b, i32, of); };
  auto mask = [&](Value of, uint32_t by) -> Value { return LLVM::AndOp::create(b, of, constant(by)); };
  auto shift = [&](Value of, uint32_t by) -> Value { return LLVM::LShrOp::create(b, of, constant(by)); };
  auto add = [&](Value y, Value z) -> Value { return LLVM::AddOp::create(b, y, z); };
  constexpr uint32_t dropped = 20, bias = (127 - 7) << 3; // 23 - 3 bits of the mantissa
  Value isNaN = LLVM::FCmpOp::create(b, LLVM::FCmpPredicate::uno, x, x);
  Value magnitude = LLVM::BitcastOp::create(b, f32, mask(bits(x), 0x7fffffff));
  Value within = LLVM::MinNumOp::create(b, magnitude, number(448));
  Value all = bits(within), even = mask(shift(all, dropped), 1);
  Value normal = LLVM::SubOp::create(
      b, shift(add(add(all, even), constant((1 << (dropped - 1)) - 1)), dropped), constant(bias));
  Value rounds = number(0x1p14);
  Value small = LLVM::SubOp::create(b, bits(LLVM::FAddOp::create(b, within, rounds)), bits(rounds));
  Value isSmall = LLVM::FCmpOp::create(b, LLVM::FCmpPredicate::olt, within, number(0x1p-6));
  Value rounded = LLVM::SelectOp::create(b, isSmall, small, normal);
  Value finite = LLVM::OrOp::create(b, rounded, mask(shift(bits(x), 24), 0x80));
  return LLVM::SelectOp::create(b, isNaN, constant(0x7f), finite);
}

static Value expand(NVVM::ConvertF32x2ToF8x2Op op) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Type i32 = b.getI32Type();
  Value eight = LLVM::ConstantOp::create(b, i32, b.getI32IntegerAttr(8));
  Value high = LLVM::ShlOp::create(b, narrow(b, op.getA()), eight);
  Value both = LLVM::OrOp::create(b, high, narrow(b, op.getB()));
  Value codes = LLVM::TruncOp::create(b, b.getI16Type(), both);
  return op.getType().isInteger(16) ? codes : LLVM::BitcastOp::create(b, op.getType(), codes);
}

template <typename OpT> static void expandAll(gpu::GPUModuleOp module) {
  SmallVector<OpT> found;
  module.walk([&](OpT op) { found.push_back(op); });
  for (OpT op : found) {
    op.replaceAllUsesWith(expand(op));
    op.erase();
  }
}

void mlir::attn::expandConversions(gpu::GPUModuleOp module) {
  expandAll<NVVM::ConvertF8x2ToF16x2Op>(module);
  expandAll<NVVM::ConvertF32x2ToF8x2Op>(module);
}

//===- Gate.h - Outputs times a gate's sigmoid, over a scale ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_GATE_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_GATE_H

#include "AttnToTile/Kernel/Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {

/// The sigmoid of a number of f32, f16 or bf16, in f32: 0 where it is below 2^-126.
inline Value sigmoid(KernelBuilder &b, Value x) {
  if (!x.getType().isF32())
    x = arith::ExtFOp::create(b, b.getF32Type(), x);
  Value inverse = math::Exp2Op::create(b, arith::MulFOp::create(b, x, b.f32(-log2e)));
  return tile::ReciprocalOp::create(b, arith::AddFOp::create(b, inverse, b.f32(1)));
}

/// A feature of the output, gated. Kernels that attend and the kernel that merges do the same operations.
inline Value gatedOutput(KernelBuilder &b, Value output, Value sigmoid) {
  return arith::MulFOp::create(b, output, sigmoid);
}

/// The reciprocal of the scale of quantized outputs.
inline Value inverseScale(KernelBuilder &b, Value scale) { return arith::DivFOp::create(b, b.f32(1), scale); }
/// The scale of quantized outputs that a run gives.
inline Value readScale(KernelBuilder &b, Value scale) {
  return b.read(b.buffer(argumentName(scale), b.getF32Type()), b.i64(0));
}

/// The scale of a row and head whose largest output has this size: it becomes the largest code. Rows of zeros
/// have a scale, too. Kernels that attend and the kernel that merges do the same operations.
inline Value scaleOfLargest(KernelBuilder &b, Value largest) {
  constexpr double leastOutput = 1e-10, mostCode = 448;
  return arith::DivFOp::create(b, arith::MaxNumFOp::create(b, largest, b.f32(leastOutput)), b.f32(mostCode));
}

/// A feature of the output in multiples of the scale, before a store rounds it to e4m3. Kernels that attend
/// and the kernel that merges do the same operations.
inline Value scaledOutput(KernelBuilder &b, Value output, Value inverse) {
  return arith::MulFOp::create(b, output, inverse);
}

} // namespace mlir::attn

#endif

//===- Gate.h - Outputs times the sigmoid of a gate ------------*- C++ -*-===//
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

} // namespace mlir::attn

#endif

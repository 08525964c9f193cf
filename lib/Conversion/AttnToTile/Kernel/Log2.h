//===- Log2.h - Exponentials by powers of two ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_LOG2_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_LOG2_H

#include "Kernel.h"

#include <limits>

namespace mlir::attn {

inline constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;
/// The score of a token that is not seen is -infinity.
inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// The units of scores in a step of 1 in log2, when a score of 1 is `unit` in log2; 0 if `unit` is 0.
inline Value unitsPerLog2(KernelBuilder &b, Value unit) {
  Value flat = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, unit, b.f32(0));
  return b.select(flat, b.f32(0), tile::ReciprocalOp::create(b, unit));
}

} // namespace mlir::attn

#endif

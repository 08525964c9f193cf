//===- Log2.h - Exponentials by powers of two ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_LOG2_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_LOG2_H

#include <limits>

namespace mlir::attn {

inline constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;
/// The negative of it is the score of what is not seen.
inline constexpr double infinity = std::numeric_limits<double>::infinity();

} // namespace mlir::attn

#endif

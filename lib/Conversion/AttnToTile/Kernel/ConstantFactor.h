//===- ConstantFactor.h - Products with a constant --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_CONSTANTFACTOR_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_CONSTANTFACTOR_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace mlir::attn {

/// Returns the constant factor of a product, if it has one; `other` gets the other factor.
inline std::optional<double> constantFactor(arith::MulFOp product, Value &other) {
  for (auto [factor, rest] :
       {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
    FloatAttr constant;
    if (!matchPattern(factor, m_Constant(&constant)))
      continue;
    other = rest;
    return constant.getValueAsDouble();
  }
  return std::nullopt;
}

} // namespace mlir::attn

#endif

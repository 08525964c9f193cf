//===- LastFactor.cpp - The product that ends a score region --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LastFactor.h"
#include "ConstantFactor.h"

#include <cmath>

using namespace mlir;

/// Returns the last product and its other factor; sets `constant`.
static std::pair<arith::MulFOp, Value> lastProduct(Block &region, double &constant) {
  Value other;
  auto last = region.getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  std::optional<double> found = last ? attn::constantFactor(last, other) : std::nullopt;
  if (!found || !(*found > 0) || !std::isfinite(*found))
    return {};
  constant = *found;
  return {last, other};
}

double attn::lastFactor(Block &region) {
  double constant = 1;
  (void)lastProduct(region, constant);
  return constant;
}

void attn::dropLastFactor(Block &region) {
  double constant = 1;
  auto [product, other] = lastProduct(region, constant);
  if (!product)
    return;
  product.replaceAllUsesWith(other);
  product.erase();
}

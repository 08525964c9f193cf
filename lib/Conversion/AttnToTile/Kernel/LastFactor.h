//===- LastFactor.h - The product that ends a score region ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_LASTFACTOR_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_LASTFACTOR_H

#include "mlir/IR/Block.h"

namespace mlir::attn {

/// Returns the constant above 0 by which a region finally multiplies its result; 1 if there is none. It may
/// become the unit of the rest of the region.
double lastFactor(Block &region);
/// Removes that product.
void dropLastFactor(Block &region);

} // namespace mlir::attn

#endif

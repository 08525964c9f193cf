//===- LastFactor.h - The product that ends a score region ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_LASTFACTOR_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_LASTFACTOR_H

#include "mlir/IR/Block.h"

namespace mlir::attn {

/// A constant above 0 by which a region multiplies what it yields, in the end; else 1. It may become the unit
/// of what is left of the region.
double lastFactor(Block &region);
/// Leaves that product out.
void dropLastFactor(Block &region);

} // namespace mlir::attn

#endif

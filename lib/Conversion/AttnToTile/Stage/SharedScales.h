//===- SharedScales.h - Scales of a whole head or tensor --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_SHAREDSCALES_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_SHAREDSCALES_H

#include "StagedKernel.h"

#include "attn/Dialect/Attn/IR/Stores.h"

namespace mlir::attn {

/// Reads the scale that a region's keys or values share, of a head or of the tensor. `tiny`: includes the
/// factor of values that `tile.widen tiny` leaves small.
Value readScale(KernelBuilder &b, UpdateOp update, bool keys, Value head, bool tiny);
/// Adds the scales of a tile's region that the units of rows do not include. The first of `updates` gives the
/// region.
void addRegionScales(StagedKernel &kernel, ArrayRef<UpdateOp> updates, SmallVector<Copy> &names,
                     SmallVector<Value> &copies);

} // namespace mlir::attn

#endif

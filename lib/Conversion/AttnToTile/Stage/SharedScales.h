//===- SharedScales.h - Scales of a whole head or tensor --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_SHAREDSCALES_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_SHAREDSCALES_H

#include "StagedKernel.h"

#include "attn/Dialect/Attn/IR/Stores.h"

namespace mlir::attn {

/// The scale that a region's keys or values of a head share, or all of them; `tiny`: of codes as `tile.widen
/// tiny` leaves them.
Value readScale(KernelBuilder &b, UpdateOp update, bool keys, Value head, bool tiny);
/// Adds the scales of the region of a tile, the first of these updates', which units of rows do not have.
void addRegionScales(StagedKernel &kernel, ArrayRef<UpdateOp> updates, SmallVector<Copy> &names,
                     SmallVector<Value> &copies);

} // namespace mlir::attn

#endif

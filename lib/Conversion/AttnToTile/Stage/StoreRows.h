//===- StoreRows.h - Results that the copy engine takes ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STOREROWS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STOREROWS_H

#include "AttnToTile/Kernel/Parts.h"

namespace mlir::attn {

/// Writes a warpgroup's rows of the output, from the task's `firstRow` on, by way of their box of the
/// queries' tile, which nobody else uses. Its warps meet at the barrier. Until wait_tma_stores the box must
/// stay as it is.
void tmaStoreOutput(KernelBuilder &b, FormAttr form, RowsPart &rows, Value output, Value queries,
                    Value firstRow, Value barrier);
/// Adds a tile of rows, from the task's `firstRow` on, to sums of rows' gradients: f32, all features or those
/// from a panel on.
void tmaStoreSums(KernelBuilder &b, FormAttr form, RowsPart &rows, Value tile, Value firstRow, Value panel);

} // namespace mlir::attn

#endif

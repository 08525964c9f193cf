//===- StoreRows.h - Results that the copy engine takes ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STOREROWS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STOREROWS_H

#include "AttnToTile/Kernel/Parts.h"

namespace mlir::attn {

/// Writes a warpgroup's rows of the output, from the task's `firstRow` on, by TMA store. They pass through
/// the warpgroup's own box of the queries' tile. Its warps sync at the named barrier `barrier`. Until
/// `tile.wait_tma_stores` the box must not change.
void tmaStoreOutput(KernelBuilder &b, FormAttr form, RowsPart &rows, Value output, Value queries,
                    Value firstRow, Value barrier);
/// The producer warp that stores sums of rows, if updates add to them, and the one that posts how far it has
/// come, if they have an order.
inline constexpr int64_t storingWarp = 3, postingWarp = 2;
/// Adds a tile of rows, from the task's `firstRow` on, to sums of rows' gradients by TMA store: f32, all
/// features or those from a panel on.
void tmaStoreSums(KernelBuilder &b, FormAttr form, RowsPart &rows, Value tile, Value firstRow, Value panel);

} // namespace mlir::attn

#endif

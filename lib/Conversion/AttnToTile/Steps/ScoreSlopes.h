//===- ScoreSlopes.h - Score regions with their derivatives -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STEPS_SCORESLOPES_H
#define ATTN_CONVERSION_ATTNTOTILE_STEPS_SCORESLOPES_H

#include "AttnToTile/Kernel/ScoreTables.h"

namespace mlir::attn {

/// Computes a score region for one score, head and positions. Returns its result, its derivative by the
/// score, and its derivatives by the elements that `reads`, numbers of the region's reads, find.
SmallVector<Value> scoreAndSlopes(KernelBuilder &b, Block &region, ValueRange arguments,
                                  ArrayRef<int64_t> reads);

} // namespace mlir::attn

#endif

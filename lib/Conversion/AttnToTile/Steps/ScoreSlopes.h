//===- ScoreSlopes.h - Score regions with their derivatives -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STEPS_SCORESLOPES_H
#define ATTN_CONVERSION_ATTNTOTILE_STEPS_SCORESLOPES_H

#include "AttnToTile/Kernel/ScoreTables.h"

namespace mlir::attn {

/// What a score region makes of one score, head and positions, and behind it its derivatives by the score and
/// by what the reads of these numbers find.
SmallVector<Value> scoreAndSlopes(KernelBuilder &b, Block &region, ValueRange arguments,
                                  ArrayRef<int64_t> reads);

} // namespace mlir::attn

#endif

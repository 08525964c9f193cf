//===- StageFills.h - Rings that other warps fill --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEFILLS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEFILLS_H

#include "attn/Conversion/Chain.h"

namespace mlir::attn {

/// Which of the producer's warps fetches what.
inline constexpr int64_t keyWarp = 0, valueWarp = 1, queryWarp = 2, outputWarp = 3;

/// Stages rows and tokens of a kernel in whose block some warps only copy: what is held, a task's queries or
/// tokens, in rings, and each tile of what is walked in two, by tile.fill.
void stageFills(Chain &chain, func::FuncOp kernel);
/// The same where tokens are held, and rows walked.
void stageRowFills(Chain &chain, func::FuncOp kernel);

} // namespace mlir::attn

#endif

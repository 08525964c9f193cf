//===- StoredScores.h - What stands for a score in memory -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scores of a step of decoding wait in memory for their rows' LSEs, in 16 bits each: as
// many as workspaces may have. A weight needs its score to an absolute error, however
// large the score is, so what is stored is a fixed point: multiples of 1/64 in log2, the
// nearest of which is 2^(1/128) from a weight, 0.54 %. They reach from -512 to 512, or
// 355 to either side as scores are counted. Beyond, the outermost codes say so: the lower
// one is a weight of zero, unless the row's LSE is nearly as low; all else is NaN, for
// it is not known, and a number would look as if it was.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_STOREDSCORES_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_STOREDSCORES_H

#include "AttnToTile/Kernel/PlanAccess.h"

namespace mlir::attn {

/// Steps to a factor of two, and the last of them.
inline constexpr int64_t storedScoreSteps = 64, lastStoredScore = 32767;
/// What is stored of a score's steps is 2^15 more. It is the end of the float `storedScoreZero` plus the
/// steps, whose upper bits are always `storedScoreBase`.
inline constexpr int64_t storedScoreBase = 0x4b400000, storedScoreZero = (3 << 22) + (1 << 15);
/// In log2: an LSE beside which the lowest score of all has a weight of zero, or below 2^-31.
inline constexpr int64_t lseAboveStoredScores = -480;

/// Their buffer, as elements of a type.
inline Value storedScores(KernelBuilder &b, Type element) {
  std::string_view name = ::attn::rt::planArrayName(PlanArray::Scores);
  return b.buffer(StringRef(name.data(), name.size()), element);
}

} // namespace mlir::attn

#endif

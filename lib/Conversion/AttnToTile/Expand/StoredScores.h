//===- StoredScores.h - What stands for a score in memory -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scores of a step of decoding wait in memory for their rows' LSEs, in 16 bits
// each: as many bits as workspaces may have. A weight needs its score to an
// absolute error, however large the score is, so scores are stored in fixed
// point: multiples of 1/64 in log2. The nearest multiple is a factor of at most
// 2^(1/128) from the weight, 0.54 %. The range is -512 to 512, or 355 to either
// side in the units of scores. The outermost values stand for all scores
// beyond. The lower one is a weight of zero, unless the row's LSE is nearly as
// low. Any other case is NaN: the weight is not known, and a number would look
// as if it was.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_STOREDSCORES_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_STOREDSCORES_H

#include "AttnToTile/Kernel/PlanAccess.h"

namespace mlir::attn {

/// Steps to a factor of two, and the last step.
inline constexpr int64_t storedScoreSteps = 64, lastStoredScore = 32767;
/// A score is stored as its steps plus 2^15: the low half of the float `storedScoreZero` plus the steps,
/// whose high half is always `storedScoreBase`.
inline constexpr int64_t storedScoreBase = 0x4b400000, storedScoreZero = (3 << 22) + (1 << 15);
/// In log2: an LSE beside which the lowest score has a weight of zero, or below 2^-31.
inline constexpr int64_t lseAboveStoredScores = -480;

/// The buffer of stored scores, as elements of a type.
inline Value storedScores(KernelBuilder &b, Type element) {
  std::string_view name = ::attn::rt::planArrayName(PlanArray::Scores);
  return b.buffer(StringRef(name.data(), name.size()), element);
}

} // namespace mlir::attn

#endif

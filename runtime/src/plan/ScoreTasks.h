//===- ScoreTasks.h - Tokens whose stored scores are weighed ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Significance needs a token's weight, and a weight the row's LSE, which is known when
// the row is finished. In a step of decoding each sequence has one row, and every token
// of its cache is seen by that one alone: the kernel that attends then stores scores,
// and a launch behind it weighs them, and reads no keys. A batch is such, or its tokens
// have the tasks of TokenTasks.h: where rows share tokens, or some are hidden, there is
// no score for each.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_SCORETASKS_H
#define ATTN_RT_PLAN_SCORETASKS_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// Whether some kernel stores scores.
bool storesScores(const Manifest &manifest);
/// Whether the plan's does, every task has one row, and each instance one that sees all of its tokens.
bool mayStoreScores(const Manifest &manifest, const Batch &batch, const Plan &plan);
/// Adds the tasks, of all tokens that the stores have room for, and tells those that attend to store.
void listScoreTasks(const Manifest &manifest, const Batch &batch, Plan &plan);
/// How many there are, and how many numbers significance is: neither depends on lengths.
int64_t countScoreTasks(const Manifest &manifest, const Batch &batch);
int64_t countScoreTokens(const Manifest &manifest, const Batch &batch);

} // namespace attn::rt

#endif

//===- TokenTasks.h - Tasks that hold tokens --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A task of a backward pass that holds tokens: a tile of keys of one instance and
// KV head, and the query rows that see one of them. These are an interval: rows of
// an instance are, and of a tile's first and last row that may see it all rows
// between are walked, whose mask says the rest. Every head of the group is among a
// row's, so a tile has one task, which nothing else adds to.
//
// Behind an instance's last token there may be room, whose gradients are zeros: it
// has tasks without rows.
//
// Significance has the same tasks, of the last rows of each sequence if no others count,
// but for steps of decoding. A weight needs the row's LSE, which is known when the row is
// finished; there each sequence has one row, and every token of its cache is seen by that
// one alone: the kernel that attends then stores scores, and a launch behind it weighs
// them (ScoreTasks.cpp), and reads no keys. A batch is such, or its tokens have the tasks
// above: where rows share tokens, or some are hidden, there is no score for each.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_TOKENTASKS_H
#define ATTN_RT_PLAN_TOKENTASKS_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/batch/Visibility.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// That the last rows of a sequence, where no others count, are those of an instance: of one that rows of one
/// sequence see.
Status checkCountedRows(const Manifest &manifest, const Batch &batch);
/// The first of an instance's rows [first, last) that counts.
int32_t firstCountedRow(const Manifest &manifest, const Batch &batch, int32_t first, int32_t last);
/// Adds the tasks, those with the most rows first; `ends` are the sizes of windows and sinks.
void listTokenTasks(const Manifest &manifest, const Batch &batch, std::span<const int32_t> ends,
                    std::vector<PlanTokenTask> &tasks);
/// How many there are, whoever sees what.
int64_t countTokenTasks(const Manifest &manifest, const Batch &batch);

/// Whether a kernel stores scores; whether some does.
bool storesScores(const KernelInfo &kernel);
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

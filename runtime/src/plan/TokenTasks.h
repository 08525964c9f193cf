//===- TokenTasks.h - Tasks that hold tokens --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A task of a backward pass that holds tokens: a tile of keys of one instance and
// KV head, and the query rows that see one of them. These are an interval: rows of
// an instance are, and of a tile's first and last row that may see it all rows
// between are walked, whose mask says the rest. Every head of the group is among a
// row's, so a tile has one task, which nothing else adds to, unless it is cut (TokenCuts.h).
//
// Behind an instance's last token there may be room, whose gradients are zeros: it
// has tasks without rows. Room in pages has none, because a task looks its keys up
// and a block table need not name a page behind the last token: launches begin with
// zeros there (Plan::unwritten).
//
// Where tasks add to the gradient of rows, too, in no order, a tile of rows comes from
// memory and goes back for each task that adds to it, unless these do so at about the
// same time and meet in the L2. Each block takes the next task when it is free, so the
// order of tasks decides who runs beside whom. Tasks come in phases, of about as many as
// run at once and longest first in each. In one phase rows are walked from the last to
// the first, in the next from the first to the last. Four tasks of each, under a causal
// mask, which begins at the first row that sees a task's tokens:
//
//     time ->   falling|rising
//     block 0   4 3 2 1|4
//     block 1   4 3 2|3 4
//     block 2   4 3|2 3 4
//     block 3   4|1 2 3 4
//
// Tasks that begin together at the last rows stay in lockstep until each ends at its first, the
// shortest before the others. The block that is free first takes the next phase's longest
// task, which begins at the first row of all; when the next block is free, that task has
// come to where the next longest begins. So these are in lockstep, too, and end together: two
// phases fill a rectangle, and none has to wait for another. (Were rows falling in each
// phase, tasks of every other one would each be elsewhere, for they begin one by one.)
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
/// Adds the tasks to a plan that has none: those with the most rows first or, where they add to rows, in
/// phases of about as many as run at once; some are parts (TokenCuts.h). `ends` are the sizes of windows and
/// sinks.
void listTokenTasks(const Manifest &manifest, const Batch &batch, std::span<const int32_t> ends,
                    int multiprocessors, Plan &plan);
/// Operands with tokens whose results no task writes.
std::vector<int32_t> unwrittenOperands(const Manifest &manifest, const Batch &batch, const Plan &plan);
/// Tokens of a tile, whether their tasks add to rows, too, whether they may be cut, and how many run at once.
int32_t tokensOfTile(const Manifest &manifest);
bool addsToRows(const Manifest &manifest);
bool cutsTokens(const Manifest &manifest);
int64_t tokenTasksAtOnce(const Manifest &manifest, int multiprocessors);

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

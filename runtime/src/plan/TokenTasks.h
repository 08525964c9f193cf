//===- TokenTasks.h - Tasks that hold tokens --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A token task of a backward pass keeps a tile of keys of one instance and KV head
// stationary, and walks the query rows that see one of them. These rows are an interval,
// as the rows of an instance are: from the first to the last row that may see the tile, all
// rows are walked, and the mask says the rest. Every head of the group is among a row's, so
// a tile has one task, to which no other adds, unless it is cut (TokenCuts.cpp).
//
// After an instance's last token there may be spare slots, whose gradients are zeros: they
// have tasks without rows. Spare slots of pages have none, because a task looks its keys up
// and a block table need not name a page after the last token: launches begin with zeros
// there (Plan::unwritten).
//
// If tasks also add to the gradients of rows, in no order, a tile of rows is read from
// memory and written back for each task that adds to it, unless these tasks run at about
// the same time and share it in the L2. Each block takes the next task when it is free, so
// the order of tasks decides which run side by side. Tasks come in phases, each with about
// as many as run at once and longest first. In one phase rows are walked from the last to
// the first, in the next from the first to the last. Four tasks of each, under a causal
// mask, which begins at the first row that sees a task's tokens:
//
//     time ->   falling|rising
//     block 0   4 3 2 1|4
//     block 1   4 3 2|3 4
//     block 2   4 3|2 3 4
//     block 3   4|1 2 3 4
//
// Tasks that begin together at the last rows stay in lockstep until each ends at its first row,
// the shortest before the others. The block that is free first takes the next phase's longest
// task, which begins at the first row of all. When the next block is free, that task has
// reached the row at which the next longest begins. So these are in lockstep, too, and end
// together: two phases fill a rectangle, and no task waits for another. (If rows were walked
// downwards in each phase, the tasks of every other phase would be at different rows, since
// they begin one by one.)
//
// If these terms have an order, TokenOrder.cpp says which.
//
// Significance has the same tasks, of the last rows of each sequence if no others count,
// except in steps of decoding. A weight needs the row's LSE, which is known once the row is
// finished. In decoding each sequence has one row, and it alone sees every token of its cache:
// the kernel that attends then stores scores, and a later launch computes their weights
// (ScoreTasks.cpp) without reading keys. Other batches have the tasks above: if rows share
// tokens, or some tokens are hidden, there is no score for each.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_TOKENTASKS_H
#define ATTN_RT_PLAN_TOKENTASKS_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/batch/Visibility.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// Checks that the last rows of a sequence, if no others count, are those of an instance: one that rows of
/// one sequence see.
Status checkCountedRows(const Manifest &manifest, const Batch &batch);
/// The first of an instance's rows [first, last) that counts.
int32_t firstCountedRow(const Manifest &manifest, const Batch &batch, int32_t first, int32_t last);
/// Adds the tasks to a plan without any: those with the most rows first or, if they add to rows, in phases of
/// about as many as run at once; some are parts (TokenCuts.cpp). `ends` are the sizes of windows and sinks.
void listTokenTasks(const Manifest &manifest, const Batch &batch, std::span<const int32_t> ends,
                    int multiprocessors, Plan &plan);
/// Operands with tokens whose results no task writes.
std::vector<int32_t> unwrittenOperands(const Manifest &manifest, const Batch &batch, const Plan &plan);
/// Tokens of a tile; whether its tasks also add to rows; whether they may be cut; how many run at once.
int32_t tokensOfTile(const Manifest &manifest);
int32_t rowsOfTile(const Manifest &manifest); ///< packed rows that a task takes at once
bool addsToRows(const Manifest &manifest);
bool cutsTokens(const Manifest &manifest);
int64_t tokenTasksAtOnce(const Manifest &manifest, int multiprocessors);

/// Whether a kernel stores scores; whether some kernel does.
bool storesScores(const KernelInfo &kernel);
bool storesScores(const Manifest &manifest);
/// Whether the plan's kernel does, every task has one row, and each instance has one row, which sees all of
/// its tokens.
bool mayStoreScores(const Manifest &manifest, const Batch &batch, const Plan &plan);
/// Adds score tasks of all tokens that the stores have room for, and marks the tasks that store scores.
void listScoreTasks(const Manifest &manifest, const Batch &batch, Plan &plan);
/// The number of score tasks, and of the numbers of significance: neither depends on lengths.
int64_t countScoreTasks(const Manifest &manifest, const Batch &batch);
int64_t countScoreTokens(const Manifest &manifest, const Batch &batch);

//===----------------------------------------------------------------------===//
// TokenCuts.cpp
//===----------------------------------------------------------------------===//

/// Cuts tasks into parts, and lists the sums to add up.
class TokenCutter {
public:
  /// `keys`: tokens of a tile. `sums`: receives the sums of cut tasks.
  TokenCutter(const KernelInfo &kernel, int group, std::vector<PlanTokenSum> &sums)
      : keys_(kernel.rows), tile_(max(kernel.keys / evenHeads(group), 1)), parts_(group / evenHeads(group)),
        sums_(sums) {}

  /// Adds a task to `tasks`, or its parts if it has more rows than `window`: it is cut at rows that, counted
  /// from `origin`, are multiples of `window`.
  void add(const PlanTokenTask &task, int32_t window, int32_t origin, std::vector<PlanTokenTask> &tasks);
  /// Adds a task to `tasks`, cut at those of the rows `cuts` that are among its own.
  void addCutAt(const PlanTokenTask &task, std::span<const int32_t> cuts, std::vector<PlanTokenTask> &tasks);
  /// Cuts the last tasks of an ordered list, of which `atOnce` run at once, if all then end sooner.
  void balanceEnd(std::vector<PlanTokenTask> &tasks, int64_t atOnce);

  /// Lines of the sums of all parts so far.
  int64_t partialTokens() const { return partialTokens_; }

private:
  /// Adds the parts of a task between rows, the first and the last of which are its own.
  void addParts(const PlanTokenTask &task, std::span<const int32_t> rows, std::vector<PlanTokenTask> &tasks);
  /// The time of a task, in tiles of rows.
  int64_t cost(int64_t rows) const;
  /// The time at which all tasks end if tasks [begin, end) are cut at multiples of `window` and blocks are
  /// free at `free`. Empty if there would be more parts than `mostParts`.
  std::optional<int64_t> costOfEnd(std::span<const PlanTokenTask> tasks, int32_t window,
                                   std::vector<int64_t> free, int64_t mostParts) const;

  int32_t keys_, tile_; ///< tokens of a tile, and rows of one
  int64_t parts_;       ///< of a group, with tiles of their own
  std::vector<PlanTokenSum> &sums_;
  int64_t partialTokens_ = 0;
};

/// Rows of a window, and the most tokens of an instance that may be cut into windows.
int32_t windowRows(const Manifest &manifest);
int32_t mostWindowTokens(const Manifest &manifest);
/// Rows of a part of a task whose sums have an order, for an instance of this many tokens.
int32_t orderedRows(const Manifest &manifest, int32_t tokens, const PlanTokenTask &task);

/// Whether an instance's tasks are cut into windows, if they add to rows: rows of other tokens see it, too,
/// and it has so few tiles that the tasks running beside them belong to other instances.
bool isCutIntoWindows(const Manifest &manifest, const OperandBatch &operand, size_t instance);

/// Tokens that the store has room for: the instance's tokens, and slots after them up to the next instance.
/// The last packed instance has room to the end of the tensor.
int32_t tokenRoom(const Manifest &manifest, const Batch &batch, size_t operand, size_t instance);

/// The number of tasks of a batch before any is cut, whichever rows see the tokens.
int64_t countTokenTasks(const Manifest &manifest, const Batch &batch);
/// Upper bounds: tasks that are cut, and their parts, without those at the end of a list.
struct TokenParts {
  int64_t tasks = 0, parts = 0;
};
TokenParts countTokenParts(const Manifest &manifest, const Batch &batch);
/// Upper bounds of the end of a list of `tasks` tasks.
TokenParts countEndParts(int64_t tasks, int64_t atOnce);

//===----------------------------------------------------------------------===//
// TokenOrder.cpp
//===----------------------------------------------------------------------===//

/// Tokens that are the same for some heads: the tasks of all these heads are ordered at once.
struct TokenTile {
  PlanTokenTask task;
  int32_t firstHead, endHead;
  int32_t tokens = 0;   ///< of the instance
  int32_t mostRows = 0; ///< of any of the instance's tiles
  bool exists = true;   ///< else it is of spare slots

  int32_t rows() const { return task.rowEnd - task.rowBegin; }
};

/// Whether tasks add to rows in an order.
bool addsInOrder(const Manifest &manifest);
/// Adds the tasks of tiles, which are listed by operand, instance, head and token, each after the one before
/// it. `atOnce` run at once.
void listInOrder(const Manifest &manifest, const Batch &batch, std::vector<TokenTile> tiles, int64_t atOnce,
                 TokenCutter &cutter, std::vector<PlanTokenTask> &tasks);
/// Upper bounds of tasks that are cut and of their parts.
TokenParts countOrderedParts(const Manifest &manifest, const Batch &batch);

} // namespace attn::rt

#endif

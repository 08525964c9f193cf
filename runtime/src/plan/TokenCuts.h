//===- TokenCuts.h - Tasks of tokens, cut between rows ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a task of tokens adds up over its rows is a sum, so rows may be cut anywhere:
// each part leaves a sum of its own in memory, f32, and a launch behind adds these up in
// the order of the rows (lib/Conversion/AttnToTile/Expand/SumParts.cpp). A part costs what
// is written and read of it, 256 KB at heads of 128, and a block's start and end. Three
// things are worth that:
//
//   Sums in an order         Every instance and head has tasks of all their rows, whatever
//                            is beside them, so their bits are their own. The root of a
//                            tree is seen by all rows, and a task of it would still run
//                            when everything else has ended: tasks are cut at every
//                            `orderedRows` of their own rows, so that where they are cut is
//                            their own, too. Of an instance that has many tasks by itself
//                            the last ones have short parts. Those come last, as the
//                            longest come first, and fill up what equal tasks leave:
//
//                              block 0   [task        ][task        ][  ][  ][  ][  ]
//                              block 1   [task        ][task        ][  ][  ][  ][  ]
//                              block 2   [task        ][  ][  ][  ][  ][  ][  ][  ]
//   Trees, where tasks       Tiles of nodes above each other see rows here and there, and
//   add to rows              add to the same ones. Rows lie in windows, whose sums the L2
//                            holds; all that adds to a window's rows runs at about the
//                            same time, and then the next window is due:
//
//                              rows      0          W          2W         3W
//                              root      [part 0   |part 1    |part 2    |part 3   ]
//                              inner     [part 0   |part 1   ] [part 0   |part 1   ]
//                              leaves    [  ][  ][  ][  ][  ][  ][  ][  ][  ][  ][ ]
//
//   Ends                     As many tasks as blocks run at once may take a time in which
//                            most blocks have nothing to do any more: 1,024 equal tasks on
//                            132 blocks take eight rounds, in the last of which 32 idle.
//                            The last tasks are cut where a model of who takes what says
//                            that all are done sooner then.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_TOKENCUTS_H
#define ATTN_RT_PLAN_TOKENCUTS_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// Cuts tasks into parts, and lists what has to be added up.
class TokenCutter {
public:
  /// `keys`: tokens of a tile. `sums`: where to add what is cut.
  TokenCutter(const KernelInfo &kernel, int group, std::vector<PlanTokenSum> &sums)
      : keys_(kernel.rows), tile_(max(kernel.keys / evenHeads(group), 1)), parts_(group / evenHeads(group)),
        sums_(sums) {}

  /// Adds a task to `tasks`, or the parts of one whose rows are more than `window`: it is cut where rows,
  /// counted from `origin`, are multiples of that.
  void add(const PlanTokenTask &task, int32_t window, int32_t origin, std::vector<PlanTokenTask> &tasks);
  /// Cuts the last tasks of a list that is in order, of which so many run at once, where that makes all end
  /// sooner.
  void balanceEnd(std::vector<PlanTokenTask> &tasks, int64_t atOnce);

  /// Lines of all parts so far.
  int64_t partialTokens() const { return partialTokens_; }

private:
  /// What a task takes, in tiles of rows.
  int64_t cost(int64_t rows) const;
  /// What cutting tasks [begin, end) at multiples of `window` takes: when all are done behind blocks that are
  /// free at `free`. Nothing where there would be more parts than `mostParts`.
  std::optional<int64_t> costOfEnd(std::span<const PlanTokenTask> tasks, int32_t window,
                                   std::vector<int64_t> free, int64_t mostParts) const;

  int32_t keys_, tile_; ///< tokens of a tile, and rows of one
  int64_t parts_;       ///< of a group, with tiles of their own
  std::vector<PlanTokenSum> &sums_;
  int64_t partialTokens_ = 0;
};

/// Rows of a window, and tokens of an instance that may be cut into windows.
int32_t windowRows(const Manifest &manifest);
int32_t mostWindowTokens(const Manifest &manifest);
/// Rows of a part of a task whose sums have an order: it is one of an instance of so many tokens.
int32_t orderedRows(const Manifest &manifest, int32_t tokens, const PlanTokenTask &task);

/// Whether an instance's tasks are cut into windows, where they add to rows: other tokens' rows see it, too,
/// and it has so few tiles that what adds to rows beside them is of other instances.
bool isCutIntoWindows(const Manifest &manifest, const OperandBatch &operand, size_t instance);

/// Tokens that the store has room for: those of an instance, and what lies behind them up to the next one.
/// The last packed instance has room to the end of the tensor.
int32_t tokenRoom(const Manifest &manifest, const Batch &batch, size_t operand, size_t instance);

/// Tasks of a batch before any is cut, whoever sees what.
int64_t countTokenTasks(const Manifest &manifest, const Batch &batch);
/// At most: tasks that are cut, and their parts. Without those at the end of a list.
struct TokenParts {
  int64_t tasks = 0, parts = 0;
};
TokenParts countTokenParts(const Manifest &manifest, const Batch &batch);
/// The same of the end of a list of so many tasks.
TokenParts countEndParts(int64_t tasks, int64_t atOnce);

} // namespace attn::rt

#endif

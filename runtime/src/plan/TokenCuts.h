//===- TokenCuts.h - Tasks of tokens, cut between rows ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A token task computes a sum over its rows, so its rows may be cut anywhere: each part
// leaves an f32 sum of its own in memory, and a later launch adds these up in the order of
// the rows (lib/Conversion/AttnToTile/Expand/SumParts.cpp). A part costs the bytes of its
// sum, written and read, 256 KB at heads of 128, and a block's start and end. Three things
// are worth that:
//
//   Sums in an order         Every instance and head has tasks of all their rows, whatever
//                            is beside them, so their bits are their own. All rows see the
//                            root of a tree, and a task of it would still run when all others
//                            have ended: tasks are cut at every `orderedRows` of their own
//                            rows, so that the cuts are their own, too. The last tasks of an
//                            instance with many tasks have short parts. These come last,
//                            since the longest come first, and fill up what equal tasks
//                            leave:
//
//                              block 0   [task        ][task        ][  ][  ][  ][  ]
//                              block 1   [task        ][task        ][  ][  ][  ][  ]
//                              block 2   [task        ][  ][  ][  ][  ][  ][  ][  ]
//   Trees, whose tasks       Tiles of nodes above each other see scattered rows, and add to
//   add to rows              the same ones. Rows lie in windows, whose sums the L2 holds; all
//                            tasks that add to a window's rows run at about the same time,
//                            and the next window follows:
//
//                              rows      0          W          2W         3W
//                              root      [part 0   |part 1    |part 2    |part 3   ]
//                              inner     [part 0   |part 1   ] [part 0   |part 1   ]
//                              leaves    [  ][  ][  ][  ][  ][  ][  ][  ][  ][  ][ ]
//
//   Ends                     The last tasks may take a time in which most blocks are idle:
//                            1,024 equal tasks on 132 blocks take eight rounds, in the last
//                            of which 32 idle. The last tasks are cut if a model of the
//                            blocks says that all end sooner then.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_TOKENCUTS_H
#define ATTN_RT_PLAN_TOKENCUTS_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

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
  /// Cuts the last tasks of an ordered list, of which `atOnce` run at once, if all then end sooner.
  void balanceEnd(std::vector<PlanTokenTask> &tasks, int64_t atOnce);

  /// Lines of the sums of all parts so far.
  int64_t partialTokens() const { return partialTokens_; }

private:
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

} // namespace attn::rt

#endif

//===- TokenCuts.cpp - Tasks of tokens, cut between rows ------------------===//
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
#include "attn_rt/support/Arithmetic.h"
#include "plan/TokenTasks.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace attn::rt {

namespace {

/// Packed rows of a window: their sums are 8 MB at heads of 128, and the sums of a few windows are in use at
/// once.
constexpr int32_t windowPacked = 16384;
/// Packed rows of a part whose sums have an order, large enough that its start and end cost little: of an
/// instance of few tasks, of an instance of many, and of the last tasks of many.
constexpr int32_t orderedPacked = 65536, manyPacked = 262144, lastPacked = 16384;
/// The number of tasks that counts as many, and the number of last tasks: about as many as any GPU runs at
/// once.
constexpr int64_t manyTasks = 512, lastTasks = 128;
/// The most tiles of tokens of an instance that is cut into windows. With more, an instance's own tasks are
/// about as many as run at once, and add to the same rows at the same time anyway.
constexpr int32_t mostWindowTiles = 16;
/// In tiles of rows: the overhead of a task, the shortest part at the end of a list, and the launch that adds
/// parts up; and the number of parts that this launch adds in the time of one tile.
constexpr int64_t taskTiles = 3, leastTiles = 16, launchTiles = 2, partsOfTile = 20;
/// The end of a list: parts for each running block, parts of each task, and the rounds of tasks that are cut.
constexpr int64_t endPartsOfBlock = 4, endPartsOfTask = 8, endRounds = 2;
/// Lists of more rounds are not cut at their end, which takes too little of the whole.
constexpr int64_t manyRounds = 32;
/// A cut end must be faster by one part in this many.
constexpr int64_t leastGain = 100;

int32_t firstRow(const PlanTokenTask &task) { return std::min(task.rowBegin, task.rowEnd); }
int32_t lastRow(const PlanTokenTask &task) { return std::max(task.rowBegin, task.rowEnd); }
int32_t rowsOf(const PlanTokenTask &task) { return lastRow(task) - firstRow(task); }

/// Calls `visit(window, first row, end)` for the parts of rows [begin, end).
template <typename Visit>
void forEachPart(int32_t begin, int32_t end, int32_t window, int32_t origin, Visit visit) {
  if (end - begin <= window)
    return visit((begin - origin) / window, begin, end);
  for (int32_t row = begin; row < end;) {
    const int32_t number = (row - origin) / window;
    const int32_t next = std::min<int64_t>(end, origin + int64_t{window} * (number + 1));
    visit(number, row, next);
    row = next;
  }
}

/// Blocks take the next task when they are free: the queue holds the time at which each is free.
using Blocks = std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>>;

/// The end of the last task.
int64_t lastOf(Blocks blocks) {
  int64_t last = 0;
  for (; !blocks.empty(); blocks.pop())
    last = blocks.top();
  return last;
}

} // namespace

int64_t TokenCutter::cost(int64_t rows) const { return parts_ * ceilDiv(rows, int64_t{tile_}) + taskTiles; }

void TokenCutter::add(const PlanTokenTask &task, int32_t window, int32_t origin,
                      std::vector<PlanTokenTask> &tasks) {
  std::vector<int32_t> rows{firstRow(task)};
  forEachPart(firstRow(task), lastRow(task), window, origin,
              [&](int32_t, int32_t, int32_t end) { rows.push_back(end); });
  addParts(task, rows, tasks);
}

void TokenCutter::addCutAt(const PlanTokenTask &task, std::span<const int32_t> cuts,
                           std::vector<PlanTokenTask> &tasks) {
  std::vector<int32_t> rows{firstRow(task)};
  for (int32_t cut : cuts)
    if (firstRow(task) < cut && cut < lastRow(task))
      rows.push_back(cut);
  rows.push_back(lastRow(task));
  addParts(task, rows, tasks);
}

void TokenCutter::addParts(const PlanTokenTask &task, std::span<const int32_t> rows,
                           std::vector<PlanTokenTask> &tasks) {
  PlanTokenTask part = task;
  part.partial = -1;
  if (rows.size() == 2) {
    tasks.push_back(part);
    return;
  }
  PlanTokenSum sum{.operand = task.operand,
                   .instance = task.instance,
                   .ordinal = task.ordinal,
                   .partial = static_cast<int32_t>(partialTokens_),
                   .parts = static_cast<int32_t>(rows.size() - 1),
                   .apart = keys_};
  for (size_t number = 1; number < rows.size(); ++number) {
    part.rowBegin = rows[number - 1], part.rowEnd = rows[number];
    part.partial = static_cast<int32_t>(partialTokens_);
    partialTokens_ += keys_;
    tasks.push_back(part);
  }
  for (sum.kvBegin = task.kvBegin; sum.kvBegin < task.kvEnd; sum.kvBegin = sum.kvEnd) {
    sum.kvEnd = std::min(sum.kvBegin + tokenSumTokens, task.kvEnd);
    sums_.push_back(sum);
    sum.partial += tokenSumTokens;
  }
}

std::optional<int64_t> TokenCutter::costOfEnd(std::span<const PlanTokenTask> tasks, int32_t window,
                                              std::vector<int64_t> free, int64_t mostParts) const {
  struct Part {
    int32_t window, rows;
  };
  std::vector<Part> parts;
  const int32_t origin = firstRow(*std::min_element(
      tasks.begin(), tasks.end(), [](const auto &a, const auto &b) { return firstRow(a) < firstRow(b); }));
  for (const PlanTokenTask &task : tasks) {
    forEachPart(firstRow(task), lastRow(task), window, origin,
                [&](int32_t number, int32_t begin, int32_t end) { parts.push_back({number, end - begin}); });
    if (std::ssize(parts) > mostParts)
      return std::nullopt;
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part &a, const Part &b) {
    return a.window != b.window ? a.window < b.window : a.rows > b.rows;
  });
  Blocks blocks(std::greater<>(), std::move(free));
  for (const Part &part : parts) {
    const int64_t begin = blocks.top();
    blocks.pop();
    blocks.push(begin + cost(part.rows));
  }
  return lastOf(std::move(blocks)) + launchTiles + std::ssize(parts) / partsOfTile;
}

void TokenCutter::balanceEnd(std::vector<PlanTokenTask> &tasks, int64_t atOnce) {
  const int64_t count = std::ssize(tasks);
  if (count == 0 || count > manyRounds * atOnce)
    return;
  // The end to cut follows the whole rounds, with the last whole round, or is everything if there is no more.
  const int64_t behind = count % atOnce ? count - count % atOnce : count - atOnce;
  int64_t begin = std::max<int64_t>(behind - (endRounds - 1) * atOnce, 0);
  std::vector<int64_t> free(static_cast<size_t>(atOnce), 0);
  const auto runTo = [&](int64_t from, int64_t to) {
    Blocks blocks(std::greater<>(), std::move(free));
    for (int64_t i = from; i < to; ++i) {
      const int64_t start = blocks.top();
      blocks.pop();
      blocks.push(start + cost(rowsOf(tasks[static_cast<size_t>(i)])));
    }
    free.clear();
    for (; !blocks.empty(); blocks.pop())
      free.push_back(blocks.top());
  };
  runTo(0, begin);
  int64_t best = INT64_MAX, bestBegin = count;
  int32_t bestWindow = 0;
  for (int64_t next : {behind, count}) { // cut from `begin` to one of these
    const std::span<const PlanTokenTask> end = std::span(tasks).subspan(static_cast<size_t>(begin));
    int32_t longest = 0;
    bool whole = true;
    for (const PlanTokenTask &task : end)
      longest = std::max(longest, rowsOf(task)), whole &= task.partial < 0;
    for (int64_t parts = 2; parts <= endPartsOfTask && whole; ++parts) {
      const int32_t window = ceilDiv(ceilDiv(longest, static_cast<int32_t>(parts)), tile_) * tile_;
      if (window * parts_ < leastTiles * tile_)
        break;
      if (const auto cost = costOfEnd(end, window, free, endPartsOfBlock * atOnce); cost && *cost < best)
        best = *cost, bestBegin = begin, bestWindow = window;
    }
    runTo(begin, next);
    begin = next;
  }
  const int64_t uncut = *std::max_element(free.begin(), free.end());
  if (best >= uncut - uncut / leastGain)
    return;
  const std::vector<PlanTokenTask> end(tasks.begin() + static_cast<ptrdiff_t>(bestBegin), tasks.end());
  tasks.resize(static_cast<size_t>(bestBegin));
  int32_t origin = INT32_MAX;
  for (const PlanTokenTask &task : end)
    origin = std::min(origin, firstRow(task));
  for (PlanTokenTask task : end) {
    if (task.rowEnd < task.rowBegin)
      std::swap(task.rowBegin, task.rowEnd);
    add(task, bestWindow, origin, tasks);
  }
  const auto window = [&](const PlanTokenTask &task) { return (task.rowBegin - origin) / bestWindow; };
  std::stable_sort(tasks.begin() + static_cast<ptrdiff_t>(bestBegin), tasks.end(),
                   [&](const PlanTokenTask &a, const PlanTokenTask &b) {
                     return window(a) != window(b) ? window(a) < window(b) : rowsOf(a) > rowsOf(b);
                   });
}

static int32_t partRows(const Manifest &manifest, int32_t packed) {
  return std::max(packed / manifest.groupSize(), 1);
}
int32_t windowRows(const Manifest &manifest) { return partRows(manifest, windowPacked); }
int32_t mostWindowTokens(const Manifest &manifest) { return mostWindowTiles * tokensOfTile(manifest); }

int32_t orderedRows(const Manifest &manifest, int32_t tokens, const PlanTokenTask &task) {
  const int64_t heads = manifest.kvHeads;
  const int32_t tile = tokensOfTile(manifest), behind = ceilDiv(tokens - task.kvBegin, tile);
  int32_t packed = orderedPacked;
  if (ceilDiv(tokens, tile) * heads >= manyTasks) {
    const bool isLast = (behind - 1) * heads < lastTasks;
    packed = isLast && int64_t{rowsOf(task)} * manifest.groupSize() > orderedPacked ? lastPacked : manyPacked;
  }
  return partRows(manifest, packed);
}

bool isCutIntoWindows(const Manifest &manifest, const OperandBatch &operand, size_t instance) {
  const int64_t rows = operand.rowLast[instance] - operand.rowFirst[instance];
  const int64_t tokens = operand.longest(instance);
  return cutsTokens(manifest) && addsToRows(manifest) && rows > windowRows(manifest) && rows > 2 * tokens &&
         tokens <= mostWindowTokens(manifest);
}

int32_t tokenRoom(const Manifest &manifest, const Batch &batch, size_t operand, size_t instance) {
  const OperandBatch &of = batch.operands[operand];
  const Store store = storeOf(manifest.argumentOf(manifest.operands[operand]));
  switch (store.kind) {
  case StoreKind::Dense:
    return static_cast<int32_t>(of.tokens);
  case StoreKind::Packed: {
    const bool isLast = instance + 1 == of.instances();
    return static_cast<int32_t>(isLast ? of.tokens : of.start[instance + 1]) - of.start[instance];
  }
  case StoreKind::Paged:
  case StoreKind::Unified:
    return static_cast<int32_t>(store.tokensOf(of.maxPages));
  }
  return 0;
}

int64_t countTokenTasks(const Manifest &manifest, const Batch &batch) {
  const int64_t keys = tokensOfTile(manifest);
  const auto tilesOf = [&](int64_t tokens) { return std::max<int64_t>((tokens + keys - 1) / keys, 0); };
  int64_t tasks = 0;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const bool isPaged = storeOf(manifest.argumentOf(manifest.operands[o])).isPaged();
    for (size_t i = 0; i < operand.instances(); ++i) {
      for (int32_t head = 0; head < operand.heads && operand.heads > 1; ++head)
        tasks += tilesOf(operand.length(i, head));
      if (operand.heads > 1)
        continue;
      const int64_t length = operand.lengths[i];
      const int64_t behind = isPaged ? 0 : tokenRoom(manifest, batch, o, i) - length;
      tasks += (tilesOf(length) + tilesOf(behind)) * manifest.kvHeads;
    }
  }
  return tasks;
}

TokenParts countTokenParts(const Manifest &manifest, const Batch &batch) {
  TokenParts found;
  const int64_t heads = manifest.kvHeads, tile = tokensOfTile(manifest);
  for (const OperandBatch &operand : batch.operands)
    for (size_t i = 0; i < operand.instances() && cutsTokens(manifest); ++i) {
      const int64_t rows = operand.rowLast[i] - operand.rowFirst[i];
      const int64_t tasks = (operand.longest(i) + tile - 1) / tile * heads;
      const auto add = [&](int64_t tasks, int64_t most) {
        found.tasks += tasks;
        found.parts += tasks * (rows / most + 2);
      };
      if (addsToRows(manifest)) {
        if (isCutIntoWindows(manifest, operand, i))
          add(tasks, windowRows(manifest));
        continue;
      }
      const bool isMany = tasks >= manyTasks;
      const int64_t last = isMany ? std::min(tasks, lastTasks + heads) : 0;
      if (rows > partRows(manifest, orderedPacked))
        add(last, partRows(manifest, lastPacked));
      if (const int64_t most = partRows(manifest, isMany ? manyPacked : orderedPacked); rows > most)
        add(tasks - last, most);
    }
  return found;
}

TokenParts countEndParts(int64_t tasks, int64_t atOnce) {
  return {std::min(tasks, endRounds * atOnce), std::min(endPartsOfTask * tasks, endPartsOfBlock * atOnce)};
}

} // namespace attn::rt

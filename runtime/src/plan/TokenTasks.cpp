//===- TokenTasks.cpp - Tokens whose gradients are added up ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/TokenTasks.h"

#include <algorithm>
#include <tuple>

namespace attn::rt {

namespace {

/// The tensor that kernels with stationary keys add rows' gradients to, if they do.
constexpr std::string_view rowSums = "dq.sums";
/// Rows whose positions are checked together.
constexpr int32_t rowsAtOnce = 64;

/// Whether a row at a position between qMin and qMax may see a position from `first` to `last`. A true answer
/// may be wrong, a false one never is.
bool maySee(const Visibility &visibility, std::span<const int32_t> ends, int64_t qMin, int64_t qMax,
            int64_t first, int64_t last) {
  const auto part = [&](const Visibility &of) { return maySee(of, ends, qMin, qMax, first, last); };
  if (visibility.kind == Visibility::Kind::Or)
    return std::any_of(visibility.of.begin(), visibility.of.end(), part);
  if (visibility.kind == Visibility::Kind::And)
    return std::all_of(visibility.of.begin(), visibility.of.end(), part);
  return first < termInterval(visibility, ends, qMax).end &&
         last >= termInterval(visibility, ends, qMin).begin;
}

/// The least and the greatest position of each `rowsAtOnce` rows.
struct RowBounds {
  int32_t least, greatest;
};
std::vector<RowBounds> boundsOf(const std::vector<int32_t> &positions) {
  std::vector<RowBounds> bounds;
  bounds.reserve(positions.size() / rowsAtOnce);
  for (size_t row = 0; row + rowsAtOnce <= positions.size(); row += rowsAtOnce) {
    const auto begin = positions.begin() + static_cast<ptrdiff_t>(row);
    const auto [least, greatest] = std::minmax_element(begin, begin + rowsAtOnce);
    bounds.push_back({*least, *greatest});
  }
  return bounds;
}

/// The rows that see tokens of one instance; the rows' bounds are the same for all instances.
class RowFinder {
public:
  RowFinder(const Manifest &manifest, std::span<const int32_t> ends, const Batch &batch,
            const std::vector<RowBounds> &bounds, size_t operand, size_t instance)
      : visibility_(manifest.operands[operand].visibility), ends_(ends), positions_(batch.qPos),
        bounds_(bounds), first_(firstCountedRow(manifest, batch, batch.operands[operand].rowFirst[instance],
                                                batch.operands[operand].rowLast[instance])),
        last_(batch.operands[operand].rowLast[instance]), pos0_(batch.operands[operand].pos0[instance]) {}

  /// Sets the task's rows to those that may see tokens [begin, end).
  void find(int64_t begin, int64_t end, PlanTokenTask &task) const {
    const auto sees = [&](int64_t qMin, int64_t qMax) {
      return maySee(visibility_, ends_, qMin, qMax, pos0_ + begin, pos0_ + end - 1);
    };
    const auto rowSees = [&](int32_t row) {
      const int64_t q = positions_[static_cast<size_t>(row)];
      return sees(q, q);
    };
    const auto noneSees = [&](int32_t block) {
      const RowBounds &of = bounds_[static_cast<size_t>(block)];
      return !sees(of.least, of.greatest);
    };
    int32_t row = first_, stop = last_;
    while (row < stop && !rowSees(row))
      row += row % rowsAtOnce == 0 && row + rowsAtOnce <= stop && noneSees(row / rowsAtOnce) ? rowsAtOnce : 1;
    while (stop > row && !rowSees(stop - 1))
      stop -= stop % rowsAtOnce == 0 && stop - rowsAtOnce >= row && noneSees(stop / rowsAtOnce - 1)
                  ? rowsAtOnce
                  : 1;
    task.rowBegin = row;
    task.rowEnd = stop;
  }

private:
  const Visibility &visibility_;
  std::span<const int32_t> ends_;
  const std::vector<int32_t> &positions_;
  const std::vector<RowBounds> &bounds_;
  int32_t first_, last_;
  int64_t pos0_;
};

int32_t rowsOf(const PlanTokenTask &task) { return task.rowEnd - task.rowBegin; }

bool isLonger(const PlanTokenTask &a, const PlanTokenTask &b) { return rowsOf(a) > rowsOf(b); }

/// Calls `add` with the tasks of a tile, one for each head.
template <typename Add> void forEachTask(TokenTile tile, Add add) {
  for (tile.task.ordinal = tile.firstHead; tile.task.ordinal < tile.endHead; ++tile.task.ordinal)
    add(tile.task);
}

/// Adds the tasks of each instance and head, longest first; instances and heads with the longest tasks come
/// first.
void addByHead(std::vector<TokenTile> &tiles, std::vector<PlanTokenTask> &tasks) {
  const auto instanceOf = [](const TokenTile &tile) {
    return std::tuple(-tile.mostRows, tile.task.operand, tile.task.instance, tile.firstHead);
  };
  std::stable_sort(tiles.begin(), tiles.end(), [&](const TokenTile &a, const TokenTile &b) {
    return std::tuple(instanceOf(a), -a.rows()) < std::tuple(instanceOf(b), -b.rows());
  });
  for (size_t begin = 0, end = 0; begin < tiles.size(); begin = end) {
    while (end < tiles.size() && instanceOf(tiles[end]) == instanceOf(tiles[begin]))
      ++end;
    for (int32_t head = tiles[begin].firstHead; head < tiles[begin].endHead; ++head)
      for (size_t i = begin; i < end; ++i)
        forEachTask({tiles[i].task, head, head + 1},
                    [&](const PlanTokenTask &task) { tasks.push_back(task); });
  }
}

/// Adds the tasks of a window of rows, head after head, then those of the next window. Nearly all tasks begin
/// in one window, since longer ones are cut.
void addByWindow(const std::vector<TokenTile> &tiles, int32_t window, TokenCutter &cutter,
                 std::vector<PlanTokenTask> &tasks) {
  const auto first = std::ssize(tasks);
  for (const TokenTile &tile : tiles)
    forEachTask(tile, [&](const PlanTokenTask &task) { cutter.add(task, window, 0, tasks); });
  std::stable_sort(tasks.begin() + first, tasks.end(), [&](const PlanTokenTask &a, const PlanTokenTask &b) {
    return std::pair(a.rowBegin / window, a.ordinal) < std::pair(b.rowBegin / window, b.ordinal);
  });
}

/// Cuts tasks into an even number of phases, each with about as many tasks as run at once.
void setPhases(std::span<PlanTokenTask> tasks, int64_t atOnce) {
  const int64_t count = std::ssize(tasks), pairs = (count + atOnce) / (2 * atOnce);
  const int64_t phases = std::max<int64_t>(1, 2 * pairs);
  for (int64_t phase = 0; phase < phases; ++phase) {
    const auto begin = static_cast<size_t>(count * phase / phases),
               end = static_cast<size_t>(count * (phase + 1) / phases);
    const std::span<PlanTokenTask> some = tasks.subspan(begin, end - begin);
    std::stable_sort(some.begin(), some.end(), isLonger);
    for (PlanTokenTask &task : some)
      if (phase % 2 == 0)
        std::swap(task.rowBegin, task.rowEnd);
  }
}

} // namespace

int32_t firstCountedRow(const Manifest &manifest, const Batch &batch, int32_t first, int32_t last) {
  if (manifest.significanceRows == 0 || first == last)
    return first;
  const auto end = std::upper_bound(batch.qStart.begin(), batch.qStart.end(), first);
  return std::clamp(*end - manifest.significanceRows, first, last);
}

Status checkCountedRows(const Manifest &manifest, const Batch &batch) {
  for (size_t o = 0; o < batch.operands.size() && manifest.significanceRows > 0; ++o)
    for (size_t i = 0; i < batch.operands[o].instances(); ++i) {
      const int32_t first = batch.operands[o].rowFirst[i], last = batch.operands[o].rowLast[i];
      const auto end = std::upper_bound(batch.qStart.begin(), batch.qStart.end(), first);
      if (first < last && *end < last)
        return inputError("significance of the last " + std::to_string(manifest.significanceRows) +
                          " rows: expected instances that rows of one sequence see; instance " +
                          std::to_string(i) + " of '" + manifest.operands[o].argument + "' is seen by rows " +
                          std::to_string(first) + " to " + std::to_string(last - 1) +
                          " of several; nearest: of all rows");
    }
  return {};
}

const KernelInfo &tokenKernel(const Manifest &manifest) {
  const LaunchInfo *launch = manifest.findLaunch(PlanArray::TokenTasks);
  return manifest.kernels[static_cast<size_t>(launch->kernels.front())];
}
int32_t tokensOfTile(const Manifest &manifest) { return tokenKernel(manifest).rows; }
int32_t rowsOfTile(const Manifest &manifest) { return tokenKernel(manifest).keys; }
bool addsToRows(const Manifest &manifest) { return manifest.findResult(rowSums) != nullptr; }
bool cutsTokens(const Manifest &manifest) { return manifest.findLaunch(PlanArray::TokenSums) != nullptr; }
int64_t tokenTasksAtOnce(const Manifest &manifest, int multiprocessors) {
  return int64_t{multiprocessors} * tokenKernel(manifest).blocksPerSM;
}

namespace {

/// The tiles of tokens of instances that are cut into windows, and of others.
struct TokenTiles {
  std::vector<TokenTile> whole, inWindows;
};

TokenTiles listTiles(const Manifest &manifest, const Batch &batch, std::span<const int32_t> ends) {
  const int32_t keys = tokensOfTile(manifest);
  const std::vector<RowBounds> bounds = boundsOf(batch.qPos);
  TokenTiles found;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const bool isPaged = storeOf(manifest.argumentOf(manifest.operands[o])).isPaged();
    for (size_t i = 0; i < operand.instances(); ++i) {
      const RowFinder rows(manifest, ends, batch, bounds, o, i);
      std::vector<TokenTile> &tiles = isCutIntoWindows(manifest, operand, i) ? found.inWindows : found.whole;
      PlanTokenTask task{.operand = static_cast<int32_t>(o),
                         .instance = static_cast<int32_t>(i),
                         .pos0 = operand.pos0[i],
                         .partial = -1,
                         .before = -1};
      const auto addTiles = [&](int32_t begin, int32_t end, bool seen, int32_t firstHead, int32_t endHead) {
        const auto first = std::ssize(tiles);
        int32_t mostRows = 0;
        for (task.kvBegin = begin; task.kvBegin < end; task.kvBegin = task.kvEnd) {
          task.kvEnd = std::min(task.kvBegin + keys, end);
          task.rowBegin = task.rowEnd = 0;
          if (seen)
            rows.find(task.kvBegin, task.kvEnd, task);
          tiles.push_back({task, firstHead, endHead, operand.longest(i), /*mostRows=*/0, /*exists=*/seen});
          mostRows = std::max(mostRows, rowsOf(task));
        }
        for (auto tile = tiles.begin() + first; tile != tiles.end(); ++tile)
          tile->mostRows = mostRows;
      };
      for (int32_t head = 0; head < operand.heads && operand.heads > 1; ++head)
        addTiles(0, operand.length(i, head), true, head, head + 1);
      if (operand.heads > 1)
        continue; // each head had tokens of its own
      addTiles(0, operand.lengths[i], true, 0, manifest.kvHeads);
      if (!isPaged)
        addTiles(operand.lengths[i], tokenRoom(manifest, batch, o, i), false, 0, manifest.kvHeads);
    }
  }
  return found;
}

/// Moves instances with as few tokens as those that are cut into windows into windows, too: rows that see
/// both are there.
void moveShort(int32_t tokens, TokenTiles &tiles) {
  const auto isLong = [&](const TokenTile &tile) { return tile.tokens > tokens; };
  const auto begin = std::stable_partition(tiles.whole.begin(), tiles.whole.end(), isLong);
  tiles.inWindows.insert(tiles.inWindows.end(), begin, tiles.whole.end());
  tiles.whole.erase(begin, tiles.whole.end());
}

} // namespace

std::vector<int32_t> unwrittenOperands(const Manifest &manifest, const Batch &batch, const Plan &plan) {
  std::vector<int32_t> found;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const bool isPaged = storeOf(manifest.argumentOf(manifest.operands[o])).isPaged();
    if ((isPaged && plan.scoreTasks.empty()) || batch.operands[o].instances() == 0)
      found.push_back(static_cast<int32_t>(o));
  }
  return found;
}

void listTokenTasks(const Manifest &manifest, const Batch &batch, std::span<const int32_t> ends,
                    int multiprocessors, Plan &plan) {
  TokenTiles tiles = listTiles(manifest, batch, ends);
  TokenCutter cutter(tokenKernel(manifest), manifest.groupSize(), plan.tokenSums);
  std::vector<PlanTokenTask> &tasks = plan.tokenTasks;
  const int64_t atOnce = tokenTasksAtOnce(manifest, multiprocessors);
  tasks.reserve((tiles.whole.size() + tiles.inWindows.size()) * static_cast<size_t>(manifest.kvHeads));
  if (addsInOrder(manifest)) {
    tiles.whole.insert(tiles.whole.end(), tiles.inWindows.begin(), tiles.inWindows.end());
    listInOrder(manifest, batch, std::move(tiles.whole), atOnce, cutter, tasks);
    plan.semaphores = std::ssize(tasks);
  } else if (addsToRows(manifest)) {
    if (!tiles.inWindows.empty())
      moveShort(mostWindowTokens(manifest), tiles);
    addByHead(tiles.whole, tasks);
    addByWindow(tiles.inWindows, windowRows(manifest), cutter, tasks);
    setPhases(tasks, atOnce);
    if (cutsTokens(manifest))
      cutter.balanceEnd(tasks, atOnce);
  } else {
    std::stable_sort(tiles.whole.begin(), tiles.whole.end(),
                     [](const TokenTile &a, const TokenTile &b) { return a.rows() > b.rows(); });
    for (const TokenTile &tile : tiles.whole) {
      const int32_t most = cutsTokens(manifest) ? orderedRows(manifest, tile.tokens, tile.task) : INT32_MAX;
      forEachTask(tile, [&](const PlanTokenTask &task) { cutter.add(task, most, task.rowBegin, tasks); });
    }
    if (cutter.partialTokens() > 0)
      std::stable_sort(tasks.begin(), tasks.end(), isLonger);
  }
  plan.partialTokens = cutter.partialTokens();
}

} // namespace attn::rt

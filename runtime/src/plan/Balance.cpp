//===- Balance.cpp - Whether tasks are cut or assigned whole --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Balance.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

// Estimated time is multiplied by this if parts are needed: direct results save traffic, a launch and
// partials.
constexpr double directBonus = 1.03;
// Rounds split no task into more pieces than mostPieces, and are tried only if they could save this factor.
constexpr int64_t mostPieces = 4;
constexpr double worthSplitting = 1.05;

} // namespace

int64_t Balancer::taskCost(const WorkTile &workTile) const {
  return costOfTask(cost_->fixed + (workTile.partial ? cost_->partialOf(workTile.packedCount) : 0),
                    workTile.tiles);
}

void Balancer::listWhole(const Work &work) {
  parts_.clear();
  for (const WorkTile &workTile : work.workTiles)
    parts_.push_back({taskCost(workTile), static_cast<int32_t>(parts_.size()), 0, workTile.tiles});
}

/// Lists work tiles cut at multiples of the chunk, whatever else is in the batch.
void Balancer::listChunks(const Work &work, int64_t chunk, int keys) {
  parts_.clear();
  for (size_t u = 0; u < work.workTiles.size(); ++u) {
    const WorkTile &workTile = work.workTiles[u];
    int32_t begin = 0; // of the current part, in tiles of the work tile
    const auto add = [&](int32_t end) {
      const int64_t cost =
          begin == 0 && end == workTile.tiles
              ? taskCost(workTile)
              : costOfTask(cost_->fixed + cost_->partialOf(workTile.packedCount), end - begin);
      parts_.push_back({cost, static_cast<int32_t>(u), begin, end});
      begin = end;
    };
    int32_t first = 0; // tile number of the segment's first tile
    for (int32_t s = workTile.segmentBegin; s < workTile.segmentEnd; ++s) {
      const PlanSegment &segment = work.segments[static_cast<size_t>(s)];
      const int64_t origin = originOf(segment, work.fixedSplit);
      const RangeOf<int64_t> tokens = tokensOf(segment);
      const int64_t cuts = cutsInside(tokens, origin, chunk);
      for (int64_t number = 1; number <= cuts; ++number)
        if (const auto end = static_cast<int32_t>(first + tileOfCut(tokens, origin, number, chunk, keys));
            end > begin)
          add(end);
      first += static_cast<int32_t>(tilesOf(tokens, keys));
      if (work.fixedSplit && first > begin)
        add(first);
    }
    if (begin < workTile.tiles || workTile.tiles == 0)
      add(workTile.tiles);
    // A sink follows all parts. The sink of a task which was cut is a part without tokens.
    if (work.sinkLast && workTile.sink && parts_.back().tileBegin > 0)
      add(workTile.tiles);
  }
}

/// Lists tasks whole where their kernel folds the parts of a task, or cut, whichever takes the least time.
/// Both give the same bits. Tasks that other tasks hold parts of are cut in any case: a merge folds parts,
/// and a total of parts only as the first of them.
void Balancer::chooseFolds(const Work &work, const PlanOptions &options, const KernelInfo &kernel,
                           int64_t chunk) {
  listChunks(work, chunk, kernel.keys);
  int64_t pieces = 0, partialRows = 0;
  for (const Part &part : parts_)
    if (const WorkTile &workTile = work.workTiles[static_cast<size_t>(part.workTile)];
        part.tileBegin > 0 || part.tileEnd < workTile.tiles) {
      pieces += workTile.ordinals.count();
      partialRows += int64_t{workTile.packedCount} * workTile.ordinals.count();
    }
  if (pieces == 0)
    return;
  deal(work, options.gpu->l2Bytes);
  const double cutSeconds = cost_->dealtSeconds(loads_, placeLoads_) + cost_->mergeSeconds +
                            static_cast<double>(pieces) * cost_->secondsPerPart;
  cutParts_ = parts_;
  std::erase_if(parts_, [&](const Part &part) {
    const WorkTile &workTile = work.workTiles[static_cast<size_t>(part.workTile)];
    return !workTile.partial;
  });
  for (size_t u = 0; u < work.workTiles.size(); ++u)
    if (const WorkTile &workTile = work.workTiles[u]; !workTile.partial)
      parts_.push_back({taskCost(workTile), static_cast<int32_t>(u), 0, workTile.tiles});
  const bool roomy = partialRows <= foldedPartialRows(kernel, blocks_);
  deal(work, options.gpu->l2Bytes);
  if (roomy && cutSeconds < cost_->dealtSeconds(loads_, placeLoads_))
    parts_.swap(cutParts_);
}

/// Lists whole tasks in rounds that keep every block busy, and splits the tasks left over, the shortest of
/// the long ones. The shares of a cut list begin anywhere. The tasks of a round begin with the same tokens,
/// and so do the pieces of the tasks left over, so that the L2 holds what they read:
///
///     192 tasks, 132 blocks   132 whole ones, 60 x 2 halves               1.50 rounds (ideal: 1.45)
///     150 tasks               132 whole ones, 18 x 4 quarters             1.25 (1.14)
///      96 tasks               96 x first 3/4; 36 blocks do 96 x last 1/4  0.75 (0.73)
///
/// Returns the number of pieces; 0 if there is no such list, because no task is left over or pieces are
/// short.
int64_t Balancer::listRounds(const Work &work, int64_t largest) {
  listWhole(work);
  sortParts();
  const auto tasksOf = [&](const Part &part) -> int64_t {
    return work.workTiles[static_cast<size_t>(part.workTile)].ordinals.count();
  };
  // Tasks that cost less than half of the largest fill gaps, and make no rounds.
  size_t end = 0;
  int64_t tasks = 0;
  for (; end < parts_.size() && 2 * parts_[end].cost >= largest; ++end)
    tasks += tasksOf(parts_[end]);
  int64_t split = 0;
  size_t begin = end;
  while (split < tasks % blocks_)
    split += tasksOf(parts_[--begin]);
  if (split == 0 || split >= blocks_)
    return 0;
  // A task's tiles are divided into `steps` steps: its first piece has `first` of them, every other piece
  // one.
  int64_t steps = std::min(blocks_ / split, mostPieces), first = 1;
  if (steps == 1) {
    first = ceilDiv(split, blocks_ - split);
    steps = first + 1;
  }
  if (parts_[end - 1].tileEnd / steps < cost_->shareTiles)
    return 0;
  const auto from = parts_.begin() + static_cast<int64_t>(begin),
             to = parts_.begin() + static_cast<int64_t>(end);
  sorted_.assign(from, to);
  parts_.erase(from, to);
  for (int64_t step = first; step <= steps; ++step)
    for (const Part &part : sorted_) {
      const auto tileAt = [&](int64_t s) { return static_cast<int32_t>(part.tileEnd * s / steps); };
      const int32_t tileBegin = step == first ? 0 : tileAt(step - 1), tileEnd = tileAt(step);
      const int64_t overhead =
          cost_->fixed + cost_->partialOf(work.workTiles[static_cast<size_t>(part.workTile)].packedCount);
      parts_.push_back({costOfTask(overhead, tileEnd - tileBegin), part.workTile, tileBegin, tileEnd});
    }
  return split * (steps - first + 1);
}

/// Assigns tasks whole or in rounds, or cuts the list into shares, whichever takes the least time.
void Balancer::chooseShares(const Work &work, int64_t l2Bytes, Assignment &out) {
  int64_t total = 0, largest = 0, cuttable = 0;
  for (const WorkTile &workTile : work.workTiles) {
    const int64_t cost = taskCost(workTile);
    total += cost * workTile.ordinals.count();
    largest = std::max(largest, cost);
    if (workTile.tiles > cost_->shareTiles)
      cuttable += cost * workTile.ordinals.count();
  }

  // The number of shares: each further share shortens the walk and lengthens the merge, by the two parts of a
  // result that was written directly. If work tiles are shared, there are parts already: a further share then
  // adds one part, if it ends in a task that is long enough to be cut, and direct results are worth nothing.
  const double partsPerShare = work.shared ? static_cast<double>(cuttable) / static_cast<double>(total) : 2;
  const double bonus = work.shared ? 1 : directBonus;
  const auto secondsOf = [&](int64_t candidate, double secondsPerCost) {
    const double perShare = static_cast<double>(total) / static_cast<double>(candidate) +
                            static_cast<double>(cost_->fixed + cost_->partial) + 0.5 * tileCost;
    return std::max(perShare * secondsPerCost, cost_->cutSeconds) + (work.shared ? 0 : cost_->mergeSeconds) +
           partsPerShare * static_cast<double>(candidate) * cost_->secondsPerPart;
  };
  int shares = 0;
  double cutSeconds = std::numeric_limits<double>::infinity();
  for (int64_t candidate = mostShares(blocks_, work.tiles, cost_->shareTiles); candidate > 1;
       candidate -= ceilDiv(candidate, 4))
    if (const double seconds = secondsOf(candidate, cost_->secondsPerCost); seconds < cutSeconds) {
      cutSeconds = seconds;
      shares = static_cast<int>(candidate);
    }
  // Shares of little work are fewer than blocks, and have the memory to themselves, as whole tasks have.
  if (shares > 0)
    cutSeconds = std::min(cutSeconds, secondsOf(shares, cost_->secondsPerCostOf(shares)));
  const auto direct = [&](int64_t load) { return static_cast<double>(load) * cost_->secondsPerCost; };
  double seconds = bonus * cutSeconds; // of the best list so far
  bool whole = cost_->leastDealtSeconds(total, largest, blocks_) <= seconds;
  if (whole) {
    listWhole(work);
    deal(work, l2Bytes);
    const double wholeSeconds = cost_->dealtSeconds(loads_, placeLoads_);
    whole = wholeSeconds <= seconds;
    seconds = whole ? wholeSeconds : seconds;
  }
  const double even = direct(equalShare(total, blocks_));
  if (cost_->cutSeconds > even && seconds > worthSplitting * even)
    if (const int64_t pieces = listRounds(work, largest); pieces > 0) {
      const double merge = cost_->mergeSeconds + static_cast<double>(pieces) * cost_->secondsPerPart;
      if (bonus * (direct(deal(work, l2Bytes)) + merge) < seconds)
        return emitDealt(work, out);
      if (whole) {
        listWhole(work);
        deal(work, l2Bytes);
      }
    }
  if (whole)
    emitDealt(work, out);
  else
    cut(work, total, shares, out);
}

void Balancer::balance(const Manifest &manifest, const Work &work, const PlanOptions &options, int blocks,
                       Assignment &out) {
  const KernelInfo &kernel = manifest.kernels[static_cast<size_t>(work.kernel)];
  blocks_ = blocks;
  rows_ = kernel.rows;
  cost_.emplace(manifest, kernel, work, blocks, *options.gpu);
  const int64_t chunk = chunkOf(options);
  const bool whole = options.strategy == Strategy::ByNode || manifest.plansWhole();
  if (chunk > 0 && kernel.folds)
    chooseFolds(work, options, kernel, chunk);
  else if (chunk > 0)
    listChunks(work, chunk, kernel.keys);
  else if (whole)
    listWhole(work);
  if (chunk > 0 || whole) {
    deal(work, options.gpu->l2Bytes);
    emitDealt(work, out);
  } else {
    chooseShares(work, options.gpu->l2Bytes, out);
  }
  sumLoads(out);
}

void Balancer::sumLoads(Assignment &out) const {
  out.maxCost = out.totalCost = 0;
  out.usedBlocks = 0;
  for (int64_t load : loads_) {
    out.usedBlocks += load > 0;
    out.maxCost = std::max(out.maxCost, load);
    out.totalCost += load;
  }
}

} // namespace attn::rt

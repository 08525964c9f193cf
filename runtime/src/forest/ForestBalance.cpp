//===- ForestBalance.cpp - A forest's work tiles are assigned to blocks --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/forest/Forest.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/support/Arithmetic.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// The begin of share s of `shares` in a list of `tiles`: shares differ by at most one tile.
int64_t shareBegin(int64_t tiles, int share, int shares) {
  return static_cast<int64_t>(static_cast<__int128>(tiles) * share / shares);
}

} // namespace

/// Whether work tiles are cut into shares. Flash-Decoding splits as evenly as flatten does; they differ only
/// in what they read, so that they can be compared.
bool ForestPlanner::cutting() const {
  return options_.strategy == Strategy::Flatten || options_.strategy == Strategy::ByQuery;
}

/// The seconds of one key tile when every multiprocessor is busy: blocks share bandwidth and arithmetic.
double ForestPlanner::tileSeconds() const {
  const bool small = std::all_of(workTiles_.begin(), workTiles_.end(), [](const ForestWorkTile &workTile) {
    return workTile.packedRows <= forestSmallRows;
  });
  const auto bytes = static_cast<double>(forestTileKeys * workload_->bytesPerTokenPerHead);
  const double flops = 4.0 * (small ? forestSmallRows : forestTileRows) * forestTileKeys * workload_->dim;
  return std::max(options_.blocks, options_.gpu->multiprocessors) *
         std::max(bytes / options_.gpu->bytesPerSecond, flops / options_.gpu->flopsPerSecond);
}

/// The cost that cutting the list into equal shares adds.
ForestPlanner::Cuts ForestPlanner::cutInto(int shares) const {
  Cuts cuts;
  int64_t tiles = 0;
  for (const ForestWorkTile &workTile : workTiles_)
    tiles += workTile.tiles * workTile.copies;
  size_t u = 0;
  int64_t workTileBegin = 0, lastCopy = -1; // the copy that was cut last, of work tile u
  for (int share = 1; share < shares; ++share) {
    const int64_t at = shareBegin(tiles, share, shares);
    while (at >= workTileBegin + workTiles_[u].tiles * workTiles_[u].copies) {
      workTileBegin += workTiles_[u].tiles * workTiles_[u].copies;
      ++u;
      lastCopy = -1;
    }
    const ForestWorkTile &workTile = workTiles_[u];
    const int64_t copy = (at - workTileBegin) / workTile.tiles,
                  inside = (at - workTileBegin) % workTile.tiles;
    if (inside == 0)
      continue;
    ++cuts.count;
    cuts.packedRows += workTile.packedRows;
    cuts.partialRows += workTile.packedRows;
    if (!workTile.partial && copy != lastCopy) {
      cuts.partialRows += workTile.packedRows; // the part before the first cut
      cuts.outputs += workTile.packedRows;
    }
    lastCopy = copy;
    // A cut between two nodes adds no reader to a segment.
    const int64_t base = pathTiles_[static_cast<size_t>(workTile.node)] - workTile.tiles;
    int32_t node = workTile.node;
    while (node >= 0 && pathTiles_[static_cast<size_t>(node)] - base > inside)
      node = nodes_[static_cast<size_t>(node)].parent;
    cuts.segments += node < 0 || pathTiles_[static_cast<size_t>(node)] - base < inside;
  }
  return cuts;
}

/// The number of shares that takes the least time; of equals the most. One more share shortens the walk, but
/// its cut makes rows of Q be read again and partials be written and merged.
int ForestPlanner::chooseShares(int64_t tiles) const {
  const auto most = static_cast<int>(std::min<int64_t>(options_.blocks, tiles));
  const double perTile = tileSeconds();
  int best = most;
  double least = 0;
  for (int shares = most; shares > 0; shares -= (shares + 3) / 4) {
    const double walk = static_cast<double>(ceilDiv(tiles, shares)) * perTile;
    if (shares < most && walk >= least)
      break; // fewer shares only lengthen the walk
    const Cuts cuts = cutInto(shares);
    const auto bytes =
        static_cast<double>(cuts.partialRows) * 8 * (workload_->dim + 1) +
        static_cast<double>(cuts.packedRows) * 2 * workload_->dim +
        static_cast<double>(cuts.count) * static_cast<double>(sizeof(PlanTask) + sizeof(PlanSegment));
    const double seconds = walk + bytes / options_.gpu->bytesPerSecond;
    if (shares == most || seconds < least) {
      least = seconds;
      best = shares;
    }
  }
  return best;
}

/// Assigns copies of `tiles` tiles, each to the block with the least work (of equals the first). Many copies
/// are assigned at once up to a common level, with the same result as one by one.
void ForestPlanner::dealCopies(int32_t workTile, int64_t tiles, int64_t copies, bool record) {
  const auto blocks = static_cast<int64_t>(loads_.size());
  if (copies > 4 * blocks) {
    const auto below = [&](int64_t level) { // copies that start at loads up to the level
      int64_t sum = 0;
      for (int64_t load : loads_)
        sum += load <= level ? (level - load) / tiles + 1 : 0;
      return sum;
    };
    int64_t low = -1, high = *std::max_element(loads_.begin(), loads_.end()) + (copies / blocks + 1) * tiles;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (below(middle) <= copies ? low : high) = middle;
    }
    for (size_t b = 0; b < loads_.size(); ++b)
      if (loads_[b] <= low) {
        const int64_t count = (low - loads_[b]) / tiles + 1;
        if (record)
          deals_.push_back({workTile, static_cast<int32_t>(b), count});
        loads_[b] += count * tiles;
        copies -= count;
      }
    for (size_t b = 0; b < loads_.size(); ++b)
      heap_[b] = {loads_[b], static_cast<int32_t>(b)};
    std::sort(heap_.begin(), heap_.end());
  }
  for (; copies > 0; --copies) {
    std::pair<int64_t, int32_t> top = heap_[0];
    if (record)
      deals_.push_back({workTile, top.second, 1});
    top.first += tiles;
    loads_[static_cast<size_t>(top.second)] = top.first;
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap_.size(); at = child) {
      child += child + 1 < heap_.size() && heap_[child + 1] < heap_[child];
      if (top < heap_[child])
        break;
      heap_[at] = heap_[child];
    }
    heap_[at] = top;
  }
}

/// Assigns work tiles, longest first, each to the block with the least work. Work tiles of one length are
/// assigned together if no caller asks for the assignment: the loads are the same.
void ForestPlanner::dealWhole(bool record) {
  shares_ = 0;
  deals_.clear();
  loads_.assign(static_cast<size_t>(options_.blocks), 0);
  heap_.resize(loads_.size());
  for (size_t b = 0; b < heap_.size(); ++b)
    heap_[b] = {0, static_cast<int32_t>(b)};
  order_.resize(workTiles_.size());
  for (size_t i = 0; i < order_.size(); ++i)
    order_[i] = static_cast<int32_t>(i);
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const int64_t left = workTiles_[static_cast<size_t>(a)].tiles,
                  right = workTiles_[static_cast<size_t>(b)].tiles;
    return left != right ? left > right : a < b;
  });
  for (size_t i = 0; i < order_.size();) {
    const int32_t first = order_[i];
    const int64_t tiles = workTiles_[static_cast<size_t>(first)].tiles;
    int64_t copies = 0;
    do
      copies += workTiles_[static_cast<size_t>(order_[i++])].copies;
    while (!record && i < order_.size() && workTiles_[static_cast<size_t>(order_[i])].tiles == tiles);
    dealCopies(first, tiles, copies, record);
  }
}

void ForestPlanner::forEachPiece(const std::function<void(const ForestPiece &)> &sink) {
  if (!cutting()) {
    dealWhole(true);
    for (const Deal &deal : deals_)
      sink(
          {deal.block, deal.workTile, 0, deal.copies * workTiles_[static_cast<size_t>(deal.workTile)].tiles});
    return;
  }
  int64_t total = 0;
  for (const ForestWorkTile &workTile : workTiles_)
    total += workTile.tiles * workTile.copies;
  size_t u = 0;
  int64_t workTileBegin = 0;
  for (int share = 0; share < shares_; ++share) {
    const int64_t end = shareBegin(total, share + 1, shares_);
    for (int64_t at = shareBegin(total, share, shares_); at < end;) {
      const int64_t workTileEnd = workTileBegin + workTiles_[u].tiles * workTiles_[u].copies;
      const int64_t stop = std::min(end, workTileEnd);
      sink({share, static_cast<int32_t>(u), (at - workTileBegin) % workTiles_[u].tiles, stop - at});
      at = stop;
      if (stop == workTileEnd) {
        workTileBegin = workTileEnd;
        ++u;
      }
    }
  }
}

} // namespace attn::rt

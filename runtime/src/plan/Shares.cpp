//===- Shares.cpp - The list of tasks is cut into shares ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Balance.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

/// Sets the short tasks of a list apart if most of its cost is in long ones: heads that stream beside heads
/// that see a long context, short sequences beside long ones. Each share begins with an equal amount of short
/// tasks, and long tasks fill it. In the order of the list a few shares would have all short tasks, and their
/// time depends on the overhead of a task, which is known less well than the cost of tiles. 24 streaming
/// heads beside 8 that read 128K tokens took an H200 150 us that way, and 129 us the same bytes without them.
void Balancer::spreadShort(const Work &work, int64_t total, int shares) {
  short_.clear();
  shortBegin_.clear();
  if (lockstep_ > 1)
    return;
  longest_ = total / shares / 4;
  int64_t sum = 0;
  for (const WorkTile &workTile : work.workTiles)
    if (const int64_t cost = taskCost(workTile); cost <= longest_)
      sum += cost * workTile.ordinals.count();
  // Short tasks that fit one share may stay together, which leaves long tasks in step.
  if (sum <= total / shares || sum > total / 4)
    return;
  for (size_t u = 0; u < work.workTiles.size(); ++u) {
    const WorkTile &workTile = work.workTiles[u];
    if (const int64_t cost = taskCost(workTile); cost <= longest_)
      for (int32_t ordinal = workTile.ordinals.begin; ordinal < workTile.ordinals.end; ++ordinal)
        short_.push_back({static_cast<int32_t>(u), ordinal, cost});
  }
  shortCost_.assign(static_cast<size_t>(shares), 0);
  int64_t before = 0;
  for (size_t t = 0; t < short_.size(); ++t) {
    const auto share = static_cast<size_t>(before * shares / sum);
    shortBegin_.resize(share + 1, static_cast<int32_t>(t));
    shortCost_[share] += short_[t].cost;
    before += short_[t].cost;
  }
  shortBegin_.resize(static_cast<size_t>(shares) + 1, static_cast<int32_t>(short_.size()));
}

/// Walks the list of tasks and fills one share after another up to a cost of `share`, after the short tasks
/// with which it begins, cutting between tiles. Filling as far as possible is optimal: moving a tile to a
/// later share never makes the rest fit better. Parts made by a cut have at least `leastPart` tiles. Calls
/// sink(share, work tile, ordinal, begin, end, cost). Returns the cost of all shares, of the last one as far
/// as it is filled; -1 if `shares` are too few.
template <typename Sink>
int64_t Balancer::cutList(const Work &work, int64_t share, int shares, int64_t leastPart, Sink sink) const {
  const int64_t fixed = cost_->fixed;
  int current = 0;
  int32_t rows = -1; // of the work tile before; the next work tile nearly always has as many
  int64_t cutOverhead = 0;
  const auto openShare = [&] {
    if (static_cast<size_t>(current) + 1 >= shortBegin_.size())
      return int64_t{0};
    const auto at = static_cast<size_t>(current);
    for (int32_t t = shortBegin_[at]; t < shortBegin_[at + 1]; ++t) {
      const ShortTask &task = short_[static_cast<size_t>(t)];
      sink(current, static_cast<size_t>(task.workTile), task.ordinal, int64_t{0},
           int64_t{work.workTiles[static_cast<size_t>(task.workTile)].tiles}, task.cost);
    }
    return shortCost_[at];
  };
  int64_t load = openShare();
  for (size_t u = 0; u < work.workTiles.size(); ++u) {
    const WorkTile &workTile = work.workTiles[u];
    if (!shortBegin_.empty() && taskCost(workTile) <= longest_)
      continue;
    if (workTile.packedCount != rows) {
      rows = workTile.packedCount;
      cutOverhead = fixed + cost_->partialOf(rows);
    }
    const int64_t overhead = workTile.partial ? cutOverhead : fixed;
    const int32_t ordinals = lockstep_ > 1 ? workTile.ordinals.begin + 1 : workTile.ordinals.end;
    for (int32_t ordinal = workTile.ordinals.begin; ordinal < ordinals; ++ordinal) {
      int64_t from = 0;
      for (;;) {
        const int64_t rest = workTile.tiles - from;
        const int64_t whole = costOfTask(from ? cutOverhead : overhead, rest);
        if (load + whole <= share) {
          sink(current, u, ordinal, from, from + rest, whole);
          load += whole;
          break;
        }
        int64_t part = tilesOfCost(share - load, cutOverhead);
        if (rest - part < leastPart)
          part = rest - leastPart;
        if (share - load < cutOverhead || part < leastPart) {
          if (load == 0 || ++current == shares)
            return -1;
          load = openShare();
          continue;
        }
        sink(current, u, ordinal, from, from + part, costOfTask(cutOverhead, part));
        from += part;
        if (++current == shares)
          return -1;
        load = openShare();
      }
    }
  }
  const int64_t cost = current * share + load;
  while (static_cast<size_t>(++current) + 1 < shortBegin_.size())
    openShare(); // a share that no long task has reached
  return cost;
}

/// If a head's line is shorter than this, its neighbours' lines are in the same row of memory, which is
/// opened again if they are read later; lines of less than 64 bytes are even read again. Keys and values of
/// int4 in heads of 128 (64 bytes each) were measured (61 x 8K on an H200; docs/rationale/quantization.md):
/// heads read them at 2.2 TB/s at different times, and at 3.0 TB/s in lockstep. With more rows per tile than
/// a step of decoding has, memory is no limit. Blocks that all end at once then lost 3 to 4 % (full prefill
/// of 4K and 8K tokens, heads of 64).
int headsInLockstep(int rows, std::span<const Store> stores, int heads, int blocks) {
  constexpr int64_t shortLine = 256;
  if (rows > stepRows)
    return 1;
  const bool areShort = std::any_of(stores.begin(), stores.end(), [](const Store &store) {
    return !store.ragged && (store.keys.format.rowBytes(store.keys.dim) < shortLine ||
                             store.values.format.rowBytes(store.values.dim) < shortLine);
  });
  // At most a thirty-second of the blocks may be without work.
  return areShort && heads > 0 && blocks / heads * heads >= blocks - blocks / 32 ? heads : 1;
}

static int lockstepOf(const Work &work, int rows, int shares) {
  if (work.workTiles.empty())
    return 1;
  const OrdinalRange ordinals = work.workTiles.front().ordinals;
  const bool alike = std::all_of(work.workTiles.begin(), work.workTiles.end(), [&](const WorkTile &workTile) {
    return workTile.ordinals.begin == ordinals.begin && workTile.ordinals.end == ordinals.end;
  });
  return alike ? headsInLockstep(rows, work.stores, ordinals.count(), shares) : 1;
}

/// The smallest share of cost that suffices. The total for some share size changes little with the size, so
/// that one walk nearly tells the next size to try: three or four walks suffice where bisection takes eight.
/// Sizes that are too small stay below `low`.
int64_t Balancer::smallestShare(const Work &work, int64_t total, int shares) const {
  const auto costIn = [&](int64_t share) {
    return cutList(work, share, std::numeric_limits<int>::max(), 1,
                   [](int, size_t, int32_t, int64_t, int64_t, int64_t) {});
  };
  // At least one tile of a task that is cut must fit.
  int64_t low = std::max(equalShare(total, shares), costOfTask(cost_->fixed + cost_->partial, 1));
  int64_t high = low, cost = costIn(high);
  while (cost > high * shares) {
    low = high + 1;
    high = equalShare(cost, shares);
    cost = costIn(high);
  }
  for (int tries = 0; low < high; ++tries) {
    const int64_t next =
        tries < 3 ? std::clamp(equalShare(cost, shares), low, high - 1) : low + (high - low) / 2;
    cost = costIn(next);
    if (cost <= next * shares)
      high = next;
    else
      low = next + 1;
  }
  return high;
}

/// Cuts by the smallest share that suffices.
void Balancer::cut(const Work &work, int64_t total, int shares, Assignment &out) {
  lockstep_ = lockstepOf(work, rows_, shares);
  total /= lockstep_;
  shares /= lockstep_;
  spreadShort(work, total, shares);
  const auto fits = [&](int64_t share, int64_t leastPart) {
    return cutList(work, share, shares, leastPart, [](int, size_t, int32_t, int64_t, int64_t, int64_t) {}) >=
           0;
  };
  const int64_t high = smallestShare(work, total, shares);
  // A share that ends near the end of a task leaves a part shorter than the shortest share. Such parts are
  // avoided if balance stays within a tile and a task's overhead. Otherwise they stay: they are fewer than
  // the shares.
  const int64_t slack = costOfTask(cost_->fixed + cost_->partial, 1);
  for (int64_t more : {int64_t{0}, tileCost / 2, tileCost})
    if (fits(high + more, cost_->shareTiles)) {
      fill(work, high + more, shares, cost_->shareTiles, out);
      int64_t sum = 0, used = 0;
      for (int64_t load : loads_) {
        sum += load;
        used += load > 0;
      }
      if ((*std::max_element(loads_.begin(), loads_.end()) - slack) * used <= sum)
        return;
    }
  fill(work, high, shares, 1, out);
}

void Balancer::fill(const Work &work, int64_t share, int shares, int64_t leastPart, Assignment &out) {
  out.pieces.clear();
  out.parts.resize(work.workTiles.size()); // whole work tiles come first, then each cut piece
  for (size_t u = 0; u < work.workTiles.size(); ++u)
    out.parts[u] = {static_cast<int32_t>(u), 0, work.workTiles[u].tiles, true};
  out.blockTasks.assign(static_cast<size_t>(blocks_) + 1, 0);
  loads_.assign(static_cast<size_t>(blocks_), 0);
  out.cuts = 0;
  size_t first = 0; // index of the share's first piece
  int current = 0;
  // Repeats a share for the other heads of blocks in lockstep.
  const auto repeat = [&] {
    const size_t end = out.pieces.size();
    for (int head = 1; head < lockstep_; ++head)
      for (size_t p = first; p < end; ++p) {
        Piece piece = out.pieces[p];
        const PieceTiles tiles = out.parts[static_cast<size_t>(piece.part)];
        if (!tiles.whole) {
          piece.part = static_cast<int32_t>(out.parts.size());
          out.parts.push_back(tiles);
        }
        piece.ordinal += head;
        out.pieces.push_back(piece);
        out.cuts += tiles.tileBegin > 0;
      }
    for (int head = 1; head < lockstep_; ++head) {
      const auto block = static_cast<size_t>(current) * static_cast<size_t>(lockstep_);
      out.blockTasks[block + static_cast<size_t>(head) + 1] = out.blockTasks[block + 1];
      loads_[block + static_cast<size_t>(head)] = loads_[block];
    }
    first = out.pieces.size();
  };
  cutList(work, share, shares, leastPart,
          [&](int next, size_t u, int32_t ordinal, int64_t begin, int64_t end, int64_t cost) {
            if (next != current) {
              repeat();
              current = next;
            }
            const WorkTile &workTile = work.workTiles[u];
            const auto block = static_cast<size_t>(current) * static_cast<size_t>(lockstep_);
            const bool whole = begin == 0 && end == workTile.tiles;
            out.pieces.push_back({static_cast<int32_t>(whole ? u : out.parts.size()), ordinal});
            if (!whole)
              out.parts.push_back(
                  {static_cast<int32_t>(u), static_cast<int32_t>(begin), static_cast<int32_t>(end), false});
            out.cuts += begin > 0;
            ++out.blockTasks[block + 1];
            loads_[block] += cost;
          });
  repeat();
  for (size_t b = 1; b < out.blockTasks.size(); ++b)
    out.blockTasks[b] += out.blockTasks[b - 1];
}

} // namespace attn::rt

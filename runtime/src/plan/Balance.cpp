//===- Balance.cpp - Tasks are cut and dealt out --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Balance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

namespace attn::rt {

namespace {

// Results written directly are worth this much estimated time: less traffic, one launch, no partials.
constexpr double directBonus = 1.03;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace

int64_t Balancer::taskCost(const Unit &unit) const {
  return cost_->fixed + (unit.partial ? cost_->partialOf(unit.packedCount) : 0) +
         CostModel::tile * unit.tiles;
}

void Balancer::listWhole(const Work &work) {
  parts_.clear();
  for (const Unit &unit : work.units)
    parts_.push_back({taskCost(unit), static_cast<int32_t>(parts_.size()), 0, unit.tiles});
}

/// Units cut at multiples of the chunk, whatever else is in the batch.
void Balancer::listChunks(const Work &work, int64_t chunk, int keys) {
  parts_.clear();
  for (size_t u = 0; u < work.units.size(); ++u) {
    const Unit &unit = work.units[u];
    int32_t begin = 0; // of the part at hand, in tiles of the unit
    const auto add = [&](int32_t end) {
      const int64_t cost =
          begin == 0 && end == unit.tiles
              ? taskCost(unit)
              : cost_->fixed + cost_->partialOf(unit.packedCount) + CostModel::tile * (end - begin);
      parts_.push_back({cost, static_cast<int32_t>(u), begin, end});
      begin = end;
    };
    int32_t first = 0; // tile number of the segment's first tile
    for (int32_t s = unit.segmentBegin; s < unit.segmentEnd; ++s) {
      const PlanSegment &segment = work.segments[static_cast<size_t>(s)];
      const int64_t origin = chunkOrigin(segment, work.fixedSplit);
      int64_t next = ((origin + segment.kvBegin) / chunk + 1) * chunk - origin;
      for (; next < segment.kvEnd; next += chunk)
        if (const auto end = static_cast<int32_t>(first + ceilDiv(next - segment.kvBegin, keys)); end > begin)
          add(end);
      first += static_cast<int32_t>(ceilDiv(segment.kvEnd - segment.kvBegin, keys));
      if (work.fixedSplit && first > begin)
        add(first);
    }
    if (begin < unit.tiles || unit.tiles == 0)
      add(unit.tiles);
  }
}

/// Longest first; of equals as they were. Costs are whole and small: two or three rounds by a byte of theirs,
/// where comparing would be half the time of a plan of ragged heads.
void Balancer::sortParts() {
  constexpr int bits = 8, buckets = 1 << bits;
  int64_t most = 0;
  for (const Part &part : parts_)
    most = std::max(most, part.cost);
  for (int shift = 0; most >> shift > 0; shift += bits) {
    const auto bucketOf = [&](const Part &part) {
      return static_cast<size_t>(buckets - 1 - ((part.cost >> shift) & (buckets - 1)));
    };
    std::array<int32_t, buckets> next{};
    for (const Part &part : parts_)
      ++next[bucketOf(part)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), 0);
    sorted_.resize(parts_.size());
    for (const Part &part : parts_)
      sorted_[static_cast<size_t>(next[bucketOf(part)]++)] = part;
    std::swap(parts_, sorted_);
  }
}

/// In the order of sections, longest first, each to the block with the least to do (of equals the first).
/// Returns the largest load.
int64_t Balancer::deal(const Work &work, int64_t l2Bytes) {
  const auto blocks = static_cast<size_t>(blocks_);
  sortParts();
  sections_.order(work, parts_, l2Bytes, blocks_, turns_);
  // A tournament of (load, block) in one word: a node holds the lesser of its children, the root the least.
  // Its loop is as long for every task and branches on nothing that it reads, which a heap's does.
  const size_t leaves = std::bit_ceil(blocks);
  tournament_.assign(2 * leaves, std::numeric_limits<uint64_t>::max());
  std::iota(tournament_.begin() + static_cast<int64_t>(leaves),
            tournament_.begin() + static_cast<int64_t>(leaves + blocks), uint64_t{0});
  for (size_t node = leaves - 1; node > 0; --node)
    tournament_[node] = std::min(tournament_[2 * node], tournament_[2 * node + 1]);
  loads_.assign(blocks, 0);
  blockOf_.clear();
  for (const Turn &turn : turns_) {
    const Part &next = parts_[static_cast<size_t>(turn.part)];
    for (int32_t ordinal = turn.ordinalBegin; ordinal < turn.ordinalEnd; ++ordinal) {
      uint64_t load = tournament_[1] + (static_cast<uint64_t>(next.cost) << 20);
      const size_t block = load & ((1u << 20) - 1);
      blockOf_.push_back(static_cast<int32_t>(block));
      loads_[block] += next.cost;
      tournament_[leaves + block] = load;
      for (size_t node = leaves + block; node > 1; node /= 2) {
        load = std::min(load, tournament_[node ^ 1]);
        tournament_[node / 2] = load;
      }
    }
  }
  return *std::max_element(loads_.begin(), loads_.end());
}

void Balancer::emitDealt(const Work &work, Assignment &out) {
  out.blockTasks.assign(static_cast<size_t>(blocks_) + 1, 0);
  for (int32_t block : blockOf_)
    ++out.blockTasks[static_cast<size_t>(block) + 1];
  for (size_t b = 1; b < out.blockTasks.size(); ++b)
    out.blockTasks[b] += out.blockTasks[b - 1];
  out.pieces.resize(blockOf_.size());
  out.parts = static_cast<int32_t>(parts_.size());
  out.cuts = 0;
  nextPiece_.assign(out.blockTasks.begin(), out.blockTasks.end());
  auto block = blockOf_.begin();
  for (const Turn &turn : turns_) {
    const Part &part = parts_[static_cast<size_t>(turn.part)];
    const bool whole =
        part.tileBegin == 0 && part.tileEnd == work.units[static_cast<size_t>(part.unit)].tiles;
    out.cuts += part.tileBegin > 0 ? turn.ordinalEnd - turn.ordinalBegin : 0;
    for (int32_t ordinal = turn.ordinalBegin; ordinal < turn.ordinalEnd; ++ordinal)
      out.pieces[static_cast<size_t>(nextPiece_[static_cast<size_t>(*block++)]++)] = {
          part.unit, ordinal, part.tileBegin, part.tileEnd, turn.part, whole};
  }
}

/// Walks the list of tasks and fills one share after the other up to a cost of `share`, cutting between
/// tiles. Filling as far as possible is optimal: a tile moved to a later share never makes the rest fit
/// better. Parts made by a cut have at least `leastPart` tiles. Returns whether `shares` were enough; calls
/// sink(share, unit, ordinal, begin, end).
template <typename Sink>
bool Balancer::cutList(const Work &work, int64_t share, int shares, int64_t leastPart, Sink sink) const {
  const int64_t fixed = cost_->fixed, tile = CostModel::tile;
  int current = 0;
  int32_t rows = -1; // of the unit before, which nearly always has as many
  int64_t load = 0, cutOverhead = 0;
  for (size_t u = 0; u < work.units.size(); ++u) {
    const Unit &unit = work.units[u];
    if (unit.packedCount != rows) {
      rows = unit.packedCount;
      cutOverhead = fixed + cost_->partialOf(rows);
    }
    const int64_t overhead = unit.partial ? cutOverhead : fixed;
    const int32_t ordinals = abreast_ > 1 ? unit.ordinals.begin + 1 : unit.ordinals.end;
    for (int32_t ordinal = unit.ordinals.begin; ordinal < ordinals; ++ordinal) {
      int64_t begin = 0;
      for (;;) {
        const int64_t rest = unit.tiles - begin;
        const int64_t whole = (begin ? cutOverhead : overhead) + tile * rest;
        if (load + whole <= share) {
          sink(current, u, ordinal, begin, begin + rest);
          load += whole;
          break;
        }
        int64_t part = (share - load - cutOverhead) / tile;
        if (rest - part < leastPart)
          part = rest - leastPart;
        if (share - load < cutOverhead || part < leastPart) {
          if (load == 0 || ++current == shares)
            return false;
          load = 0;
          continue;
        }
        sink(current, u, ordinal, begin, begin + part);
        begin += part;
        if (++current == shares)
          return false;
        load = 0;
      }
    }
  }
  return true;
}

/// Heads that neighbouring blocks walk abreast. Memory hands over 64 bytes at once. Where a head has less of
/// a token, its neighbours have the rest, which is read again if they come by later: int4 / int2 keys and
/// values of heads of 128 in 632 tasks made an H200 read 1.31 times what there was.
static int abreastOf(const Work &work, int shares) {
  constexpr int64_t burstBytes = 64;
  const auto isShort = [](const Store &store) {
    return !store.ragged && (store.keys.format.rowBytes(store.keys.dim) < burstBytes ||
                             store.values.format.rowBytes(store.values.dim) < burstBytes);
  };
  if (work.units.empty() || std::none_of(work.stores.begin(), work.stores.end(), isShort))
    return 1;
  const OrdinalRange ordinals = work.units.front().ordinals;
  const bool alike = std::all_of(work.units.begin(), work.units.end(), [&](const Unit &unit) {
    return unit.ordinals.begin == ordinals.begin && unit.ordinals.end == ordinals.end;
  });
  const int heads = ordinals.count();
  // No more than a thirty-second of the blocks may have nothing to do.
  return alike && heads > 0 && shares / heads * heads >= shares - shares / 32 ? heads : 1;
}

/// Finds the smallest share of cost that is enough, and cuts by it.
void Balancer::cut(const Work &work, int64_t total, int shares, Assignment &out) {
  abreast_ = abreastOf(work, shares);
  total /= abreast_;
  shares /= abreast_;
  const auto fits = [&](int64_t share, int64_t leastPart) {
    return cutList(work, share, shares, leastPart, [](int, size_t, int32_t, int64_t, int64_t) {});
  };
  int64_t low = ceilDiv(total, shares), step = CostModel::tile + cost_->fixed + cost_->partial;
  low = std::max(low, step); // one tile of a cut task must fit
  int64_t high = low;
  while (!fits(high, 1)) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle, 1))
      high = middle;
    else
      low = middle + 1;
  }
  // Parts shorter than the shortest share, left where a share ends near the end of a task, are avoided where
  // balance stays within a tile and a task's overhead. Where it does not they stay: they are fewer than the
  // shares.
  const int64_t slack = CostModel::tile + cost_->fixed + cost_->partial;
  for (int64_t more : {int64_t{0}, CostModel::tile / 2, CostModel::tile})
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
  out.parts = static_cast<int32_t>(work.units.size());
  out.blockTasks.assign(static_cast<size_t>(blocks_) + 1, 0);
  loads_.assign(static_cast<size_t>(blocks_), 0);
  out.cuts = 0;
  size_t first = 0; // piece of the share
  int current = 0;
  // The other blocks of a share that heads walk abreast.
  const auto repeat = [&] {
    const size_t end = out.pieces.size();
    for (int head = 1; head < abreast_; ++head)
      for (size_t p = first; p < end; ++p) {
        Piece piece = out.pieces[p];
        piece.ordinal += head;
        out.pieces.push_back(piece);
        out.cuts += piece.tileBegin > 0;
      }
    for (int head = 1; head < abreast_; ++head) {
      const auto block = static_cast<size_t>(current) * static_cast<size_t>(abreast_);
      out.blockTasks[block + static_cast<size_t>(head) + 1] = out.blockTasks[block + 1];
      loads_[block + static_cast<size_t>(head)] = loads_[block];
    }
    first = out.pieces.size();
  };
  cutList(
      work, share, shares, leastPart, [&](int next, size_t u, int32_t ordinal, int64_t begin, int64_t end) {
        if (next != current) {
          repeat();
          current = next;
        }
        const Unit &unit = work.units[u];
        const auto block = static_cast<size_t>(current) * static_cast<size_t>(abreast_);
        const bool whole = begin == 0 && end == unit.tiles;
        out.pieces.push_back({static_cast<int32_t>(u), ordinal, static_cast<int32_t>(begin),
                              static_cast<int32_t>(end), whole ? static_cast<int32_t>(u) : -1, whole});
        out.cuts += begin > 0;
        ++out.blockTasks[block + 1];
        loads_[block] += cost_->fixed + (whole && !unit.partial ? 0 : cost_->partialOf(unit.packedCount)) +
                         CostModel::tile * (end - begin);
      });
  repeat();
  for (size_t b = 1; b < out.blockTasks.size(); ++b)
    out.blockTasks[b] += out.blockTasks[b - 1];
}

/// Deals tasks out whole or cuts the list into shares, whichever takes less time.
void Balancer::chooseShares(const Work &work, int64_t l2Bytes, Assignment &out) {
  int64_t total = 0, largest = 0, cuttable = 0;
  for (const Unit &unit : work.units) {
    const int64_t cost = taskCost(unit);
    total += cost * unit.ordinals.count();
    largest = std::max(largest, cost);
    if (unit.tiles > cost_->shareTiles)
      cuttable += cost * unit.ordinals.count();
  }

  // How many shares: each one more shortens the walk and lengthens the merge, by the two parts of a result
  // that was written directly. Where units are shared there are parts already: then a share more costs one,
  // where it ends in a task that is long enough to be cut, and results written directly are worth nothing.
  const double partsPerShare = work.shared ? static_cast<double>(cuttable) / static_cast<double>(total) : 2;
  const double bonus = work.shared ? 1 : directBonus;
  const int64_t mostShares = std::min<int64_t>(blocks_, work.tiles / cost_->shareTiles);
  int shares = 0;
  double cutSeconds = std::numeric_limits<double>::infinity();
  for (int64_t candidate = mostShares; candidate > 1; candidate -= ceilDiv(candidate, 4)) {
    const double perShare = static_cast<double>(total) / static_cast<double>(candidate) +
                            static_cast<double>(cost_->fixed + cost_->partial) + 0.5 * CostModel::tile;
    const double seconds = std::max(perShare * cost_->secondsPerCost, cost_->cutSeconds) +
                           (work.shared ? 0 : cost_->mergeSeconds) +
                           partsPerShare * static_cast<double>(candidate) * cost_->secondsPerPart;
    if (seconds < cutSeconds) {
      cutSeconds = seconds;
      shares = static_cast<int>(candidate);
    }
  }
  const auto direct = [&](int64_t load) { return static_cast<double>(load) * cost_->secondsPerCost; };
  const double leastDirect = direct(std::max(largest, ceilDiv(total, blocks_)));
  bool whole = leastDirect <= bonus * cutSeconds;
  if (whole) {
    listWhole(work);
    whole = direct(deal(work, l2Bytes)) <= bonus * cutSeconds;
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
  cost_.emplace(manifest, kernel, work, blocks, *options.gpu);
  const int64_t chunk = chunkOf(options);
  const bool whole = options.strategy == Strategy::ByNode || manifest.plansWhole();
  if (chunk > 0)
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

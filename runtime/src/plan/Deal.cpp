//===- Deal.cpp - Parts are assigned to blocks ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Balance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

namespace attn::rt {

/// Sorts parts, longest first; equal parts keep their order. Costs are small integers: two or three rounds of
/// a radix sort by bytes suffice, while comparisons would take half the time of a plan of ragged heads.
void Balancer::sortParts() {
  constexpr int bits = 8, buckets = 1 << bits;
  if (std::is_sorted(parts_.begin(), parts_.end(),
                     [](const Part &a, const Part &b) { return a.cost > b.cost; }))
    return;
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

/// A load and its block in one word that can be compared.
static constexpr int blockBits = 20;
static uint64_t loaded(uint64_t word, int64_t cost) {
  return word + (static_cast<uint64_t>(cost) << blockBits);
}
static size_t blockOf(uint64_t word) { return word & ((1u << blockBits) - 1); }

/// Assigns by a tournament: a node holds the lesser of its children, the root the least. Its loop has the
/// same length for every task and no branch on data, unlike a heap's.
void Balancer::dealByTournament() {
  const auto blocks = static_cast<size_t>(blocks_);
  const size_t leaves = std::bit_ceil(blocks);
  tournament_.assign(2 * leaves, std::numeric_limits<uint64_t>::max());
  std::iota(tournament_.begin() + static_cast<int64_t>(leaves),
            tournament_.begin() + static_cast<int64_t>(leaves + blocks), uint64_t{0});
  for (size_t node = leaves - 1; node > 0; --node)
    tournament_[node] = std::min(tournament_[2 * node], tournament_[2 * node + 1]);
  for (const Turn &turn : turns_) {
    const Part &next = parts_[static_cast<size_t>(turn.part)];
    for (int32_t ordinal = turn.ordinalBegin; ordinal < turn.ordinalEnd; ++ordinal) {
      uint64_t load = loaded(tournament_[1], next.cost);
      const size_t block = blockOf(load);
      blockOf_.push_back(static_cast<int32_t>(block));
      loads_[block] += next.cost;
      tournament_[leaves + block] = load;
      for (size_t node = leaves + block; node > 1; node /= 2) {
        load = std::min(load, tournament_[node ^ 1]);
        tournament_[node / 2] = load;
      }
    }
  }
}

/// Assigns by two queues. Each of the tasks with equal cost goes to the least of both: blocks in the order of
/// their loads, and blocks that have got such a task meanwhile, whose loads rise, too. Before tasks of
/// another cost the queues are merged. Each block is in one of the queues, and both end in a word that is
/// greater than any other.
void Balancer::dealByQueues(size_t tasks) {
  constexpr uint64_t last = std::numeric_limits<uint64_t>::max();
  const auto blocks = static_cast<size_t>(blocks_);
  ordered_.resize(blocks + 1);
  merged_.resize(blocks + 1);
  std::iota(ordered_.begin(), ordered_.end() - 1, uint64_t{0});
  ordered_.back() = merged_.back() = last;
  given_.resize(std::max(given_.size(), tasks + 1));
  blockOf_.resize(tasks);
  const uint64_t *next = ordered_.data();        // of the blocks in order
  uint64_t *first = given_.data(), *end = first; // of the blocks that got a task
  *end = last;
  int32_t *block = blockOf_.data();
  int64_t cost = -1;
  for (const Turn &turn : turns_) {
    if (const Part &part = parts_[static_cast<size_t>(turn.part)]; part.cost != cost) {
      cost = part.cost;
      std::merge(next, const_cast<const uint64_t *>(ordered_.data() + blocks), first, end, merged_.begin());
      ordered_.swap(merged_);
      next = ordered_.data();
      first = end = given_.data();
      *end = last;
    }
    for (int32_t ordinal = turn.ordinalBegin; ordinal < turn.ordinalEnd; ++ordinal) {
      const bool isGiven = *first < *next;
      const uint64_t least = isGiven ? *first : *next;
      first += isGiven;
      next += !isGiven;
      *end++ = loaded(least, cost);
      *end = last;
      *block++ = static_cast<int32_t>(blockOf(least));
    }
  }
  const auto note = [&](uint64_t word) { loads_[blockOf(word)] = static_cast<int64_t>(word >> blockBits); };
  std::for_each(next, const_cast<const uint64_t *>(ordered_.data() + blocks), note);
  std::for_each(first, end, note);
}

/// Assigns parts in the order of sections, longest first, each to the block with the least work (of equals
/// the first). Returns the largest load.
int64_t Balancer::deal(const Work &work, int64_t l2Bytes) {
  sortParts();
  sections_.order(work, parts_, l2Bytes, blocks_, turns_);
  loads_.assign(static_cast<size_t>(blocks_), 0);
  blockOf_.clear();
  // Merging takes a step per block, a tournament ten per task.
  int64_t tasks = 0, costs = 0, last = -1;
  for (const Turn &turn : turns_) {
    const int64_t cost = parts_[static_cast<size_t>(turn.part)].cost;
    costs += std::exchange(last, cost) != cost;
    tasks += turn.ordinalEnd - turn.ordinalBegin;
  }
  if (4 * tasks >= costs * blocks_)
    dealByQueues(static_cast<size_t>(tasks));
  else
    dealByTournament();
  return *std::max_element(loads_.begin(), loads_.end());
}

void Balancer::emitDealt(const Work &work, Assignment &out) {
  out.blockTasks.assign(static_cast<size_t>(blocks_) + 1, 0);
  for (int32_t block : blockOf_)
    ++out.blockTasks[static_cast<size_t>(block) + 1];
  for (size_t b = 1; b < out.blockTasks.size(); ++b)
    out.blockTasks[b] += out.blockTasks[b - 1];
  out.parts.resize(parts_.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part &part = parts_[p];
    const bool whole =
        part.tileBegin == 0 && part.tileEnd == work.workTiles[static_cast<size_t>(part.workTile)].tiles;
    out.parts[p] = {part.workTile, part.tileBegin, part.tileEnd, whole};
  }
  out.pieces.resize(blockOf_.size());
  out.cuts = 0;
  nextPiece_.assign(out.blockTasks.begin(), out.blockTasks.end());
  auto block = blockOf_.begin();
  for (const Turn &turn : turns_) {
    if (parts_[static_cast<size_t>(turn.part)].tileBegin > 0)
      out.cuts += turn.ordinalEnd - turn.ordinalBegin;
    for (int32_t ordinal = turn.ordinalBegin; ordinal < turn.ordinalEnd; ++ordinal)
      out.pieces[static_cast<size_t>(nextPiece_[static_cast<size_t>(*block++)]++)] = {turn.part, ordinal};
  }
}

} // namespace attn::rt

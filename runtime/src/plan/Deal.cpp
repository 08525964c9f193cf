//===- Deal.cpp - Parts are dealt out to blocks ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Balance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

namespace attn::rt {

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

} // namespace attn::rt

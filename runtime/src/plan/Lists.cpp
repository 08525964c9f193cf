//===- Lists.cpp - Tokens of many short instances as one segment ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The speculated tokens of a tree are many short instances, each seen by few rows.
// As segments of their own, each would be a nearly empty tile of keys; all rows of a
// tile of queries together see little more than one tile of them:
//
//     rows      a tile of 32 rows in depth-first order
//     tokens    their own 32, and the path above the first
//
// If pages hold one token, a block table is a list of slots, and so the plan can write a
// list of its own: every token that some row of the tile sees, once. The tokens that a row
// sees are then no interval of positions: bits say it, computed from the visibility here,
// on the host. A segment over such a list has the instance -1, and its tokens are entries
// of `slots`. `bits` holds a word for 32 tokens of the list and one row of the tile, rows
// side by side.
//
// A list does not hold the positions of its tokens. Kernels whose scores depend on a
// key's position do not read lists.
//
//===----------------------------------------------------------------------===//
#include "plan/WorkTiles.h"

#include <algorithm>

namespace attn::rt {

namespace {

constexpr int64_t bitsOfWord = 32;

/// The most key tiles of a list: instances with more tokens fill tiles of their own.
constexpr int64_t mostTiles = 2;

int64_t roundUp(int64_t value, int64_t multiple) { return ceilDiv(value, multiple) * multiple; }

} // namespace

int64_t listTokensBound(const KernelInfo &kernel) {
  return takesLists(kernel) ? roundUp(mostTiles * kernel.keys, bitsOfWord) : 0;
}

int64_t listBitsBound(const KernelInfo &kernel, int group) {
  return listTokensBound(kernel) / bitsOfWord * listRows(kernel, group);
}

int64_t listRows(const KernelInfo &kernel, int group) { return (kernel.rows + group - 1) / group; }

bool takesLists(const KernelInfo &kernel) {
  return std::any_of(kernel.params.begin(), kernel.params.end(),
                     [](const Parameter &param) { return param.name == planArrayName(PlanArray::Slots); });
}

/// Whether the tokens that a group alone sees may be in a list.
bool WorkTileBuilder::listable(const Group &group) const {
  if (group.workTiles == 0 || group.seenBegin == group.seenEnd)
    return false; // rows that see nothing else are sequences: their tokens fill tiles
  for (int32_t s = group.seenBegin; s < group.seenEnd; ++s) {
    const Seen &seen = seen_[static_cast<size_t>(s)];
    if (!storeOf(argumentOf(seen.operand)).hasSingleTokens() ||
        seen.operand != seen_[static_cast<size_t>(group.seenBegin)].operand)
      return false;
  }
  return true;
}

/// Adds the tokens that the rows of a group see to the list, with rows counted from `firstRow`. Returns
/// false, without adding any, if the list would get too long.
bool WorkTileBuilder::addToList(const Group &group, int32_t firstRow, const KernelInfo &kernel) {
  const size_t before = list_.size();
  for (int32_t s = group.seenBegin; s < group.seenEnd; ++s) {
    const Seen &seen = seen_[static_cast<size_t>(s)];
    const OperandBatch &operand = batch_->operands[static_cast<size_t>(seen.operand)];
    const auto instance = static_cast<size_t>(seen.instance);
    const int32_t *table = operand.blockTable.data() + static_cast<int64_t>(listOf(seen)) * operand.maxPages;
    for (int32_t row = group.rowBegin; row < group.rowEnd; ++row) {
      const int64_t position = batch_->qPos[static_cast<size_t>(row)];
      possiblePositions(visibilityOf(seen.operand), ends_, position, position, possible_);
      toTokens(possible_, operand.pos0[instance], lengthOf(seen));
      for (const Interval &range : possible_)
        for (int64_t token = range.begin; token < range.end; ++token) {
          // Lists are short: a search is faster than a table. A slot that a row sees twice, by two instances
          // or by two entries of a table, counts twice.
          const int32_t ofTile = row - firstRow;
          auto known = std::find_if(list_.begin(), list_.end(), [&](const Listed &other) {
            return other.slot == table[token] &&
                   std::find(other.rows.begin(), other.rows.end(), ofTile) == other.rows.end();
          });
          if (known == list_.end())
            known = list_.insert(known, Listed{table[token], {}});
          known->rows.push_back(ofTile);
        }
    }
  }
  if (list_.size() <= static_cast<size_t>(mostTiles * kernel.keys))
    return true;
  list_.resize(before);
  for (Listed &token : list_)
    while (!token.rows.empty() && token.rows.back() >= group.rowBegin - firstRow)
      token.rows.pop_back();
  return false;
}

/// Joins the groups from `g` on whose rows fill a tile into one work tile over a list. Returns the index
/// after them; `g` if the list would serve a single group, or be empty.
size_t WorkTileBuilder::addListed(const OrdinalRange &ordinals, size_t g, Work &work) {
  const KernelInfo &kernel = manifest_->kernels[static_cast<size_t>(work.kernel)];
  const auto group = static_cast<int64_t>(manifest_->groupSize());
  const int32_t firstRow = groups_[g].rowBegin;
  list_.clear();
  size_t end = g;
  while (end < groups_.size() && (groups_[end].rowEnd - firstRow) * group <= kernel.rows &&
         listable(groups_[end]) &&
         seen_[static_cast<size_t>(groups_[end].seenBegin)].operand ==
             seen_[static_cast<size_t>(groups_[g].seenBegin)].operand &&
         addToList(groups_[end], firstRow, kernel))
    ++end;
  if (end - g < 2 || list_.empty())
    return g;

  const Seen &first = seen_[static_cast<size_t>(groups_[g].seenBegin)];
  const int64_t rows = listRows(kernel, manifest_->groupSize());
  const auto begin = static_cast<int32_t>(work.slots.size()), tokens = static_cast<int32_t>(list_.size());
  // Pads to whole words and whole tiles: kernels read the bits of a tile's last tokens, which no row sees.
  const int64_t room = roundUp(roundUp(tokens, kernel.keys), bitsOfWord);
  work.slots.resize(work.slots.size() + static_cast<size_t>(room));
  work.bits.resize(work.slots.size() / bitsOfWord * static_cast<size_t>(rows));
  auto place = static_cast<size_t>(begin);
  for (const Listed &token : list_) {
    work.slots[place] = token.slot;
    const size_t word = place / bitsOfWord * static_cast<size_t>(rows);
    for (int32_t row : token.rows)
      work.bits[word + static_cast<size_t>(row)] |= 1u << (place % bitsOfWord);
    ++place;
  }

  const int32_t rowEnd = groups_[end - 1].rowEnd;
  addWorkTiles(ordinals, firstRow, rowEnd, {}, true, true, work);
  WorkTile &workTile = work.workTiles.back();
  workTile.follows = false; // bits say which row sees which token
  const bool ofClass = argumentOf(first.operand).headClass >= 0;
  work.segments.push_back({.operand = first.operand,
                           .instance = -1,
                           .kvBegin = begin,
                           .kvEnd = begin + tokens,
                           .fullBegin = begin,
                           .fullEnd = begin,
                           .pos0 = first.instance,
                           .firstOrdinal = ofClass ? ordinals.classBegin : 0});
  workTile.segmentEnd = static_cast<int32_t>(work.segments.size());
  workTile.tiles = ceilDiv(tokens, kernel.keys);
  work.tiles += int64_t{workTile.tiles} * ordinals.count();
  rangeTokens_ += tokens;
  return end;
}

} // namespace attn::rt

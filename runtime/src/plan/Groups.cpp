//===- Groups.cpp - Rows that see the same, and what is shared ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/WorkTiles.h"

#include <algorithm>

namespace attn::rt {

/// Finds groups of rows: rows between two neighbouring boundaries see the same instances.
void WorkTileBuilder::findGroups() {
  isBoundary_.assign(static_cast<size_t>(batch_->rows) + 1, false);
  for (int32_t row : batch_->qStart)
    isBoundary_[static_cast<size_t>(row)] = true;
  for (const OperandBatch &operand : batch_->operands)
    for (size_t i = 0, count = operand.instances(); i < count; ++i)
      if (operand.rowFirst[i] < operand.rowLast[i])
        isBoundary_[static_cast<size_t>(operand.rowFirst[i])] =
            isBoundary_[static_cast<size_t>(operand.rowLast[i])] = true;
  boundaries_.clear();
  for (size_t row = 0; row < isBoundary_.size(); ++row)
    if (isBoundary_[row])
      boundaries_.push_back(static_cast<int32_t>(row));
  groups_.clear();
  groupOfRow_.resize(static_cast<size_t>(batch_->rows) + 1);
  for (size_t i = 1; i < boundaries_.size(); ++i) {
    for (int32_t row = boundaries_[i - 1]; row < boundaries_[i]; ++row)
      groupOfRow_[static_cast<size_t>(row)] = static_cast<int32_t>(groups_.size());
    const RowPositions rows = positionsOf(boundaries_[i - 1], boundaries_[i]);
    groups_.push_back({boundaries_[i - 1], boundaries_[i], rows.least, rows.greatest});
  }
  groupOfRow_[static_cast<size_t>(batch_->rows)] = static_cast<int32_t>(groups_.size());
  nested_.clear();
  for (size_t o = 0; o < batch_->operands.size(); ++o) {
    const OperandBatch &operand = batch_->operands[o];
    for (size_t i = 0, count = operand.instances(); i < count; ++i)
      if (groupOfRow_[static_cast<size_t>(operand.rowLast[i])] -
              groupOfRow_[static_cast<size_t>(operand.rowFirst[i])] >
          1)
        nested_.push_back({static_cast<int32_t>(o), static_cast<int32_t>(i)});
  }
}

/// Whether one work tile for all rows is better than work tiles for each group. It saves the bytes of K and V
/// of the tokens that every row sees. The rows then need partials (written and read, here and in the rows'
/// other work tiles, which would otherwise write results directly).
bool WorkTileBuilder::worthSharing(const Seen &seen, int64_t tileRows) {
  const OperandBatch &operand = batch_->operands[static_cast<size_t>(seen.operand)];
  const auto instance = static_cast<size_t>(seen.instance);
  const int64_t group = group_;
  const int64_t first = operand.rowFirst[instance], last = operand.rowLast[instance];
  const int32_t firstGroup = groupOfRow_[static_cast<size_t>(first)],
                lastGroup = groupOfRow_[static_cast<size_t>(last)];
  if (lastGroup - firstGroup < 2)
    return false;
  int64_t apart = 0, qMin = greatestPosition, qMax = leastPosition;
  for (int32_t g = firstGroup; g < lastGroup; ++g) {
    const Group &rows = groups_[static_cast<size_t>(g)];
    apart += tilesOfRows(int64_t{rows.rowEnd} - rows.rowBegin, group, tileRows);
    qMin = std::min<int64_t>(qMin, rows.leastPosition);
    qMax = std::max<int64_t>(qMax, rows.greatestPosition);
  }
  certainPositions(visibilityOf(seen.operand), ends_, qMin, qMax, certain_);
  toTokens(certain_, operand.pos0[instance], lengthOf(seen));
  const int64_t together = tilesOfRows(last - first, group, tileRows);
  const int64_t saved =
      (apart - together) * totalSize(certain_) * storeOf(argumentOf(seen.operand)).tokenBytes();
  const int64_t added = 2 * 2 * (last - first) * group * (manifest_->valueDim + 1) * 4;
  return saved > added;
}

/// Whether all rows that see some of an instance see the same tokens, and so the same segments together or
/// apart.
bool WorkTileBuilder::isSeenAlike(const Seen &seen) {
  const OperandBatch &operand = batch_->operands[static_cast<size_t>(seen.operand)];
  const auto i = static_cast<size_t>(seen.instance);
  const auto [least, greatest] = std::minmax_element(batch_->qPos.begin() + operand.rowFirst[i],
                                                     batch_->qPos.begin() + operand.rowLast[i]);
  possiblePositions(visibilityOf(seen.operand), ends_, *least, *greatest, possible_);
  toTokens(possible_, operand.pos0[i], lengthOf(seen));
  certainPositions(visibilityOf(seen.operand), ends_, *least, *greatest, certain_);
  toTokens(certain_, operand.pos0[i], lengthOf(seen));
  return !possible_.empty() && possible_ == certain_;
}

/// Whether the instance is a work tile of its own, with all rows that see it.
bool WorkTileBuilder::isShared(const Seen &seen, int64_t tileRows) {
  if (fixedSplit_ && strategy_ != Strategy::ByQuery && !isSeenAlike(seen))
    return false;
  switch (strategy_) {
  case Strategy::ByQuery:
    return false;
  case Strategy::ByNode:
  case Strategy::ByNodeChunk:
    return true;
  case Strategy::Flatten:
    break;
  }
  return worthSharing(seen, tileRows);
}

/// Adds each instance to the shared ones or to the list of every group that sees it (CSR by counting).
void WorkTileBuilder::spreadInstances(int64_t tileRows) {
  if (spreadClass_ == ordinals_.headClass) {
    if (!sharingDependsOnLengths())
      return;
    // Lengths decide only whether instances seen by several groups are shared. If all of them were shared and
    // still are, nothing else changes.
    if (allNestedShared_ && !fixedSplit_) {
      const auto isStill = [&](const Seen &seen) { return isShared(seen, tileRows); };
      if (std::all_of(shared_.begin(), shared_.end(), isStill))
        return;
    }
  }
  spreadClass_ = ordinals_.headClass;
  size_t seenNested = 0;
  for (const Seen &seen : nested_)
    seenNested += sees(static_cast<size_t>(seen.operand));
  shared_.clear();
  for (Group &group : groups_)
    group.seenBegin = group.seenEnd = group.workTiles = 0;
  for (int pass = 0; pass < 2; ++pass) {
    size_t nextShared = 0;
    for (size_t o = 0; o < batch_->operands.size(); ++o) {
      const OperandBatch &operand = batch_->operands[o];
      for (size_t i = 0, count = sees(o) ? operand.instances() : 0; i < count; ++i) {
        const Seen seen{static_cast<int32_t>(o), static_cast<int32_t>(i)};
        const auto first = static_cast<size_t>(groupOfRow_[static_cast<size_t>(operand.rowFirst[i])]);
        const auto last = static_cast<size_t>(groupOfRow_[static_cast<size_t>(operand.rowLast[i])]);
        if (operand.rowFirst[i] == operand.rowLast[i])
          continue;
        // Nothing is saved by sharing what one group sees.
        const bool mayShare = last - first > 1 || strategy_ != Strategy::Flatten;
        if (pass == 0 && mayShare && isShared(seen, tileRows)) {
          shared_.push_back(seen);
          for (size_t g = first; g < last; ++g)
            ++groups_[g].workTiles;
          continue;
        }
        if (pass == 1 && nextShared < shared_.size() && shared_[nextShared].operand == seen.operand &&
            shared_[nextShared].instance == seen.instance) {
          ++nextShared;
          continue;
        }
        for (size_t g = first; g < last; ++g) {
          if (pass == 0)
            ++groups_[g].seenEnd;
          else
            seen_[static_cast<size_t>(groups_[g].seenEnd++)] = seen;
        }
      }
    }
    if (pass == 1)
      break;
    int32_t total = 0;
    for (Group &group : groups_) {
      const int32_t count = group.seenEnd;
      group.seenBegin = group.seenEnd = total;
      total += count;
    }
    seen_.resize(static_cast<size_t>(total));
  }
  allNestedShared_ = strategy_ == Strategy::Flatten && shared_.size() == seenNested;
}

} // namespace attn::rt

//===- BatchUpdate.cpp - A batch whose nodes have grown -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/BatchState.h"

#include <algorithm>
#include <numeric>

namespace attn::rt {

/// Leaves have grown at their ends and nothing else has changed, so positions, lengths and rows of tables
/// change only at their ends. First checks that all of it fits.
bool BatchBuilder::State::update(CacheBatch &out) const {
  struct Growth {
    size_t instance;
    int32_t tokens, pages;
  };
  const auto growthOf = [&](size_t o, size_t group) {
    const auto instance = static_cast<size_t>(tails[o][group]);
    const OperandBatch &operand = out.batch.operands[o];
    const int32_t end = operand.pos0[instance] + operand.lengths[instance];
    const int32_t tokens = cache->at(groups[group].node.index).end() - end;
    return Growth{instance, tokens, cache->pagesFor(operand.lengths[instance] + tokens)};
  };
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].draft)
      return false;
    for (size_t o = 0; o < tails.size(); ++o)
      if (tails[o][group] >= 0 && growthOf(o, group).pages > out.batch.operands[o].maxPages)
        return false;
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    const Node &node = cache->at(groups[group].node.index);
    const auto positions = out.batch.qPos.begin() + firstRow[group];
    std::iota(positions, positions + groups[group].rows, node.end() - groups[group].rows);
    for (size_t o = 0; o < tails.size(); ++o) {
      if (tails[o][group] < 0)
        continue;
      OperandBatch &operand = out.batch.operands[o];
      const auto [instance, tokens, pages] = growthOf(o, group);
      const std::vector<int32_t> &held = node.runs[static_cast<size_t>(options.operands[o].headClass)].pages;
      const int32_t before = cache->pagesFor(operand.lengths[instance]);
      const auto row = operand.blockTable.begin() +
                       static_cast<int64_t>(instance) * static_cast<int64_t>(operand.maxPages);
      std::copy(held.end() - (pages - before), held.end(), row + before);
      operand.lengths[instance] += tokens;
    }
  }
  for (CacheBatch::Source &source : out.sources)
    source.count = source.log->count();
  out.watched.restart();
  return true;
}

bool BatchBuilder::update(const Cache &cache, CacheBatch &out) {
  const Cache::State &now = *cache.state_;
  return state_->serial == now.serial && state_->shape == now.shape && state_->update(out);
}

} // namespace attn::rt

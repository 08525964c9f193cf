//===- Floor.cpp - Bytes that a problem must move -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Visibility.h"
#include "attn_rt/plan/Plan.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// Tokens of one argument's store that some row sees, each counted once even if several instances or operands
/// name it.
struct Seen {
  std::vector<bool> tokens;
  int64_t count = 0;

  void add(int64_t token) {
    if (tokens.size() <= static_cast<size_t>(token))
      tokens.resize(static_cast<size_t>(token) + 1);
    count += !tokens[static_cast<size_t>(token)];
    tokens[static_cast<size_t>(token)] = true;
  }
};

bool needsPositions(const Visibility &visibility) {
  return dependsOnRow(visibility.kind) ||
         std::any_of(visibility.of.begin(), visibility.of.end(), needsPositions);
}

/// The number of pages of an instance that hold some of these tokens.
int64_t pagesOf(const IntervalList &tokens, const Store &store) {
  int64_t count = 0, next = 0;
  for (const Interval &range : tokens) {
    const int64_t last = store.entryOf(range.end - 1);
    count += last + 1 - std::max(store.entryOf(range.begin), next);
    next = last + 1;
  }
  return count;
}

int64_t sectors(int64_t bytes) { return (bytes + 31) / 32 * 32; }

} // namespace

ProblemFloor problemFloor(const Manifest &m, const Batch &batch) {
  const auto element = static_cast<int64_t>(dtypeSize(m.dtype));
  const std::vector<int32_t> &ends = batch.ends.empty() ? m.ends : batch.ends;
  ProblemFloor floor;
  floor.queryBytes = sectors(batch.rows * m.qHeads * m.keyDim * element) + sectors(m.gateBytes(batch.rows));
  floor.resultBytes = m.resultBytes(resultSizes(m, batch));
  floor.tableBytes = static_cast<int64_t>(batch.qStart.size()) * 4 + batch.otherBytes;

  // The heads of a range see the same tokens; each head has its own keys and values.
  const std::vector<OrdinalRange> ranges = ordinalRanges(m, batch);
  std::vector<std::vector<Seen>> seen(ranges.size(), std::vector<Seen>(m.arguments.size()));
  IntervalList rowSees, rangeSees, all, united;
  bool positions = false;
  double pairs = 0;
  for (size_t o = 0; o < m.operands.size(); ++o) {
    const Argument &argument = m.argumentOf(m.operands[o]);
    const OperandBatch &operand = batch.operands[o];
    const Store store = storeOf(argument);
    const bool paged = store.isPaged();
    floor.tableBytes += static_cast<int64_t>(operand.lengths.size()) * 4;
    for (size_t i = 0; i < operand.instances(); ++i) {
      all.clear();
      for (size_t r = 0; r < ranges.size(); ++r) {
        const auto c = static_cast<size_t>(ranges[r].headClass);
        if (!m.isSeenBy(o, c))
          continue;
        const int32_t place = ranges[r].placeIn(argument);
        const Visibility visibility = m.visibilityOf(o, c);
        positions |= needsPositions(visibility);
        rangeSees.clear();
        for (int32_t row = operand.rowFirst[i]; row < operand.rowLast[i]; ++row) {
          const int32_t q = batch.qPos[static_cast<size_t>(row)];
          possiblePositions(visibility, ends, q, q, rowSees);
          toTokens(rowSees, operand.pos0[i], operand.length(i, place));
          pairs += static_cast<double>(totalSize(rowSees) * ranges[r].count());
          unite(rangeSees, rowSees, united);
          std::swap(rangeSees, united);
        }
        Seen &tokens = seen[r][static_cast<size_t>(m.operands[o].argumentIndex)];
        const StoreNumbers numbers{paged ? operand.blockTable : operand.start, operand.tokens,
                                   operand.maxPages, operand.heads, place};
        for (const Interval &range : rangeSees)
          for (int64_t t = range.begin; t < range.end; ++t)
            tokens.add(store.slotOf(numbers, static_cast<int64_t>(i), t));
        if (paged && argument.ragged) {
          floor.tableBytes += 4 * pagesOf(rangeSees, store);
          continue;
        }
        unite(all, rangeSees, united);
        std::swap(all, united);
      }
      if (paged)
        floor.tableBytes += 4 * pagesOf(all, store);
    }
  }
  if (positions)
    floor.tableBytes += batch.rows * 4;
  // Lines of 16 features, or a multiple, fill whole sectors; shorter lines share sectors with their
  // neighbours.
  for (size_t r = 0; r < ranges.size(); ++r)
    for (size_t a = 0; a < m.arguments.size(); ++a) {
      floor.kvBytes += seen[r][a].count * ranges[r].count() * storeOf(m.arguments[a]).tokenBytes();
    }
  floor.usefulFlops = 2.0 * pairs * m.groupSize() * (m.keyDim + m.valueDim);
  return floor;
}

} // namespace attn::rt

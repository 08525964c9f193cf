#include "attn_rt/Plan.h"
#include "attn_rt/Visibility.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// Tokens of one argument's store that some row sees, each counted once however many instances or operands
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
  return visibility.of.empty()
             ? visibility.kind != Visibility::Kind::All && visibility.kind != Visibility::Kind::Sink
             : std::any_of(visibility.of.begin(), visibility.of.end(), needsPositions);
}

/// Where a token lies, in tokens of the store.
int64_t slotOf(const Argument &argument, const OperandBatch &operand, int64_t instance, int64_t token) {
  switch (argument.store) {
  case Argument::Store::Dense:
    return instance * operand.tokens + token;
  case Argument::Store::Packed:
    return operand.start[static_cast<size_t>(instance)] + token;
  case Argument::Store::Paged:
    break;
  }
  const int64_t entry = instance * operand.maxPages + token / argument.page;
  return int64_t{operand.blockTable[static_cast<size_t>(entry)]} * argument.page + token % argument.page;
}

/// Pages of an instance that hold some of these tokens.
int64_t pagesOf(const IntervalList &tokens, int64_t page) {
  int64_t count = 0, next = 0;
  for (const Interval &range : tokens) {
    const int64_t last = (range.end - 1) / page;
    count += last + 1 - std::max(range.begin / page, next);
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
  floor.queryBytes = sectors(batch.rows * m.qHeads * m.keyDim * element);
  floor.resultBytes = batch.rows * m.qHeads * (m.valueDim * element + (m.returnsLse ? 4 : 0));
  floor.tableBytes = static_cast<int64_t>(batch.qStart.size()) * 4 + batch.otherBytes;

  // Heads of one class see the same tokens, of heads that are theirs alone.
  const std::vector<int32_t> heads = classHeads(m, batch);
  std::vector<std::vector<Seen>> seen(heads.size(), std::vector<Seen>(m.arguments.size()));
  IntervalList rowSees, classSees, all, united;
  bool positions = false;
  double pairs = 0;
  for (size_t o = 0; o < m.operands.size(); ++o) {
    const Argument &argument = m.argumentOf(m.operands[o]);
    const OperandBatch &operand = batch.operands[o];
    floor.tableBytes += static_cast<int64_t>(operand.instances()) * 4;
    for (size_t i = 0; i < operand.instances(); ++i) {
      all.clear();
      for (size_t c = 0; c < heads.size(); ++c) {
        if (heads[c] == 0 || !m.isSeenBy(o, c))
          continue;
        const Visibility visibility = m.visibilityOf(o, c);
        positions |= needsPositions(visibility);
        classSees.clear();
        for (int32_t row = operand.rowFirst[i]; row < operand.rowLast[i]; ++row) {
          const int32_t q = batch.qPos[static_cast<size_t>(row)];
          possiblePositions(visibility, ends, q, q, rowSees);
          toTokens(rowSees, operand.pos0[i], operand.lengths[i]);
          pairs += static_cast<double>(totalSize(rowSees) * heads[c]);
          unite(classSees, rowSees, united);
          std::swap(classSees, united);
        }
        Seen &store = seen[c][static_cast<size_t>(m.operands[o].argumentIndex)];
        for (const Interval &range : classSees)
          for (int64_t t = range.begin; t < range.end; ++t)
            store.add(slotOf(argument, operand, static_cast<int64_t>(i), t));
        unite(all, classSees, united);
        std::swap(all, united);
      }
      if (argument.store == Argument::Store::Paged)
        floor.tableBytes += 4 * pagesOf(all, argument.page);
    }
  }
  if (positions)
    floor.tableBytes += batch.rows * 4;
  for (size_t c = 0; c < heads.size(); ++c)
    for (size_t a = 0; a < m.arguments.size(); ++a) {
      const Argument &argument = m.arguments[a];
      floor.kvBytes += seen[c][a].count * heads[c] *
                       (sectors(argument.keyDim * static_cast<int64_t>(dtypeSize(argument.keyDType))) +
                        sectors(argument.valueDim * static_cast<int64_t>(dtypeSize(argument.valueDType))));
    }
  floor.usefulFlops = 2.0 * pairs * m.groupSize() * (m.keyDim + m.valueDim);
  return floor;
}

} // namespace attn::rt

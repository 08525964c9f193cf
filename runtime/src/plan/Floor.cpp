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

int64_t sectors(int64_t bytes) { return (bytes + 31) / 32 * 32; }

} // namespace

ProblemFloor problemFloor(const Manifest &m, const Batch &batch) {
  const auto element = static_cast<int64_t>(dtypeSize(m.dtype));
  const std::vector<int32_t> &ends = batch.ends.empty() ? m.ends : batch.ends;
  ProblemFloor floor;
  floor.queryBytes = sectors(batch.rows * m.qHeads * m.keyDim * element);
  floor.resultBytes = batch.rows * m.qHeads * (m.valueDim * element + (m.returnsLse ? 4 : 0));
  floor.tableBytes = static_cast<int64_t>(batch.qStart.size()) * 4 + batch.otherBytes;

  std::vector<Seen> seen(m.arguments.size());
  IntervalList rowSees, all, united;
  bool positions = false;
  double pairs = 0;
  for (size_t o = 0; o < m.operands.size(); ++o) {
    const Visibility &visibility = m.operands[o].visibility;
    const Argument &argument = m.argumentOf(m.operands[o]);
    const OperandBatch &operand = batch.operands[o];
    Seen &store = seen[static_cast<size_t>(m.operands[o].argumentIndex)];
    positions |= needsPositions(visibility);
    floor.tableBytes += static_cast<int64_t>(operand.instances()) * 4;
    for (size_t i = 0; i < operand.instances(); ++i) {
      all.clear();
      for (int32_t row = operand.rowFirst[i]; row < operand.rowLast[i]; ++row) {
        const int32_t q = batch.qPos[static_cast<size_t>(row)];
        possiblePositions(visibility, ends, q, q, rowSees);
        toTokens(rowSees, operand.pos0[i], operand.lengths[i]);
        pairs += static_cast<double>(totalSize(rowSees));
        unite(all, rowSees, united);
        std::swap(all, united);
      }
      int64_t lastPage = -1;
      for (const Interval &range : all)
        for (int64_t t = range.begin; t < range.end; ++t) {
          const auto index = static_cast<int64_t>(i);
          if (argument.store == Argument::Store::Dense) {
            store.add(index * operand.tokens + t);
          } else if (argument.store == Argument::Store::Packed) {
            store.add(operand.start[i] + t);
          } else {
            const int64_t page = t / argument.page;
            floor.tableBytes += page != lastPage ? 4 : 0;
            lastPage = page;
            store.add(int64_t{operand.blockTable[static_cast<size_t>(index * operand.maxPages + page)]} *
                          argument.page +
                      t % argument.page);
          }
        }
    }
  }
  if (positions)
    floor.tableBytes += batch.rows * 4;
  for (size_t a = 0; a < seen.size(); ++a) {
    const Argument &argument = m.arguments[a];
    floor.kvBytes += seen[a].count * argument.kvHeads *
                     (sectors(argument.keyDim * static_cast<int64_t>(dtypeSize(argument.keyDType))) +
                      sectors(argument.valueDim * static_cast<int64_t>(dtypeSize(argument.valueDType))));
  }
  floor.usefulFlops = 2.0 * pairs * m.qHeads * (m.keyDim + m.valueDim);
  return floor;
}

} // namespace attn::rt

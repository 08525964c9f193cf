//===- Capacity.cpp - How large a plan can become -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/TokenTasks.h"
#include "plan/Work.h"

#include <algorithm>

namespace attn::rt {

PlanLimits PlanLimits::larger(const PlanLimits &a, const PlanLimits &b) {
  return {std::max(a.rows, b.rows),
          std::max(a.groups, b.groups),
          std::max(a.instancesPerRow, b.instancesPerRow),
          std::max(a.sharedInstances, b.sharedInstances),
          std::max(a.sharedRows, b.sharedRows),
          std::max(a.tokensPerRow, b.tokensPerRow),
          std::max(a.tokenTasks, b.tokenTasks),
          std::max(a.cutTokenTasks, b.cutTokenTasks),
          std::max(a.tokenParts, b.tokenParts),
          std::max(a.scoreTasks, b.scoreTasks),
          std::max(a.scoreTokens, b.scoreTokens)};
}

PlanLimits PlanLimits::of(const Manifest &manifest, const Batch &batch) {
  PlanLimits limits;
  if (manifest.walksTokens()) {
    limits.tokenTasks = countTokenTasks(manifest, batch);
    const TokenParts cut =
        addsInOrder(manifest) ? countOrderedParts(manifest, batch) : countTokenParts(manifest, batch);
    limits.cutTokenTasks = cut.tasks, limits.tokenParts = cut.parts;
  }
  if (storesScores(manifest)) {
    limits.scoreTasks = countScoreTasks(manifest, batch);
    limits.scoreTokens = countScoreTokens(manifest, batch);
  }
  limits.rows = batch.rows;
  std::vector<int32_t> bounds(batch.qStart.begin(), batch.qStart.end());
  std::vector<int32_t> depth(static_cast<size_t>(batch.rows) + 1, 0);
  std::vector<int64_t> tokens(depth.size(), 0);
  for (const OperandBatch &operand : batch.operands)
    for (size_t i = 0; i < operand.instances(); ++i)
      if (operand.rowFirst[i] < operand.rowLast[i]) {
        bounds.insert(bounds.end(), {operand.rowFirst[i], operand.rowLast[i]});
        ++depth[static_cast<size_t>(operand.rowFirst[i])];
        --depth[static_cast<size_t>(operand.rowLast[i])];
        tokens[static_cast<size_t>(operand.rowFirst[i])] += operand.longest(i);
        tokens[static_cast<size_t>(operand.rowLast[i])] -= operand.longest(i);
      }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  limits.groups = static_cast<int64_t>(bounds.size()) - 1;
  int32_t open = 0;
  for (int32_t change : depth)
    limits.instancesPerRow = std::max<int64_t>(limits.instancesPerRow, open += change);
  int64_t seen = 0;
  for (int64_t change : tokens)
    limits.tokensPerRow = std::max(limits.tokensPerRow, seen += change);
  for (const OperandBatch &operand : batch.operands)
    for (size_t i = 0; i < operand.instances(); ++i) {
      const auto inside = std::upper_bound(bounds.begin(), bounds.end(), operand.rowFirst[i]);
      if (inside != bounds.end() && *inside < operand.rowLast[i]) {
        ++limits.sharedInstances;
        limits.sharedRows += operand.rowLast[i] - operand.rowFirst[i];
      }
    }
  return limits;
}

int launchBlocks(const KernelInfo &kernel, const PlanOptions &options) {
  return options.blocks ? options.blocks : options.multiprocessors * kernel.blocksPerSM;
}

namespace {

/// Bounds of the segments that a visibility makes of one instance: for the heads with the most, and the sum
/// over classes or, if lengths are ragged, over single heads.
struct IntervalBounds {
  int64_t most = 1, all = 0, ranges;

  explicit IntervalBounds(const Manifest &m)
      : ranges(m.hasRaggedOperand() ? m.kvHeads : static_cast<int64_t>(m.classCount())) {
    for (size_t c = 0; c < m.classCount(); ++c) {
      int64_t ofClass = 1;
      for (size_t o = 0; o < m.operands.size(); ++o)
        ofClass = std::max<int64_t>(ofClass, intervalBound(m.visibilityOf(o, c)));
      most = std::max(most, ofClass);
      all += ofClass;
    }
    if (m.hasRaggedOperand())
      all = most * ranges;
  }
};

} // namespace

PlanCapacity planCapacity(const Manifest &m, const PlanLimits &limits, const PlanOptions &given) {
  const PlanOptions options = underContract(m, given);
  const IntervalBounds intervals(m);
  const int64_t packed = limits.rows * m.groupSize();
  const bool nodes = options.strategy == Strategy::ByNode || options.strategy == Strategy::ByNodeChunk;
  const bool whole = m.plansWhole(); // planned by query, and never cut
  const bool shares = options.strategy != Strategy::ByQuery && limits.sharedInstances > 0 && !whole;
  const int64_t sharedPacked = shares ? limits.sharedRows * m.groupSize() : 0;
  // A chunk of an instance ends at a token that is a multiple of the chunk, or at the end of a segment.
  const int64_t chunk = chunkOf(options), chunks = chunk > 0 ? ceilDiv(limits.tokensPerRow, chunk) : 0;
  bool oneRow = false;
  for (size_t c = 0; c < m.classCount() && options.fixedSplit > 0; ++c)
    for (size_t o = 0; o < m.operands.size(); ++o)
      oneRow |= needsOneRow(m, m.visibilityOf(o, c));
  PlanCapacity capacity;
  for (int planned : m.plannedKernels()) {
    if (options.kernel >= 0 && planned != options.kernel)
      continue;
    const KernelInfo &kernel = m.kernels[static_cast<size_t>(planned)];
    const int64_t blocks = launchBlocks(kernel, options);
    capacity.blocks = std::max(capacity.blocks, blocks);
    const int64_t tileRows = rowsOfTile(kernel, m.groupSize(), oneRow);
    const int64_t own = tilesBound(packed, tileRows, std::min(limits.groups, limits.rows));
    const int64_t other = shares ? tilesBound(sharedPacked, tileRows, limits.sharedInstances) : 0;
    // By node, the instances that a group alone sees are work tiles, too, and one work tile adds what no
    // other adds (the sink).
    const int64_t workTiles = (nodes || chunk > 0 ? own * (limits.instancesPerRow + 1) : own) + other;
    const int64_t extra = chunk > 0 ? workTiles * intervals.most + (own + other) * chunks : 0;
    // Tasks that are cut into shares have one cut for each block but the first. A cut adds one task, and
    // copies of the segments of the task that it cuts.
    capacity.tasks = std::max(capacity.tasks, (workTiles + extra) * m.kvHeads + blocks);
    capacity.segments = std::max(
        capacity.segments, (own * limits.instancesPerRow + other) * intervals.all + extra * intervals.ranges +
                               blocks * (limits.instancesPerRow * intervals.most + 1));
    // Each row of a shared instance has a part there and one of its own. With parts of a fixed size, a row
    // has no more parts than instances and chunks.
    const int64_t cutParts = cutRowsBound<int64_t>(blocks, kernel.rows, packed);
    const int64_t sharedParts = shares ? packed + sharedPacked : 0;
    const int64_t parts = limits.instancesPerRow * intervals.most + chunks + 1;
    int64_t partialRows =
        nodes || chunk > 0 ? packed * parts * m.kvHeads : cutParts + sharedParts * m.kvHeads;
    if (kernel.folds) { // and each block has the totals of a tile
      if (!shares)
        partialRows = std::min(partialRows, foldedPartialRows(kernel, blocks));
      partialRows += blocks * kernel.rows;
    }
    capacity.partialRows = std::max(capacity.partialRows, partialRows);
  }
  for (const KernelInfo &kernel : m.kernels)
    if (shares && options.strategy == Strategy::Flatten && options.fixedSplit == 0 && takesLists(kernel)) {
      // At most one list for every two groups of a tile, for all heads with the same work.
      const int64_t lists = (std::min(limits.groups, limits.rows) / 2 + 1) * intervals.ranges;
      capacity.slots = std::max(capacity.slots, lists * listTokensBound(kernel));
      capacity.bits = std::max(capacity.bits, lists * listBitsBound(kernel, m.groupSize()));
    }
  if (whole)
    capacity.partialRows = 0;
  capacity.tokenTasks = limits.tokenTasks;
  if (m.walksTokens() && cutsTokens(m)) {
    TokenParts cut = addsToRows(m) && !addsInOrder(m)
                         ? countEndParts(limits.tokenTasks + limits.tokenParts,
                                         tokenTasksAtOnce(m, options.multiprocessors))
                         : TokenParts{};
    cut.tasks += limits.cutTokenTasks, cut.parts += limits.tokenParts;
    const int64_t tokens = tokensOfTile(m);
    capacity.tokenTasks += cut.parts;
    capacity.tokenSums = cut.tasks * ceilDiv(tokens, tokenSumTokens);
    capacity.partialTokens = cut.parts * tokens;
  }
  capacity.semaphores = addsInOrder(m) ? capacity.tokenTasks : 0;
  capacity.scoreTasks = limits.scoreTasks;
  capacity.scoreWords = scoreWordsOf(limits.scoreTokens, m.groupSize());
  capacity.mergePartials = capacity.partialRows;
  capacity.mergeRows = std::min(capacity.partialRows, limits.rows * m.qHeads);
  return capacity;
}

} // namespace attn::rt

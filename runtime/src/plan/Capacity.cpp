#include "plan/Work.h"

#include <algorithm>

namespace attn::rt {

PlanLimits PlanLimits::of(const Manifest &, const Batch &batch) {
  PlanLimits limits;
  limits.rows = batch.rows;
  std::vector<int32_t> bounds(batch.qStart.begin(), batch.qStart.end());
  std::vector<int32_t> depth(static_cast<size_t>(batch.rows) + 1, 0);
  for (const OperandBatch &operand : batch.operands)
    for (size_t i = 0; i < operand.instances(); ++i)
      if (operand.rowFirst[i] < operand.rowLast[i]) {
        bounds.insert(bounds.end(), {operand.rowFirst[i], operand.rowLast[i]});
        ++depth[static_cast<size_t>(operand.rowFirst[i])];
        --depth[static_cast<size_t>(operand.rowLast[i])];
      }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  limits.groups = static_cast<int64_t>(bounds.size()) - 1;
  int32_t open = 0;
  for (int32_t change : depth)
    limits.instancesPerRow = std::max<int64_t>(limits.instancesPerRow, open += change);
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

PlanCapacity planCapacity(const Manifest &m, const PlanLimits &limits, const PlanOptions &options) {
  // Segments on one instance: of a unit, and of the units of all classes.
  int64_t intervals = 1, allIntervals = 0;
  for (size_t c = 0; c < m.classCount(); ++c) {
    int64_t most = 1;
    for (size_t o = 0; o < m.operands.size(); ++o)
      most = std::max<int64_t>(most, intervalBound(m.visibilityOf(o, c)));
    intervals = std::max(intervals, most);
    allIntervals += most;
  }
  const int64_t packed = limits.rows * m.groupSize();
  const bool shared = options.strategy == Strategy::Flatten && limits.sharedInstances > 0;
  const int64_t sharedPacked = shared ? limits.sharedRows * m.groupSize() : 0;
  PlanCapacity capacity;
  for (const KernelInfo &kernel : m.kernels) {
    if (kernel.role != KernelInfo::Role::Attend)
      continue;
    const int64_t blocks = launchBlocks(kernel, options);
    capacity.blocks = std::max(capacity.blocks, blocks);
    // A group of n packed rows takes at most n / rows + 1 tiles, rounded down; so does a shared instance.
    const int64_t own = packed / kernel.rows + std::min(limits.groups, limits.rows);
    const int64_t other = shared ? sharedPacked / kernel.rows + limits.sharedInstances : 0;
    // At most one cut for each block but the first: one more task, and copies of the segments of the task it
    // cuts.
    capacity.tasks = std::max(capacity.tasks, (own + other) * m.kvHeads + blocks);
    capacity.segments = std::max(capacity.segments, (own * limits.instancesPerRow + other) * allIntervals +
                                                        blocks * (limits.instancesPerRow * intervals + 1));
    const int64_t cutParts = 2 * blocks * std::min<int64_t>(kernel.rows, packed);
    capacity.partialRows =
        std::max(capacity.partialRows, cutParts + (shared ? (packed + sharedPacked) * m.kvHeads : 0));
  }
  capacity.mergePartials = capacity.partialRows;
  capacity.mergeRows = std::min(capacity.partialRows, limits.rows * m.qHeads);
  return capacity;
}

} // namespace attn::rt

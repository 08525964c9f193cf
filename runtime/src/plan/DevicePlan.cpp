//===- DevicePlan.cpp - Plans that are made where they are read -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/plan/DevicePlan.h"
#include "plan/Balance.h"
#include "plan/TokenTasks.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

/// The smallest tile that holds a sequence's rows, else the largest; with fixed splits the smallest.
int chooseKernel(const Manifest &m, const DevicePlanLimits &limits, const PlanOptions &options) {
  if (options.kernel >= 0)
    return options.kernel;
  std::vector<int> kernels = kernelsByRows(m);
  std::erase_if(kernels, [&](int k) { return m.kernels[static_cast<size_t>(k)].sequencesUpTo > 0; });
  const int64_t rows = limits.rowsPerSequence > 0 ? limits.rowsPerSequence : limits.rows;
  for (const int kernel : kernels)
    if (options.fixedSplit > 0 || rows * m.groupSize() <= m.kernels[static_cast<size_t>(kernel)].rows)
      return kernel;
  return kernels.back();
}

/// The most segments of a piece: for each operand as many as its visibility has intervals.
int64_t segmentsOfPiece(const Manifest &m) {
  int64_t most = 0;
  for (const OperandInfo &operand : m.operands)
    most += intervalBound(operand.visibility);
  return most;
}

Status check(const Manifest &m, const DevicePlanLimits &limits, const PlanOptions &options) {
  if (!m.planLaunch())
    return inputError(
        "'" + m.entry +
        "' has no kernel that makes plans: compile it with Spec(device_plan=True), or the attribute "
        "attn.device_plan in a text");
  if (options.kernel >= 0 && !m.isPlanned(options.kernel))
    return inputError("PlanOptions::kernel is " + std::to_string(options.kernel) + ", no attend kernel of '" +
                      m.entry + "'");
  for (const auto &[what, value] : {std::pair("rows", limits.rows), std::pair("sequences", limits.sequences),
                                    std::pair("tokens", limits.tokens)})
    if (value < 1 || value > 1 << 29)
      return inputError("limits of a plan on the device: expected 1 to 536870912 " + std::string(what) +
                        ", got " + std::to_string(value));
  if (options.strategy != Strategy::Flatten && options.strategy != Strategy::ByQuery)
    return inputError("plans on the device are made by query: nothing is shared");
  return {};
}

int lockstepOf(const Manifest &m, const KernelInfo &kernel, int blocks) {
  std::vector<Store> stores;
  stores.reserve(m.operands.size());
  for (const OperandInfo &operand : m.operands)
    stores.push_back(storeOf(m.argumentOf(operand)));
  return headsInLockstep(kernel.rows, stores, static_cast<int>(m.kvHeads), blocks);
}

/// The cost of a task and the shortest share, if tiles of one sequence are read once.
CostModel costOf(const Manifest &m, const KernelInfo &kernel, int blocks, const PlanOptions &options) {
  Work work;
  work.tiles = 1;
  work.tokensOnce = kernel.keys;
  work.largestWorkTile = kernel.rows;
  return {m, kernel, work, blocks, *options.gpu};
}

} // namespace

Result<DevicePlan> makeDevicePlan(const Manifest &m, const DevicePlanLimits &limits,
                                  const PlanOptions &given) {
  const PlanOptions options = underContract(m, given);
  if (Status status = check(m, limits, options); !status)
    return status.error();
  DevicePlan plan;
  plan.kernel = chooseKernel(m, limits, options);
  plan.ends = m.ends;
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  if (limits.scoreTasks > 0 && !storesScores(kernel))
    return inputError("significance is planned on the device for steps of decoding: kernel '" + kernel.name +
                      "' stores no scores");
  if (options.fixedSplit < 0 || options.fixedSplit % kernel.keys != 0)
    return inputError("a fixed split of " + std::to_string(options.fixedSplit) + " tokens: kernel '" +
                      kernel.name + "' has tiles of " + std::to_string(kernel.keys) + " keys");
  plan.blocks = launchBlocks(kernel, options);
  const CostModel cost = costOf(m, kernel, plan.blocks, options);
  const int64_t chunk = options.fixedSplit, packed = limits.rows * m.groupSize(), heads = m.kvHeads;
  const int64_t intervals = segmentsOfPiece(m), blocks = plan.blocks;
  const bool oneRow =
      chunk > 0 && std::any_of(m.operands.begin(), m.operands.end(), [&](const OperandInfo &operand) {
        return needsOneRow(m, operand.visibility);
      });
  const int64_t tileRows = rowsOfTile(kernel, m.groupSize(), oneRow);
  // Heads with lengths of their own have work tiles of their own.
  const bool byHead = std::any_of(m.operands.begin(), m.operands.end(), [&](const OperandInfo &operand) {
    return m.argumentOf(operand).ragged && heads > 1;
  });
  const int64_t lists = byHead ? heads : 1, dealt = heads / lists;
  const int64_t workTiles = tilesBound(packed, tileRows, std::min(limits.sequences, limits.rows)) * lists;
  const int64_t ofWorkTile = chunk > 0
                                 ? static_cast<int64_t>(m.operands.size()) * ceilDiv(limits.tokens, chunk) +
                                       intervals + (m.sinkLogits ? 1 : 0)
                                 : 1;
  PlanCapacity &room = plan.capacity;
  const int64_t parts = workTiles * ofWorkTile, cutRows = cutRowsBound(blocks, tileRows, packed);
  room.blocks = blocks;
  room.tasks = parts * dealt + (chunk > 0 ? 0 : blocks);
  room.segments = (parts + (chunk > 0 ? 0 : 2 * (blocks + 1))) * intervals;
  room.partialRows = room.mergePartials = chunk > 0 ? packed * ofWorkTile * heads : cutRows;
  room.mergeRows = chunk > 0 ? packed * heads : std::min(cutRows / 2, packed * heads);
  room.scoreTasks = limits.scoreTasks;
  room.scoreWords = scoreWordsOf(limits.scoreTokens, m.groupSize());
  room.findings = 1;
  PlanScratchOf<int64_t> arrays;
  PlanScratchSizes<int64_t>{limits.sequences, lists, workTiles, parts, blocks}.forEach(
      arrays, [&](int64_t &, int64_t words) { room.scratch += words; });
  const int64_t tiles = static_cast<int64_t>(m.operands.size()) * ceilDiv(limits.tokens, kernel.keys) + 2;
  for (const auto &[what, value] :
       {std::pair("tasks", room.tasks), std::pair("segments", room.segments),
        std::pair("partial rows", room.partialRows),
        std::pair("units of cost", workTiles * costOfTask(cost.fixed, tiles) * dealt)})
    if (value * 8 > std::numeric_limits<int32_t>::max())
      return inputError("limits of a plan on the device: " + std::to_string(value) + " " + what +
                        " are more than it can count");
  const auto set = [&](PlanDim dim, int64_t value) {
    plan.dims[static_cast<size_t>(dim)] = static_cast<int32_t>(value);
  };
  const auto setDivisor = [&](PlanDim dim, int64_t value) {
    const auto next = [&](int by) { return static_cast<PlanDim>(static_cast<int>(dim) + by); };
    const PlanDivisor divisor = PlanDivisor::of(static_cast<int32_t>(value));
    set(dim, divisor.number);
    set(next(1), divisor.factor);
    set(next(2), divisor.shift);
  };
  setDivisor(PlanDim::Blocks, blocks);
  setDivisor(PlanDim::Rows, tileRows);
  setDivisor(PlanDim::Keys, kernel.keys);
  setDivisor(PlanDim::KeyAlign, kernel.keyAlign);
  setDivisor(PlanDim::Lockstep, byHead ? 1 : lockstepOf(m, kernel, plan.blocks));
  setDivisor(PlanDim::Chunk, std::max<int64_t>(chunk, 1));
  set(PlanDim::IsFixed, chunk > 0);
  set(PlanDim::Fixed, cost.fixed);
  set(PlanDim::ShareTiles, cost.shareTiles);
  set(PlanDim::WorkTiles, workTiles);
  set(PlanDim::Parts, parts);
  set(PlanDim::Partials, room.partialRows);
  set(PlanDim::MergeRows, room.mergeRows);
  return plan;
}

std::string faultText(const Manifest &m, const PlanFinding &finding, int64_t pages) {
  const std::string sequence = std::to_string(finding.sequence), at = "sequence " + sequence + ": ";
  switch (static_cast<PlanFault>(finding.fault)) {
  case PlanFault::None:
    return "";
  case PlanFault::RowsUnsorted:
    return at + "query starts are negative, not sorted or exceed the rows of the limits";
  case PlanFault::LengthOutside:
    return at + "a length is negative or longer than its tables, or a position out of range";
  case PlanFault::SeveralRows:
    return at + "more than one row, where significance is planned on the device: of steps of decoding";
  case PlanFault::CapacityExceeded:
    return "the batch is larger than the limits that the plan was made for";
  case PlanFault::PageOutside: {
    const Argument &argument = m.argumentOf(m.operands[static_cast<size_t>(finding.operand)]);
    const std::string head = argument.ragged ? std::to_string(finding.head) + ", " : "";
    return at + argument.name + ".block_table[" + sequence + ", " + head + std::to_string(finding.column) +
           "]: expected a page of the pool, 0 to " + std::to_string(pages - 1) + ", got " +
           std::to_string(finding.page);
  }
  }
  return "unknown fault " + std::to_string(finding.fault);
}

} // namespace attn::rt

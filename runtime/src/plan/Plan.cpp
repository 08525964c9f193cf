//===- Plan.cpp - Attention as a list of key ranges with a cost -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Emit.h"
#include "plan/TokenTasks.h"

#include <algorithm>
#include <atomic>

namespace attn::rt {

std::optional<Strategy> parseStrategy(std::string_view name) {
  for (size_t i = 0; i < std::size(strategyNames); ++i)
    if (name == strategyNames[i])
      return static_cast<Strategy>(i);
  return std::nullopt;
}

namespace {

/// A new number, never 0 and never repeated: sessions compare it to know which plan they have copied.
uint64_t nextStructure() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

} // namespace

struct Planner::State {
  const Manifest &manifest;
  PlanOptions options;
  PlanCapacity capacity;
  WorkTileBuilder builder;
  Work work;
  Balancer balancer;
  Assignment assignment;
  Emitter emitter;
  Extender extender;
  uint64_t planned = 0; ///< the structure of the last plan
  struct {
    std::vector<PlanSegment> segments;
    PlanStats stats;
    uint64_t structure = 0;
  } before = {}; ///< the state of a plan before it was extended

  Status checkKernel() const {
    if (options.kernel < 0 || manifest.isPlanned(options.kernel))
      return {};
    std::string legal;
    for (int i : manifest.plannedKernels())
      legal += (legal.empty() ? "" : ", ") + std::to_string(i) + " ('" +
               manifest.kernels[static_cast<size_t>(i)].name + "')";
    return inputError("PlanOptions::kernel is " + std::to_string(options.kernel) +
                      "; the attend kernels of '" + manifest.entry + "' are " + legal);
  }

  /// A backward pass and a kernel of two outputs cannot add up results of rows that were cut.
  Status checkWhole() const {
    if (!manifest.plansWhole() || options.fixedSplit == 0)
      return {};
    return inputError("a fixed split of " + std::to_string(options.fixedSplit) + " tokens: '" +
                      manifest.entry + (manifest.isBackward() ? "' makes gradients" : "' has two outputs") +
                      ", whose tasks of rows are never cut; expected none");
  }

  Status checkFixedSplit() const {
    if (manifest.numerics && options.fixedSplit != manifest.numerics->split)
      return inputError("a fixed split of " + std::to_string(options.fixedSplit) + " tokens: '" +
                        manifest.entry + "' follows a numerics contract, whose parts end at multiples of " +
                        std::to_string(manifest.numerics->split) + " tokens; expected that or none");
    const KernelInfo &kernel = manifest.kernels[static_cast<size_t>(work.kernel)];
    const int split = options.fixedSplit, rest = split % kernel.keys;
    if (split >= 0 && rest == 0)
      return {};
    const int below = split - rest;
    return inputError("a fixed split of " + std::to_string(split) + " tokens: kernel '" + kernel.name +
                      "' has tiles of " + std::to_string(kernel.keys) + " keys, so " +
                      (below > 0 ? std::to_string(below) + " or " + std::to_string(below + kernel.keys)
                                 : std::to_string(kernel.keys)) +
                      " would do");
  }

  Status checkCapacity(const Plan &plan) const {
    const struct {
      const char *what;
      size_t needed;
      int64_t held;
    } sizes[] = {{"tasks", plan.tasks.size(), capacity.tasks},
                 {"segments", plan.segments.size(), capacity.segments},
                 {"token tasks", plan.tokenTasks.size(), capacity.tokenTasks},
                 {"pieces of cut token tasks", plan.tokenSums.size(), capacity.tokenSums},
                 {"tokens of their parts", static_cast<size_t>(plan.partialTokens), capacity.partialTokens},
                 {"semaphores", static_cast<size_t>(plan.semaphores), capacity.semaphores},
                 {"score tasks", plan.scoreTasks.size(), capacity.scoreTasks},
                 {"words of scores", static_cast<size_t>(plan.scoreWords), capacity.scoreWords},
                 {"merge rows", plan.mergeRows.size(), capacity.mergeRows},
                 {"merge entries", plan.mergePartials.size(), capacity.mergePartials},
                 {"partial rows", static_cast<size_t>(plan.partialRows), capacity.partialRows},
                 {"listed tokens", plan.slots.size(), capacity.slots},
                 {"words of bits", plan.bits.size(), capacity.bits},
                 {"blocks", static_cast<size_t>(plan.blocks), capacity.blocks}};
    for (const auto &size : sizes)
      if (static_cast<int64_t>(size.needed) > size.held)
        return inputError("the plan needs " + std::to_string(size.needed) + " " + size.what +
                          ", but its buffers hold " + std::to_string(size.held) +
                          ": make them for larger limits");
    return {};
  }

  Status make(const Batch &batch, Strategy strategy, Plan &plan);
  void fillStats(const Batch &batch, const Plan &plan, PlanStats &stats) const;
  void fillBalance(const Plan &plan, PlanStats &stats) const;
};

void Planner::State::fillStats(const Batch &batch, const Plan &plan, PlanStats &stats) const {
  const Manifest &m = manifest;
  const auto element = static_cast<int64_t>(dtypeSize(m.dtype));
  stats = {};
  stats.tasks = static_cast<int64_t>(plan.tasks.size());
  stats.cuts = assignment.cuts;
  stats.qBytes = emitter.packedRows() * m.keyDim * element;
  for (const WorkTile &workTile : work.workTiles)
    for (const PlanSegment &segment : work.segmentsOf(workTile)) {
      const Store &store = work.stores[static_cast<size_t>(segment.operand)];
      const int64_t tokens = segment.kvEnd - segment.kvBegin;
      stats.kvBytes += tokens * workTile.ordinals.count() * store.tokenBytes();
      stats.metadataBytes += store.entriesOf(tokens) * 4 * workTile.ordinals.count();
    }
  stats.partialBytes = 2 * plan.partialRows * (m.valueDim + 1) * 4;
  // Every warp of a block reads the records of its tasks.
  const int64_t warps = m.kernels[static_cast<size_t>(plan.kernel)].threads / 32;
  stats.metadataBytes +=
      warps * (static_cast<int64_t>(plan.blockTasks.size() * 4 + plan.tasks.size() * sizeof(PlanTask)) +
               emitter.segmentReads() * static_cast<int64_t>(sizeof(PlanSegment))) +
      static_cast<int64_t>((plan.mergeStart.size() + plan.mergeRows.size() + plan.mergePartials.size()) * 4);
  stats.outputBytes = m.resultBytes(resultSizes(m, batch));
  fillBalance(plan, stats);
}

/// Fills the stats that follow from the tiles and loads of blocks.
void Planner::State::fillBalance(const Plan &plan, PlanStats &stats) const {
  const Manifest &m = manifest;
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  stats.tiles = work.tiles;
  stats.flops = 2.0 * kernel.rows * kernel.keys * (m.keyDim + m.valueDim) * static_cast<double>(stats.tiles);
  stats.maxCost = static_cast<double>(assignment.maxCost);
  stats.usedBlocks = assignment.usedBlocks;
  stats.meanCost = static_cast<double>(assignment.totalCost) / std::max(stats.usedBlocks, 1);
  stats.balance = stats.meanCost > 0 ? stats.maxCost / stats.meanCost : 1;
  stats.tileCost = tileCost;
  stats.fixedCost = static_cast<double>(balancer.cost().fixed + balancer.cost().partial);
  stats.estimatedSeconds = balancer.cost().planSeconds(stats, std::ssize(plan.mergeRows));
}

Planner::Planner(const Manifest &manifest, PlanOptions options, PlanCapacity capacity)
    : state_(new State{manifest, underContract(manifest, options), capacity, {}, {}, {}, {}, {}, {}}) {}
Planner::~Planner() = default;
Planner::Planner(Planner &&) noexcept = default;
Planner &Planner::operator=(Planner &&) noexcept = default;

/// Makes a plan by one strategy, whatever the options say.
Status Planner::State::make(const Batch &batch, Strategy strategy, Plan &plan) {
  PlanOptions by = options;
  plan.strategy = by.strategy = strategy;
  builder.build(manifest, batch, by, work);
  if (Status status = checkFixedSplit(); !status)
    return status;
  plan.blocks = launchBlocks(manifest.kernels[static_cast<size_t>(work.kernel)], by);
  // The assignment of tasks packs a block number and its load into one word.
  if (plan.blocks < 1 || plan.blocks >= 1 << 20)
    return inputError("expected between 1 and 1048575 blocks, got " + std::to_string(plan.blocks));
  balancer.balance(manifest, work, by, plan.blocks, assignment);
  emitter.emit(manifest, batch, work, assignment, plan);
  fillStats(batch, plan, plan.stats);
  // Blocks without a task would only find that out, which is noticeable beside a short sequence. A launch
  // that must not change with the batch (a captured graph) asks for a number of blocks and keeps it.
  if (by.blocks == 0)
    while (plan.blocks > 1 &&
           plan.blockTasks[static_cast<size_t>(plan.blocks) - 1] == plan.blockTasks.back()) {
      plan.blockTasks.pop_back();
      --plan.blocks;
    }
  return {};
}

Status Planner::plan(const Batch &batch, Plan &plan) {
  State &s = *state_;
  s.planned = plan.structure = 0; // nothing to extend until this plan is complete
  if (Status status = s.checkKernel(); !status)
    return status;
  if (Status status = s.checkWhole(); !status)
    return status;
  if (Status status = checkCountedRows(s.manifest, batch); !status)
    return status;
  plan.classHeads = classHeads(s.manifest, batch);
  plan.ordinalHeads = s.manifest.plansByHead() ? ordinalHeads(s.manifest, batch) : std::vector<int32_t>();
  plan.ends = batch.ends.empty() ? s.manifest.ends : batch.ends;
  const bool whole = s.manifest.plansWhole();
  if (Status status = s.make(batch, whole ? Strategy::ByQuery : s.options.strategy, plan); !status)
    return status;
  if (!whole && s.options.quickest && s.options.strategy == Strategy::Flatten && s.work.shared &&
      !s.work.fixedSplit) {
    const double shared = plan.stats.estimatedSeconds;
    Status status = s.make(batch, Strategy::ByQuery, plan);
    if (status && plan.stats.estimatedSeconds >= shared)
      status = s.make(batch, Strategy::Flatten, plan);
    if (!status)
      return status;
  }
  plan.tokenTasks.clear();
  plan.tokenSums.clear();
  plan.partialTokens = 0;
  plan.semaphores = 0;
  plan.scoreTasks.clear();
  plan.scoreWords = 0;
  if (mayStoreScores(s.manifest, batch, plan))
    listScoreTasks(s.manifest, batch, plan);
  else if (s.manifest.walksTokens())
    listTokenTasks(s.manifest, batch, plan.ends, s.options.multiprocessors, plan);
  plan.unwritten =
      s.manifest.walksTokens() ? unwrittenOperands(s.manifest, batch, plan) : std::vector<int32_t>();
  s.extender.remember(s.manifest, batch, s.assignment);
  if (Status status = s.checkCapacity(plan); !status)
    return status;
  s.planned = plan.structure = nextStructure();
  return {};
}

bool Planner::extend(const Batch &batch, Plan &plan) {
  State &s = *state_;
  if (s.planned == 0 || plan.structure != s.planned || s.manifest.plansWhole() || s.manifest.walksTokens())
    return false;
  s.before.segments.assign(plan.segments.begin(), plan.segments.end());
  s.before.stats = plan.stats;
  s.before.structure = plan.structure;
  if (!s.extender.extend(s.manifest, batch, s.options, s.capacity, s.builder, s.work, s.balancer,
                         s.assignment, plan)) {
    retract(plan);
    return false;
  }
  if (s.extender.moved())
    s.planned = plan.structure = nextStructure();
  s.fillBalance(plan, plan.stats);
  return true;
}

void Planner::retract(Plan &plan) {
  State &s = *state_;
  s.extender.moveBack(plan);
  plan.segments.swap(s.before.segments);
  plan.stats = s.before.stats;
  plan.structure = s.before.structure;
  s.planned = 0; // the plan that it would extend has changed
}

Result<bool> Planner::update(const Batch &batch, Plan &plan) {
  if (extend(batch, plan))
    return true;
  if (Status status = this->plan(batch, plan); !status)
    return status.error();
  return false;
}

Result<Plan> makePlan(const Manifest &manifest, const Batch &batch, const PlanOptions &options) {
  Planner planner(manifest, options, planCapacity(manifest, PlanLimits::of(manifest, batch), options));
  Plan plan;
  if (Status status = planner.plan(batch, plan); !status)
    return status.error();
  return plan;
}

} // namespace attn::rt

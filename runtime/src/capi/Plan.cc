//===- Plan.cc - The C API's plans ----------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"

#include <algorithm>
#include <limits>

using namespace attn::rt;
using namespace attn::rt::capi;

static Result<PlanOptions> readOptions(const AttnPlanOptions &given, const LoadedKernel &kernel) {
  PlanOptions options;
  if (given.strategy && std::string_view(given.strategy) == "auto") {
    options.quickest = true;
  } else if (given.strategy) {
    const auto strategy = parseStrategy(given.strategy);
    if (!strategy)
      return inputError("strategy: expected auto, by-query, by-node, by-node-chunk or flatten, got '" +
                        std::string(given.strategy) + "'");
    options.strategy = *strategy;
  }
  const auto inRange = [](const char *name, int64_t value, int64_t most) -> Status {
    if (value >= 0 && value <= most)
      return {};
    return inputError(std::string(name) + ": expected 0 to " + std::to_string(most) + ", got " +
                      std::to_string(value));
  };
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const AttnPlanLimits &limits = given.limits;
  const std::tuple<const char *, int64_t, int64_t> fields[] = {
      {"blocks", given.blocks, 1 << 20},
      {"fixed_split", given.fixedSplit, 1 << 30},
      {"limits.rows", limits.rows, 1 << 26},
      {"limits.groups", limits.groups, 1 << 26},
      {"limits.instances_per_row", limits.instancesPerRow, 1 << 20},
      {"limits.shared_instances", limits.sharedInstances, 1 << 26},
      {"limits.shared_rows", limits.sharedRows, 1 << 26},
      {"limits.tokens_per_row", limits.tokensPerRow, most},
      {"limits.instances", limits.instances, 1 << 26},
      {"limits.pages", limits.pages, 1 << 24}};
  for (const auto &[name, value, bound] : fields)
    if (Status status = inRange(name, value, bound); !status)
      return status.error();
  if (given.kernel < 0 || (given.kernel && !kernel.manifest.isPlanned(given.kernel - 1)))
    return inputError("kernel: expected the index of an attend kernel of '" + kernel.manifest.entry +
                      "', got " + std::to_string(int64_t{given.kernel} - 1));
  options.blocks = given.blocks;
  options.fixedSplit = given.fixedSplit;
  options.kernel = given.kernel - 1;
  const DeviceProperties &device = kernel.device->device->properties();
  if (!kernel.device->host) { // on a host, plans are made for the GPU of predictions
    options.multiprocessors = device.multiprocessors;
    if (const GpuModel *gpu = findGpuOfDevice(device.name))
      options.gpu = gpu;
  }
  return options;
}

/// Makes a plan in the workspace of a destroyed plan. If the caller gives limits, they hold exactly, and the
/// plan gets a workspace of its own.
static Result<std::shared_ptr<PlannedBatch>> makeRoom(const std::shared_ptr<LoadedKernel> &kernel,
                                                      const PlanOptions &options,
                                                      const AttnPlanLimits &limits, uintptr_t stream) {
  auto held = kernel->device->use(stream);
  if (!held)
    return held.error();
  const PlanLimits asked{.rows = limits.rows,
                         .groups = limits.groups,
                         .instancesPerRow = std::max<int64_t>(limits.instancesPerRow, 1),
                         .sharedInstances = limits.sharedInstances,
                         .sharedRows = limits.sharedRows,
                         .tokensPerRow = limits.tokensPerRow};
  const TableRoom tables{limits.rows, limits.groups, limits.instances, limits.pages};
  std::optional<PlanRoom> left;
  if (asked == PlanLimits() && tables == TableRoom())
    left = kernel->takeRoom(options);
  if (left) {
    left->session->reserveTables(tables); // the plan before may have been given limits
    return std::make_shared<PlannedBatch>(kernel, std::move(*left));
  }
  Result<Session> session = Session::create(*kernel->device->device, kernel->manifest, kernel->module);
  if (!session)
    return session.error();
  session->reserveTables(tables);
  std::vector<int> slots;
  for (const std::string &name : kernel->slots) {
    Result<int> slot = session->slot(name);
    if (!slot)
      return slot.error();
    slots.push_back(*slot);
  }
  return std::make_shared<PlannedBatch>(kernel, PlanRoom{.options = options,
                                                         .limits = asked,
                                                         .session = std::move(*session),
                                                         .slots = std::move(slots)});
}

AttnStatus attnPlanCreate(AttnKernel *kernel, const AttnBatch *batch, const AttnPlanOptions *options,
                          uintptr_t stream, AttnPlan **plan) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, batch, plan", kernel, batch, plan); !status)
      return status;
    const std::shared_ptr<LoadedKernel> &loaded = kernel->loaded;
    const AttnPlanOptions given = options ? *options : AttnPlanOptions{};
    Result<PlanOptions> read = readOptions(given, *loaded);
    if (!read)
      return read.error();
    if (Status status = loaded->device->checkPlanning(stream); !status)
      return status;
    auto planned = makeRoom(loaded, *read, given.limits, stream);
    if (!planned)
      return planned.error();
    bool extended = false;
    Status status = (*planned)->update(batch->shared, stream, extended);
    if (!status && status.error().kind == ErrorKind::Memory) {
      auto held = loaded->device->hold();
      if (!held || loaded->rooms.empty())
        return status;
      loaded->rooms.clear();
      held->unlock();
      status = (*planned)->update(batch->shared, stream, extended);
    }
    if (!status)
      return status;
    *plan = new AttnPlan{std::move(*planned)};
    return {};
  });
}

void attnPlanDestroy(AttnPlan *plan) { delete plan; }

AttnStatus attnPlanUpdate(AttnPlan *plan, const AttnBatch *batch, uintptr_t stream, bool *extended) {
  return guarded([&]() -> Status {
    if (Status status = required("plan, batch", plan, batch); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    if (!held)
      return held.error();
    bool kept = false;
    Status status = plan->planned->update(batch->shared, stream, kept);
    if (extended)
      *extended = kept;
    return status;
  });
}

AttnStatus attnPlanGrow(AttnPlan *plan, int32_t tokens, int64_t apart, uintptr_t stream, bool *extended) {
  return guarded([&]() -> Status {
    if (Status status = required("plan", plan); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    if (!held)
      return held.error();
    bool kept = false;
    Status status = plan->planned->grow(tokens, apart, stream, kept);
    if (extended)
      *extended = kept;
    return status;
  });
}

int64_t attnPlanRows(const AttnPlan *plan) {
  return guardedValue(int64_t{0}, [&]() -> int64_t {
    if (!plan)
      return 0;
    auto held = plan->planned->lock.take("the plan");
    return held ? plan->planned->rows : 0;
  });
}

size_t attnPlanSlotBytes(const AttnPlan *plan, size_t slot) {
  return guardedValue(size_t{0}, [&]() -> size_t {
    if (!plan)
      return 0;
    auto held = plan->planned->lock.take("the plan");
    return held && slot < plan->planned->needs.size() ? plan->planned->needs[slot].bytes : 0;
  });
}

AttnStatus attnPlanRun(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes, size_t count,
                       uintptr_t stream) {
  return attnPlanRunStrided(plan, addresses, bytes, nullptr, count, stream);
}

AttnStatus attnPlanRunStrided(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes,
                              const int64_t *const *strides, size_t count, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("plan, addresses, bytes", plan, addresses, bytes); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    return held ? plan->planned->run(addresses, bytes, strides, count, stream) : held.error();
  });
}

AttnStatus attnPlanFix(AttnPlan *plan) {
  return guarded([&]() -> Status {
    if (Status status = required("plan", plan); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    if (!held)
      return held.error();
    PlannedBatch &planned = *plan->planned;
    if (planned.onDevice)
      return {};
    if (!planned.ready)
      return inputError("plan: the device failed in its last update: update it before it is fixed");
    if (Status status = planned.session->fixLaunch(); !status)
      return status;
    planned.fixed = true;
    planned.options.kernel = planned.plan.kernel;
    planned.options.blocks = planned.plan.blocks;
    planned.planner.emplace(planned.kernel->manifest, planned.options, planned.capacity);
    return {};
  });
}

Status attn::rt::capi::describePlan(
    const AttnPlan *plan, AttnBytes **text,
    const std::function<std::string(const Manifest &, const Batch &, const Plan &, const GpuModel &)> &make) {
  if (Status status = required("plan, text", plan, text); !status)
    return status;
  const PlannedBatch &planned = *plan->planned;
  auto held = plan->planned->lock.take("the plan");
  if (!held)
    return held.error();
  auto batch = planned.hold();
  if (!batch)
    return batch.error();
  *text = new AttnBytes{
      make(planned.kernel->manifest, planned.batch->content.batch, planned.plan, *planned.options.gpu)};
  return {};
}

AttnStatus attnPlanExplain(const AttnPlan *plan, AttnBytes **text) {
  return guarded([&] { return describePlan(plan, text, explainPlan); });
}

AttnPlanStats attnPlanStats(const AttnPlan *plan) {
  return guardedValue(AttnPlanStats{}, [&]() -> AttnPlanStats {
    if (!plan)
      return {};
    auto held = plan->planned->lock.take("the plan");
    if (!held)
      return {};
    const Plan &made = plan->planned->plan;
    const PlanStats &stats = made.stats;
    return {stats.kvBytes,
            stats.qBytes,
            stats.partialBytes,
            stats.metadataBytes,
            stats.outputBytes,
            stats.tasks,
            stats.cuts,
            std::ssize(made.mergeRows),
            made.blocks,
            stats.usedBlocks,
            made.kernel,
            plan->planned->extended,
            stats.balance,
            stats.flops,
            stats.estimatedSeconds};
  });
}

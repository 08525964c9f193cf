//===- DevicePlans.cpp - A session whose plans are made on the device -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/Grid.h"
#include "session/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// The session's own memory for a plan, among its buffers.
constexpr const char *ownPlan = "plan";

} // namespace

Status Session::useDevicePlan(const DevicePlan &plan) {
  State &s = *state_;
  const LaunchInfo *launch = s.manifest.planLaunch();
  if (!launch || !s.manifest.isPlanned(plan.kernel) || plan.ends.size() != s.manifest.ends.size())
    return inputError("the plan was made for another kernel than '" + s.manifest.entry + "'");
  const KernelInfo &planning = s.manifest.kernels[static_cast<size_t>(launch->kernels.front())];
  PlanCapacity capacity = plan.capacity;
  capacity.scratch *= gridBlocks(planning, capacity.tasks, 1, mostPlanBlocks);
  const auto buffers = planBuffers(capacity, s.manifest);
  s.planBytes = 0;
  s.planParts.clear();
  const auto place = [&](const std::string &name, int64_t bytes) -> Status {
    if (!s.wanted.contains(name))
      return {};
    Result<int> part = slot(name);
    if (!part)
      return part.error();
    s.planParts.push_back({*part, s.planBytes});
    s.planBytes += (static_cast<size_t>(bytes) + 255) / 256 * 256;
    return {};
  };
  for (size_t i = 0; i < planArrayCount; ++i) {
    const std::string name(planArrayNames[i]);
    const int64_t bytes = buffers[i].elements * buffers[i].elementBytes;
    const bool isPartial = buffers[i].use == MemoryUse::Partials;
    if (Status status = isPartial ? s.allocate(name, bytes, MemoryUse::Partials) : place(name, bytes);
        !status)
      return status;
    s.planElements[i] = buffers[i].elements;
  }
  if (Status status = place("q_pos", s.dims["rows"] * int64_t{sizeof(int32_t)}); !status)
    return status;
  if (Status status = s.allocate(ownPlan, static_cast<int64_t>(s.planBytes)); !status)
    return status;
  if (Status status = s.device.fill(s.addresses[ownPlan], 0, s.planBytes); !status)
    return status; // until the first plan is made there is one without tasks
  for (size_t i = 0; i < plan.dims.size(); ++i)
    s.dims[std::string(planDimNames[i])] = plan.dims[i];
  s.capacity = capacity;
  s.planStructure = 0;
  s.planKernel = plan.kernel;
  s.planBlocks = plan.blocks;
  s.ends = plan.ends;
  s.planClassHeads = s.classHeads;
  s.plansOnDevice = true;
  s.forget();
  if (Status status = fixLaunch(); !status)
    return status;
  return bindPlan(0);
}

size_t Session::planBytes() const { return state_->planBytes; }

Status Session::bindPlan(DeviceAddress memory) {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("bindPlan of '" + s.manifest.entry + "' before useDevicePlan");
  if (memory % 16 != 0)
    return inputError("a plan's memory: expected a multiple of 16, got " + std::to_string(memory));
  const DeviceAddress begin = memory ? memory : s.addresses[ownPlan];
  for (const State::PlanPart &part : s.planParts)
    bindSlot(part.slot, begin + part.offset);
  return {};
}

Status Session::launchPlan() {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("launchPlan of '" + s.manifest.entry + "' before useDevicePlan");
  for (BoundKernel &kernel : s.kernels) // the others may want what only a run binds: strides of its tensors
    if (s.stale && kernel.info->role == KernelInfo::Role::Plan)
      if (Status status = s.fillValues(kernel); !status)
        return status;
  return s.launch(*s.manifest.planLaunch());
}

Result<DevicePlanStatus> Session::planStatus() {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("planStatus of '" + s.manifest.entry + "' before useDevicePlan");
  int32_t words[2] = {};
  if (Status status =
          s.device.copyOut(words, s.addresses[std::string(planArrayName(PlanArray::Status))], sizeof(words));
      !status)
    return status.error();
  return DevicePlanStatus{static_cast<PlanFault>(words[0]), words[1]};
}

} // namespace attn::rt

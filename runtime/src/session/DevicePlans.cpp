//===- DevicePlans.cpp - A session whose plans are made on the device -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/Grid.h"
#include "session/State.h"

#include <algorithm>

namespace attn::rt {

Status Session::useDevicePlan(const DevicePlan &plan) {
  State &s = *state_;
  const LaunchInfo *launch = s.manifest.planLaunch();
  if (!launch || !s.manifest.isPlanned(plan.kernel) || plan.ends.size() != s.manifest.ends.size())
    return inputError("the plan was made for another kernel than '" + s.manifest.entry + "'");
  const KernelInfo &planning = s.manifest.kernels[static_cast<size_t>(launch->kernels.front())];
  PlanCapacity capacity = plan.capacity;
  capacity.scratch *= gridBlocks(planning, capacity.tasks, 1, mostPlanBlocks);
  // Allocates first: a failure changes nothing.
  std::vector<std::pair<std::string, size_t>> parts;
  size_t bytes = 0;
  const auto place = [&](const std::string &name, int64_t size) {
    if (!s.wanted.contains(name))
      return;
    parts.emplace_back(name, bytes);
    bytes += (static_cast<size_t>(size) + 255) / 256 * 256;
  };
  const auto buffers = planBuffers(capacity, s.manifest);
  const auto stage = [&]() -> Status {
    for (size_t i = 0; i < planArrayCount; ++i) {
      const std::string name(planArrayNames[i]);
      const int64_t size = buffers[i].elements * buffers[i].elementBytes;
      if (buffers[i].use != MemoryUse::Partials)
        place(name, size);
      else if (Status status = s.stageBuffer(name, size, MemoryUse::Partials); !status)
        return status;
    }
    place("q_pos", s.dims["rows"] * int64_t{sizeof(int32_t)});
    if (Status status = s.stageBuffer(planMemory, static_cast<int64_t>(bytes)); !status)
      return status;
    const auto own = std::find_if(s.stagedBuffers.begin(), s.stagedBuffers.end(),
                                  [](const auto &staged) { return staged.first == planMemory; });
    const Buffer &memory = own == s.stagedBuffers.end() ? s.buffers[planMemory] : own->second;
    return s.device.fill(memory.address(), 0,
                         bytes); // until the first plan is made, the plan has no tasks
  };
  if (Status status = stage(); !status) {
    s.unstage();
    return status;
  }
  s.commitBuffers();
  s.planParts.clear();
  for (const auto &[name, offset] : parts) {
    Result<int> part = slot(name);
    if (!part)
      return part.error();
    s.planParts.push_back({*part, offset});
  }
  s.planBytes = bytes;
  for (size_t i = 0; i < planArrayCount; ++i)
    s.planElements[i] = buffers[i].elements;
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
  const DeviceAddress begin = memory ? memory : s.addresses[planMemory];
  for (const State::PlanPart &part : s.planParts)
    bind(part.slot, begin + part.offset);
  return {};
}

Status Session::launchPlan() {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("launchPlan of '" + s.manifest.entry + "' before useDevicePlan");
  for (BoundKernel &kernel : s.kernels) // others may need what only a run binds: strides of its tensors
    if (s.stale && kernel.info->role == KernelInfo::Role::Plan)
      if (Status status = s.fillValues(kernel); !status)
        return status;
  return s.launch(*s.manifest.planLaunch());
}

Result<PlanFinding> Session::planFinding() {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("planFinding of '" + s.manifest.entry + "' before useDevicePlan");
  PlanFinding found;
  if (Status status = s.device.copyOut(&found, s.addresses[std::string(planArrayName(PlanArray::Finding))],
                                       sizeof(found));
      !status)
    return status.error();
  return found;
}

Result<std::string> Session::planFault() {
  const Result<PlanFinding> found = planFinding();
  if (!found)
    return found.error();
  const Manifest &m = state_->manifest;
  int64_t pages = 0;
  if (static_cast<PlanFault>(found->fault) == PlanFault::PageOutside)
    pages = state_->dims[m.operands[static_cast<size_t>(found->operand)].argument + ".pages"];
  return faultText(m, *found, pages);
}

} // namespace attn::rt

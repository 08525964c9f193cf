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
  if (Status status = reserve(capacity); !status)
    return status;
  for (size_t i = 0; i < plan.dims.size(); ++i)
    s.dims[std::string(planDimNames[i])] = plan.dims[i];
  s.planKernel = plan.kernel;
  s.planBlocks = plan.blocks;
  s.ends = plan.ends;
  s.planClassHeads = s.classHeads;
  const auto buffers = planBuffers(capacity, s.manifest);
  for (size_t i = 0; i < planArrayCount; ++i)
    s.planElements[i] = buffers[i].elements;
  s.plansOnDevice = true;
  s.forget();
  // Until the first plan is made there is one without tasks.
  for (PlanArray array :
       {PlanArray::Starts, PlanArray::BlockTasks, PlanArray::MergeStart, PlanArray::Status}) {
    const PlanBuffer &buffer = buffers[static_cast<size_t>(array)];
    if (Status status = s.device.fill(s.addresses[std::string(planArrayName(array))], 0,
                                      static_cast<size_t>(buffer.elements * buffer.elementBytes));
        !status)
      return status;
  }
  return fixLaunch();
}

Status Session::launchPlan() {
  State &s = *state_;
  if (!s.plansOnDevice)
    return inputError("launchPlan of '" + s.manifest.entry + "' before useDevicePlan");
  if (Status status = s.fillStale(); !status)
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

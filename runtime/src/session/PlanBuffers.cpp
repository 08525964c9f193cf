//===- PlanBuffers.cpp - A plan's arrays in device memory -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/PlanBuffers.h"

namespace attn::rt {

std::array<PlanBuffer, planArrayCount> planBuffers(const PlanCapacity &capacity, const Manifest &manifest) {
  return {{
#define ATTN_PLAN_ARRAY(Id, name, member, Element, room, meaning) {room, sizeof(Element), MemoryUse::Plain},
#define ATTN_PLAN_PARTIAL(Id, name, Element, rows, columns, meaning)                                         \
  {capacity.rows, int64_t{columns} * static_cast<int64_t>(sizeof(Element)), MemoryUse::Partials},
#include "attn_rt/artifact/PlanRecords.def"
  }};
}

PlanPlaces planPlaces(std::span<const PlanBuffer> buffers) {
  constexpr size_t alignment = 256;
  PlanPlaces places;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].use == MemoryUse::Partials)
      continue;
    places.offsets[i] = places.bytes;
    const auto bytes = static_cast<size_t>(buffers[i].elements * buffers[i].elementBytes);
    places.bytes += (bytes / alignment + 2) * alignment;
  }
  return places;
}

std::array<PlanContent, planArrayCount> planContents(const PlanView &view) {
  return {{
#define ATTN_PLAN_ARRAY(Id, name, member, ...) {view.member.data(), std::ssize(view.member)},
#define ATTN_PLAN_PARTIAL(Id, name, Element, rows, ...) {nullptr, view.rows},
#include "attn_rt/artifact/PlanRecords.def"
  }};
}

void fillStarts(const Plan &plan, std::vector<PlanStart> &starts) {
  starts.assign(static_cast<size_t>(plan.blocks), PlanStart{});
  for (size_t block = 0; block < starts.size(); ++block) {
    const int32_t first = plan.blockTasks[block];
    if (first == plan.blockTasks[block + 1])
      continue;
    starts[block].tasksBegin = first;
    starts[block].tasksEnd = plan.blockTasks[block + 1];
    const PlanTask &task = starts[block].task = plan.tasks[static_cast<size_t>(first)];
    if (task.segmentBegin < task.segmentEnd)
      starts[block].segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
  }
}

} // namespace attn::rt

//===- PlanBuffers.h - A plan's arrays in device memory ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arrays of PlanRecords.def with sizes and contents: what a session allocates and
// copies. No code here knows an array by name.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_PLANBUFFERS_H
#define ATTN_RT_SESSION_PLANBUFFERS_H

#include "attn_rt/device/Device.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// The size of an array's buffer.
struct PlanBuffer {
  int64_t elements = 0;     ///< of partial arrays: rows
  int64_t elementBytes = 0; ///< bytes of an element, or of a row
  MemoryUse use = MemoryUse::Plain;
};
std::array<PlanBuffer, planArrayCount> planBuffers(const PlanCapacity &capacity, const Manifest &manifest);

/// The name of the one allocation for all arrays that plans fill. Each partial array has an allocation of its
/// own.
inline constexpr const char *planMemory = "plan";
/// The offsets of the arrays in it, with gaps: reads past the end of an array find unwritten memory.
struct PlanPlaces {
  std::array<size_t, planArrayCount> offsets{};
  size_t bytes = 0;
  bool operator==(const PlanPlaces &) const = default;
};
PlanPlaces planPlaces(std::span<const PlanBuffer> buffers);

/// The arrays of a plan on the host, in the form of the device.
struct PlanView {
#define ATTN_PLAN_ARRAY(Id, name, member, Element, ...) std::span<const Element> member = {};
#include "attn_rt/artifact/PlanRecords.def"
  int64_t partialRows = 0, partialTokens = 0, scoreWords = 0, semaphores = 0; ///< rows of its partial arrays
};

/// The contents of an array of a plan. Partial arrays have rows but no contents.
struct PlanContent {
  const void *data = nullptr;
  int64_t elements = 0;
};
std::array<PlanContent, planArrayCount> planContents(const PlanView &view);

/// Whether an array may change in a plan that was only extended (Planner::update): the segments that tasks
/// read, and the blocks' first records, which hold a copy.
constexpr bool extends(PlanArray array) { return array == PlanArray::Segments || array == PlanArray::Starts; }

/// Fills a record for each block: its first task and that task's first segment.
void fillStarts(const Plan &plan, std::vector<PlanStart> &starts);

} // namespace attn::rt

#endif

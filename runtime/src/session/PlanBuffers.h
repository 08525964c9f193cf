//===- PlanBuffers.h - A plan's arrays in device memory ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arrays of PlanRecords.def with sizes and contents: what a session allocates,
// and what it copies. Neither knows one of them by name.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_PLANBUFFERS_H
#define ATTN_RT_SESSION_PLANBUFFERS_H

#include "attn_rt/device/Device.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// What an array's buffer is made for.
struct PlanBuffer {
  int64_t elements = 0;     ///< of partial arrays: rows
  int64_t elementBytes = 0; ///< of one of those
  MemoryUse use = MemoryUse::Plain;
};
std::array<PlanBuffer, planArrayCount> planBuffers(const PlanCapacity &capacity, const Manifest &manifest);

/// The name of the one allocation for all arrays that plans fill. Partial arrays have allocations of their
/// own.
inline constexpr const char *planMemory = "plan";
/// Where the arrays lie in it, with room between them: what is read behind an array was never written.
struct PlanPlaces {
  std::array<size_t, planArrayCount> offsets{};
  size_t bytes = 0;
  bool operator==(const PlanPlaces &) const = default;
};
PlanPlaces planPlaces(std::span<const PlanBuffer> buffers);

/// The arrays of a plan on the host, in the form that the device has them in.
struct PlanView {
#define ATTN_PLAN_ARRAY(Id, name, member, Element, ...) std::span<const Element> member = {};
#include "attn_rt/artifact/PlanRecords.def"
  int64_t partialRows = 0, partialTokens = 0, scoreWords = 0; ///< of its partial arrays
};

/// What an array of a plan holds. Partial arrays have rows and no contents.
struct PlanContent {
  const void *data = nullptr;
  int64_t elements = 0;
};
std::array<PlanContent, planArrayCount> planContents(const PlanView &view);

/// Whether an array may differ in a plan that was only extended (Planner::update): what tasks read does, of
/// which blocks start with a copy.
constexpr bool extends(PlanArray array) { return array == PlanArray::Segments || array == PlanArray::Starts; }

/// A record for each block: its first task and that one's first segment.
void fillStarts(const Plan &plan, std::vector<PlanStart> &starts);

} // namespace attn::rt

#endif

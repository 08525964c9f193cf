//===- CheckerWords.cpp - Saying what was found ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Checker.h"

namespace attn::rt::host {

std::string describeGlobal(const MemoryMap &memory, uintptr_t address, uint32_t bytes) {
  const Allocation *a = memory.nearest(address);
  char text[160];
  if (!a) {
    snprintf(text, sizeof text, "address 0x%llx (%u bytes), with nothing allocated",
             static_cast<unsigned long long>(address), bytes);
    return text;
  }
  auto offset = static_cast<int64_t>(address - a->address());
  auto size = static_cast<int64_t>(a->bytes);
  if (offset >= 0 && offset + bytes <= size)
    snprintf(text, sizeof text, "%s + %lld (%u bytes)", a->label.c_str(), static_cast<long long>(offset),
             bytes);
  else if (offset < 0)
    snprintf(text, sizeof text, "%s - %lld (%u bytes), before its start", a->label.c_str(),
             static_cast<long long>(-offset), bytes);
  else
    snprintf(text, sizeof text, "%s + %lld (%u bytes), past its end at %lld", a->label.c_str(),
             static_cast<long long>(offset), bytes, static_cast<long long>(size));
  return text;
}

std::string party(const Grid &grid, const Conflict &c) {
  if (c.bulk)
    return "a bulk copy: " + grid.kernel.ops[c.op].text;
  std::string who = c.lane == kEveryLane ? "several lanes of warp " + std::to_string(c.warp)
                                         : "thread " + std::to_string(c.warp * kLanes + c.lane);
  if (c.read)
    return who + " (a read)";
  return who + ": " + grid.kernel.ops[std::min<size_t>(c.op, grid.kernel.ops.size() - 1)].text;
}

void Checker::describeShared(Lane &lane, uint32_t op, const Conflict &c, bool writes) {
  bool race = c.kind == Conflict::Race;
  auto make = [&](LocalFinding &f) {
    uint32_t start = c.offset >= dynamicStart ? dynamicStart : 0;
    f.address = "shared + " + std::to_string(c.offset - start);
    if (!race)
      f.message = "reads unwritten shared bytes";
    else if (c.object)
      f.message =
          std::string(writes ? "overwrites" : "reads") + " a live mbarrier, made by " + party(*grid, c);
    else if (c.unfenced)
      f.message = std::string(writes ? "overwrites" : "reads") +
                  " through the async proxy shared bytes that were written through the generic one, without "
                  "fence.proxy.async in between, by " +
                  party(*grid, c);
    else if (c.queue)
      f.message = "overwrites shared bytes that a wgmma of warpgroup " + std::to_string(c.warp) +
                  " still reads: " + grid->kernel.ops[queueOps[c.warp]].text;
    else if (c.store)
      f.message = "overwrites shared bytes that a bulk store of thread " +
                  std::to_string(c.warp * kLanes + c.lane) + " still reads: " + grid->kernel.ops[c.op].text;
    else if (c.bulk)
      f.message = std::string(writes ? "overwrites" : "reads") +
                  " shared bytes of a copy whose mbarrier was not waited for, of " + party(*grid, c);
    else if (c.pending)
      f.message = std::string(writes ? "overwrites" : "reads") +
                  " shared bytes of an asynchronous copy that was not waited for, of " + party(*grid, c);
    else
      f.message =
          std::string(writes ? "writes" : "reads") + " shared bytes without order against " + party(*grid, c);
  };
  block->reportWith(race ? FindingKind::Race : FindingKind::Uninitialized, op, lane.thread, c.op, make);
}

void Checker::reportGlobal(Lane &lane, uint32_t op, FindingKind kind, const void *p, uint32_t bytes,
                           const char *what) {
  block->reportWith(kind, op, lane.thread, 0, [&](LocalFinding &f) {
    f.address = describeGlobal(grid->memory, p, bytes);
    f.message = what;
  });
}

void Checker::reportAlignment(Lane &lane, uint32_t op, uint64_t address, uint32_t alignment, bool shared) {
  block->reportWith(FindingKind::Misaligned, op, lane.thread, 0, [&](LocalFinding &f) {
    f.message = "the address must be a multiple of " + std::to_string(alignment);
    f.address = shared ? "shared address " + std::to_string(address)
                       : describeGlobal(grid->memory, address, alignment);
  });
}

} // namespace attn::rt::host

//===- Overlap.cpp - Launches that begin before others have ended ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A launch may begin while those in front of it still run, and must execute
// griddepcontrol.wait before it accesses what they write. That a thread has waited is
// tracked like other knowledge: the grids in front are one agent of the block's clocks;
// the wait makes it known to its thread, and barriers to other threads. A grid in front
// that lets its dependents start (griddepcontrol.launch_dependents) orders nothing.
//
// Only the writes of the grids in front are tracked, not their reads: a launch that
// overwrites their inputs before the wait goes unseen, unless they write those, too.
//
//===----------------------------------------------------------------------===//
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include <algorithm>

namespace attn::rt::host {

bool InFlight::overlaps(uint64_t start, uint64_t end) const {
  const auto next = std::upper_bound(ranges.begin(), ranges.end(), start,
                                     [](uint64_t at, const auto &range) { return at < range.second; });
  return next != ranges.end() && next->first < end;
}

void InFlight::add(std::vector<std::pair<uint64_t, uint64_t>> written) {
  written.insert(written.end(), ranges.begin(), ranges.end());
  std::sort(written.begin(), written.end());
  ranges.clear();
  for (const auto &[start, end] : written)
    if (!ranges.empty() && start <= ranges.back().second)
      ranges.back().second = std::max(ranges.back().second, end);
    else
      ranges.emplace_back(start, end);
}

void Checker::gridWaited(Lane &lane) {
  waited = true;
  if (previousGrids != ~0u)
    clocks.see(lane, previousGrids, 1);
}

void Checker::touchInFlight(Lane &lane, uint32_t op, uint64_t address, uint32_t bytes, const char *verb) {
  if (clocks.known(lane.warp->index, lane.index)[previousGrids] ||
      !grid->inFlight->overlaps(address, address + bytes))
    return;
  block->reportWith(FindingKind::Race, op, lane.thread, 0, [&](LocalFinding &f) {
    f.address = describeGlobal(grid->memory, address, bytes);
    f.message = std::string(verb) +
                " what a launch in front of this one writes, which may not have ended: no "
                "griddepcontrol.wait before";
  });
}

} // namespace attn::rt::host

using namespace attn::rt::host;

void attn_host_grid_wait(LaneAbi *abi) {
  Lane &lane = laneOf(abi);
  if (lane.block->checker)
    lane.block->checker->gridWaited(lane);
}

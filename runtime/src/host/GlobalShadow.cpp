//===- GlobalShadow.cpp - Races on global memory within a block -----------===//
#include "GlobalShadow.h"

namespace attn::rt::host {

Conflict GlobalShadow::access(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address,
                              uint32_t bytes, uint32_t op, bool writes, bool atomic) {
  Conflict found;
  if (lines.empty() && !writes)
    return found;
  Writer mine;
  mine.tick = clocks.tick(warp);
  mine.op = static_cast<uint16_t>(op);
  mine.warp = warp & 31;
  mine.lane = lane & 63;
  mine.atomic = atomic;
  for (uint64_t at = address, end = address + bytes; at < end;) {
    uint64_t stop = std::min(end, (at / 64 + 1) * 64);
    auto it = lines.find(at / 64);
    if (it == lines.end() && writes)
      it = lines.try_emplace(at / 64).first;
    if (it == lines.end()) {
      at = stop;
      continue;
    }
    for (; at < stop; ++at) {
      Writer &w = it->second.writers[at % 64];
      if (!found.kind && w.tick && !(w.atomic && atomic) &&
          !clocks.ordered(w.warp, w.lane, w.tick, warp, lane))
        found = {Conflict::Race, static_cast<uint32_t>(at - address), w.op, w.warp, w.lane, false, false};
      if (writes)
        w = mine;
    }
  }
  return found;
}

} // namespace attn::rt::host

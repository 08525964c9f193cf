//===- GlobalShadow.cpp - Races on global memory within a block -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GlobalShadow.h"

namespace attn::rt::host {

/// Checks against the last write of each byte; `mine`, if given, replaces it.
template <class Ordered>
Conflict GlobalShadow::visit(uint64_t address, uint32_t bytes, const Writer *mine, Ordered ordered) {
  Conflict found;
  if (lines.empty() && !mine)
    return found;
  for (uint64_t at = address, end = address + bytes; at < end;) {
    uint64_t stop = std::min(end, (at / 64 + 1) * 64);
    auto it = lines.find(at / 64);
    if (it == lines.end() && mine)
      it = lines.try_emplace(at / 64).first;
    if (it == lines.end()) {
      at = stop;
      continue;
    }
    for (; at < stop; ++at) {
      Writer &w = it->second.writers[at % 64];
      if (!found.kind && w.tick && !ordered(w)) {
        found = {Conflict::Race, static_cast<uint32_t>(at - address), w.op, w.warp, w.lane, false, false};
        found.bulk = w.copy;
      }
      if (mine)
        w = *mine;
    }
  }
  return found;
}

Conflict GlobalShadow::access(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address,
                              uint32_t bytes, uint32_t op, bool writes, bool atomic) {
  Writer mine;
  mine.tick = clocks.tick(warp);
  mine.op = static_cast<uint16_t>(op);
  mine.warp = warp & 31;
  mine.lane = lane & 63;
  mine.atomic = atomic;
  return visit(address, bytes, writes ? &mine : nullptr, [&](const Writer &w) {
    return w.copy ? storeOrdered(clocks, w, warp, lane)
                  : (w.atomic && atomic) || clocks.ordered(w.warp, w.lane, w.tick, warp, lane);
  });
}

Conflict GlobalShadow::writeBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address,
                                 uint32_t bytes, const BulkStore &store) {
  Writer mine;
  mine.tick = store.sequence;
  mine.op = static_cast<uint16_t>(store.op);
  mine.warp = warp & 31;
  mine.lane = lane & 63;
  mine.copy = true;
  mine.atomic = store.adds;
  return visit(address, bytes, &mine, [&](const Writer &w) {
    return w.atomic && store.adds ? true
           : w.copy               ? storeOrdered(clocks, w, warp, lane)
                                  : clocks.orderedAsync(w.warp, w.lane, w.tick, warp, lane);
  });
}

} // namespace attn::rt::host

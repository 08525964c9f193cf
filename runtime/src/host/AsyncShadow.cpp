//===- AsyncShadow.cpp - What wgmma reads, where mbarriers lie ------------===//
#include "SharedShadow.h"

namespace attn::rt::host {

bool SharedShadow::asyncConflicts(const Writer &w, const Clocks &clocks, const AsyncView &view,
                                  Conflict &conflict) const {
  if (!w.tick)
    return false;
  unsigned agent = w.warp + (w.copy ? copyAgents : 0);
  bool ordered = false;
  if (!w.pending) {
    uint32_t who = w.warp * kLanes + w.lane + (w.copy ? Clocks::kCopyQueue : 0);
    if (w.tick <= view.a[agent] || clocks.everyoneKnows(view.warps, who, w.tick, /*async=*/true))
      return false;
    ordered = w.tick <= view.g[agent] || clocks.everyoneKnows(view.warps, who, w.tick, /*async=*/false);
  }
  conflict = {Conflict::Race, 0, w.op, w.warp, w.lane, w.pending || w.copy, false};
  conflict.object = w.object;
  conflict.unfenced = ordered;
  return true;
}

Conflict SharedShadow::readAsync(const Clocks &clocks, const AsyncView &view, uint32_t offset, unsigned queue,
                                 uint32_t group) {
  Conflict found;
  unsigned column = clocks.queue(queue);
  for (uint32_t c = offset / 4, end = c + 4; c < end; ++c) {
    const Writer &w = writers[c];
    if (w.split) {
      for (ByteCell &byte : split(c)) {
        if (!found.kind && asyncConflicts(byte.writer, clocks, view, found))
          found.offset = c * 4;
        byte.readers[column] = group << 6;
      }
    } else {
      if (!found.kind && (w.pending || w.tick > view.a[w.warp + (w.copy ? copyAgents : 0)]) &&
          asyncConflicts(w, clocks, view, found))
        found.offset = c * 4;
      readers[size_t(c) * warps + column] = group << 6;
    }
    if (!found.kind && valid[c] != 15) {
      found.kind = Conflict::Uninitialized;
      found.offset = c * 4;
    }
  }
  return found;
}

void SharedShadow::setObject(uint32_t offset) {
  for (uint32_t c = offset / 4; c < offset / 4 + 2; ++c)
    writers[c].pending = writers[c].object = true;
}

void SharedShadow::clearObject(uint32_t offset) {
  for (uint32_t c = offset / 4; c < offset / 4 + 2; ++c) {
    writers[c] = Writer();
    valid[c] = 0;
  }
}

} // namespace attn::rt::host

//===- AsyncShadow.cpp - What wgmma and bulk copies read and write --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SharedShadow.h"

namespace attn::rt::host {

bool SharedShadow::asyncConflicts(const Writer &w, const Clocks &clocks, const AsyncView &view,
                                  Conflict &conflict) const {
  if (!w.tick)
    return false;
  unsigned agent = agentOf(w);
  bool ordered = false;
  if (w.bulk()) {
    if (w.tick <= view.a[agent])
      return false;
  } else if (!w.pending) {
    uint32_t who = w.warp * kLanes + w.lane + (w.copy ? Clocks::kCopyQueue : 0);
    if (w.tick <= view.a[agent] || clocks.everyoneKnows(view.warps, who, w.tick, /*async=*/true))
      return false;
    ordered = w.tick <= view.g[agent] || clocks.everyoneKnows(view.warps, who, w.tick, /*async=*/false);
  }
  conflict = {Conflict::Race, 0, w.op, w.warp, w.lane, w.pending || w.copy, false};
  conflict.object = w.object;
  conflict.bulk = w.bulk();
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
      if (!found.kind && (w.pending || w.tick > view.a[agentOf(w)]) && asyncConflicts(w, clocks, view, found))
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

/// The copy must be ordered after writes for the async proxy; any order suffices after reads.
bool SharedShadow::bulkConflicts(const Writer &w, const Clocks &clocks, unsigned warp, uint32_t lane,
                                 Conflict &conflict) const {
  if (!w.tick)
    return false;
  bool ordered = false;
  if (w.bulk()) {
    if (w.tick <= clocks.knownAsync(warp, lane)[agentOf(w)])
      return false;
  } else if (!w.pending) {
    if (w.copy ? clocks.copyOrderedAsync(w.warp, w.lane, w.tick, warp, lane)
               : clocks.orderedAsync(w.warp, w.lane, w.tick, warp, lane))
      return false;
    ordered = w.copy ? clocks.copyOrdered(w.warp, w.lane, w.tick, warp, lane)
                     : clocks.ordered(w.warp, w.lane, w.tick, warp, lane);
  }
  conflict = {Conflict::Race, 0, w.op, w.warp, w.lane, w.pending || w.copy, false};
  conflict.object = w.object;
  conflict.unfenced = ordered;
  conflict.bulk = w.bulk();
  return true;
}

Conflict SharedShadow::writeBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                                 const Writer &mine, uint32_t validBytes) {
  const uint32_t *known = clocks.known(warp, lane), *knownAsync = clocks.knownAsync(warp, lane);
  Conflict found = storesConflict(clocks, warp, lane, offset, 16);
  for (uint32_t c = offset / 4, end = c + 4; c < end; ++c) {
    Writer &w = writers[c];
    uint32_t *row = &readers[size_t(c) * warps];
    if (w.split) {
      for (ByteCell &byte : split(c))
        if (!found.kind && (bulkConflicts(byte.writer, clocks, warp, lane, found) ||
                            readersConflict(byte.readers, clocks, warp, lane, found)))
          found.offset = c * 4;
      std::fill_n(row, warps, 0u);
    } else if (!found.kind) {
      bool fine = !w.pending && w.tick <= knownAsync[agentOf(w)];
      for (unsigned o = 0; o < warps; ++o)
        fine &= row[o] >> 6 <= known[o];
      if (!fine &&
          (bulkConflicts(w, clocks, warp, lane, found) || readersConflict(row, clocks, warp, lane, found)))
        found.offset = c * 4;
    }
    w = mine;
    valid[c] = static_cast<uint8_t>(validBytes & 15);
    validBytes >>= 4;
  }
  return found;
}

Conflict SharedShadow::readBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                                uint32_t &validBytes) {
  Conflict found;
  validBytes = 0;
  for (uint32_t c = offset / 4, i = 0; i < 4; ++c, ++i) {
    if (writers[c].split) {
      for (ByteCell &byte : split(c))
        if (!found.kind && bulkConflicts(byte.writer, clocks, warp, lane, found))
          found.offset = c * 4;
    } else if (!found.kind && bulkConflicts(writers[c], clocks, warp, lane, found)) {
      found.offset = c * 4;
    }
    validBytes |= uint32_t(valid[c]) << 4 * i;
  }
  return found;
}

void SharedShadow::noteStore(uint32_t thread, uint32_t sequence, uint32_t offset, uint32_t bytes,
                             uint32_t op) {
  const StoreBox box{offset, offset + bytes, thread, sequence, op};
  // Knowledge of a thread's later store of the same box implies knowledge of the earlier one.
  for (StoreBox &known : stores)
    if (known.begin == box.begin && known.end == box.end && known.thread == thread) {
      known = box;
      return;
    }
  stores.push_back(box);
}

Conflict SharedShadow::storesConflict(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                                      uint32_t bytes) const {
  Conflict found;
  for (const StoreBox &box : stores)
    if (offset < box.end && offset + bytes > box.begin &&
        !clocks.storeOrdered(Clocks::kStoresRead, box.thread, box.sequence, warp, lane)) {
      found = {Conflict::Race,
               std::max(offset, box.begin),
               box.op,
               box.thread / kLanes,
               box.thread % kLanes,
               false,
               true};
      found.store = true;
      break;
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

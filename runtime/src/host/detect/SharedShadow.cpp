//===- SharedShadow.cpp - Who touched which shared bytes ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SharedShadow.h"

namespace attn::rt::host {

void SharedShadow::reset(const Clocks &clocks, uint32_t end) {
  warps = clocks.readers();
  copyAgents = clocks.copies(0);
  bulkAgents = clocks.mbarrier(0);
  size_t cells = (end + 3) / 4 + 4;
  writers.assign(cells, Writer());
  readers.assign(cells * warps, 0);
  valid.assign(cells, 0);
  splits.clear();
  stores.clear();
}

SharedShadow::SplitCell &SharedShadow::split(uint32_t cell) {
  auto [it, fresh] = splits.try_emplace(cell);
  if (fresh || !writers[cell].split) {
    for (ByteCell &byte : it->second) {
      byte.writer = writers[cell];
      std::copy_n(&readers[size_t(cell) * warps], warps, byte.readers);
    }
    writers[cell].split = true;
  }
  return it->second;
}

bool SharedShadow::writerConflicts(const Writer &w, const Clocks &clocks, unsigned warp, uint32_t lane,
                                   bool atomic, Conflict &conflict) const {
  if (!w.tick)
    return false;
  if (!w.pending && (w.bulk() ? w.tick <= clocks.known(warp, lane)[agentOf(w)]
                     : w.copy ? clocks.copyOrdered(w.warp, w.lane, w.tick, warp, lane)
                              : (w.atomic && atomic) || clocks.ordered(w.warp, w.lane, w.tick, warp, lane)))
    return false;
  conflict = {Conflict::Race, 0, w.op, w.warp, w.lane, w.pending || w.copy, false};
  conflict.object = w.object;
  conflict.bulk = w.bulk();
  return true;
}

bool SharedShadow::readersConflict(const uint32_t *row, const Clocks &clocks, unsigned warp, uint32_t lane,
                                   Conflict &conflict) const {
  const uint32_t *known = clocks.known(warp, lane);
  for (unsigned w = 0; w < warps; ++w) {
    if (row[w] >> 6 <= known[w])
      continue;
    bool queue = w >= clocks.warpCount();
    if (!queue && clocks.ordered(w, row[w] & 63, row[w] >> 6, warp, lane))
      continue;
    conflict = {Conflict::Race, 0, 0, queue ? w - clocks.warpCount() : w, row[w] & 63, false, true};
    conflict.queue = queue;
    return true;
  }
  return false;
}

void SharedShadow::noteRead(uint32_t &reader, const Clocks &clocks, unsigned warp, uint32_t lane) const {
  // Two lanes whose reads are not ordered for everyone share the entry as "several".
  uint32_t before = reader & 63;
  if (reader && before != lane && reader >> 6 > clocks.known(warp, kEveryLane)[warp])
    lane = kEveryLane;
  reader = clocks.tick(warp) << 6 | lane;
}

/// Reads four whole cells in a row, the case that must be quick. Returns true if nothing is wrong, with
/// everything noted; otherwise changes nothing.
bool SharedShadow::readRow(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t cell) {
  const uint32_t *known = clocks.known(warp, lane);
  for (uint32_t c = cell; c < cell + 4; ++c) {
    const Writer &w = writers[c];
    if (w.pending || w.split || w.tick > known[agentOf(w)] || valid[c] != 15)
      return false;
  }
  for (uint32_t c = cell; c < cell + 4; ++c)
    noteRead(readers[size_t(c) * warps + warp], clocks, warp, lane);
  return true;
}

bool SharedShadow::writeRow(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t cell,
                            const Writer &mine) {
  const uint32_t *known = clocks.known(warp, lane);
  bool fine = true;
  for (uint32_t c = cell; c < cell + 4; ++c) {
    const Writer &w = writers[c];
    fine &= !w.pending && !w.split && w.tick <= known[agentOf(w)];
    const uint32_t *row = &readers[size_t(c) * warps];
    for (unsigned o = 0; o < warps; ++o)
      fine &= row[o] >> 6 <= known[o];
  }
  if (!fine)
    return false;
  std::fill_n(&writers[cell], 4, mine);
  if (!mine.pending)
    std::fill_n(&valid[cell], 4, uint8_t(15));
  return true;
}

Conflict SharedShadow::read(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                            uint32_t bytes) {
  Conflict first;
  if (bytes == 16 && offset % 4 == 0 && readRow(clocks, warp, lane, offset / 4))
    return first;
  Writer previous; // neighbouring cells mostly have one writer: check it once
  for (uint32_t at = offset, end = offset + bytes; at < end;) {
    uint32_t cell = at / 4, stop = std::min(end, cell * 4 + 4);
    uint32_t mask = (1u << (stop - cell * 4)) - (1u << (at - cell * 4));
    Conflict found;
    Writer &writer = writers[cell];
    if (mask != 15 || writer.split) {
      SplitCell &parts = split(cell);
      for (unsigned i = 0; i < 4; ++i)
        if (mask >> i & 1) {
          if (!found.kind)
            writerConflicts(parts[i].writer, clocks, warp, lane, false, found);
          noteRead(parts[i].readers[warp], clocks, warp, lane);
        }
    } else {
      if (!(writer == previous))
        if (!writerConflicts(writer, clocks, warp, lane, false, found))
          previous = writer;
      noteRead(readers[size_t(cell) * warps + warp], clocks, warp, lane);
    }
    if (!found.kind && (valid[cell] & mask) != mask)
      found.kind = Conflict::Uninitialized;
    if (found.kind && !first.kind) {
      first = found;
      first.offset = at;
    }
    at = stop;
  }
  return first;
}

Conflict SharedShadow::write(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                             uint32_t bytes, uint32_t op, bool atomic, bool pending) {
  Conflict first = storesConflict(clocks, warp, lane, offset, bytes);
  Writer mine;
  mine.tick = clocks.tick(warp);
  mine.op = static_cast<uint16_t>(op);
  mine.warp = warp & 31;
  mine.lane = lane & 63;
  mine.atomic = atomic;
  mine.pending = pending;
  if (bytes == 16 && offset % 4 == 0 && writeRow(clocks, warp, lane, offset / 4, mine))
    return first;
  for (uint32_t at = offset, end = offset + bytes; at < end;) {
    uint32_t cell = at / 4, stop = std::min(end, cell * 4 + 4);
    uint32_t mask = (1u << (stop - cell * 4)) - (1u << (at - cell * 4));
    Conflict found;
    if (mask != 15 || writers[cell].split) {
      SplitCell &parts = split(cell);
      for (unsigned i = 0; i < 4; ++i) {
        if (!(mask >> i & 1))
          continue;
        if (!found.kind && !writerConflicts(parts[i].writer, clocks, warp, lane, atomic, found))
          readersConflict(parts[i].readers, clocks, warp, lane, found);
        parts[i].writer = mine;
      }
      if (mask == 15) { // one cell again; its readers were checked and all precede this write
        writers[cell] = mine;
        std::fill_n(&readers[size_t(cell) * warps], warps, 0u);
      }
    } else {
      if (!writerConflicts(writers[cell], clocks, warp, lane, atomic, found))
        readersConflict(&readers[size_t(cell) * warps], clocks, warp, lane, found);
      writers[cell] = mine;
    }
    if (!pending)
      valid[cell] |= static_cast<uint8_t>(mask);
    if (found.kind && !first.kind) {
      first = found;
      first.offset = at;
    }
    at = stop;
  }
  return first;
}

template <class Settle>
void SharedShadow::settle(unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes, uint32_t op,
                          uint32_t validBytes, Settle how) {
  auto one = [&](Writer &w) {
    if (w.pending && w.warp == warp && w.lane == lane && w.op == static_cast<uint16_t>(op) && !w.object) {
      w.pending = false;
      how(w);
    }
  };
  for (uint32_t at = offset; at < offset + bytes; at += 4) {
    uint32_t cell = at / 4;
    if (writers[cell].split)
      for (ByteCell &byte : split(cell))
        one(byte.writer);
    else
      one(writers[cell]);
    valid[cell] = static_cast<uint8_t>(validBytes >> (at - offset) & 15);
  }
}

void SharedShadow::finish(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes,
                          uint32_t op, uint32_t validBytes) {
  uint32_t tick = clocks.tick(warp);
  settle(warp, lane, offset, bytes, op, validBytes, [&](Writer &w) { w.tick = tick; });
}

void SharedShadow::land(unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes, uint32_t op,
                        uint32_t validBytes, uint32_t sequence) {
  settle(warp, lane, offset, bytes, op, validBytes, [&](Writer &w) {
    w.tick = sequence;
    w.copy = true;
  });
}

} // namespace attn::rt::host

//===- CheckerBulk.cpp - Bulk copies --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "BulkCopy.h"
#include "Mbarrier.h"
#include "host/detect/Checker.h"
#include "host/machine/Swizzle.h"

namespace attn::rt::host {

/// The allocation that contains the elements in range; null, with a report, if none does. Also null if no
/// element is in range.
Allocation *Checker::bulkMemory(Lane &lane, BulkBox &box, const char *what) {
  uint64_t low = ~0ull, high = 0;
  forRows(box, [&](const BulkRow &row) {
    if (!row.bytes())
      return;
    low = std::min(low, row.address);
    high = std::max(high, row.address + row.bytes());
  });
  if (high == 0)
    return nullptr;
  Allocation *a = grid->memory.find(low);
  if (a && a->contains(low, high - low))
    return a;
  box.accessible = false;
  bool told = false;
  forRows(box, [&](const BulkRow &row) {
    if (told || !row.bytes() || (a && a->contains(row.address, row.bytes())))
      return;
    told = true;
    reportGlobal(lane, box.op, FindingKind::OutOfBounds, reinterpret_cast<const void *>(row.address),
                 row.bytes(), what);
  });
  return nullptr;
}

/// Whether the box lies in the block's shared memory, at a legal address.
bool Checker::bulkShared(Lane &lane, const BulkBox &box, const char *what) {
  const uint64_t bytes = box.map.boxBytes();
  if (bytes <= kArenaBytes && inShared(box.offset, static_cast<uint32_t>(bytes)))
    return checkAlignment(lane, box.op, box.offset, 128, true);
  block->reportWith(FindingKind::OutOfBounds, box.op, lane.thread, 1, [&](LocalFinding &f) {
    f.message = what;
    f.address = "shared + " + std::to_string(int64_t(box.offset) - dynamicStart) + " (" +
                std::to_string(bytes) + " bytes)";
  });
  return false;
}

/// Checks the reads of a copy. Rows that follow each other in memory are one run.
void Checker::bulkRead(Lane &lane, const BulkCopy &copy) {
  uint64_t start = 0, end = 0;
  const auto close = [&] {
    if (start == end)
      return;
    requests.bulkRun(start, end, copy.op, lane.thread, /*writes=*/false);
    const auto bytes = static_cast<uint32_t>(end - start);
    touchGlobal(lane, copy.op, start, bytes, "copies");
    Conflict c = global.read(clocks, lane.warp->index, lane.index, start, bytes);
    if (c.kind)
      block->reportWith(FindingKind::Race, copy.op, lane.thread, c.op, [&](LocalFinding &f) {
        f.address = describeGlobal(grid->memory, start, bytes);
        f.message = "copies without order against " + party(*grid, c);
      });
  };
  forRows(copy, [&](const BulkRow &row) {
    if (!row.bytes())
      return;
    if (row.address != end) {
      close();
      start = row.address;
    }
    end = row.address + row.bytes();
  });
  close();
  ++requests.counters.requests;
}

/// Validity of 16 bytes: bit i is set if byte i was written, or is a zero from out of range.
static uint32_t validChunk(const Allocation &a, const BulkRow &row, uint32_t at) {
  uint32_t valid = 0xffff;
  for (uint32_t i = 0; i < 16; ++i)
    if (at + i >= row.begin && at + i < row.end &&
        !a.isWritten(row.address + (at + i - row.begin) - a.address(), 1))
      valid &= ~(1u << i);
  return valid;
}

bool Checker::bulkIssued(Lane &lane, BulkCopy &copy, const Mbarrier &b) {
  if (!bulkShared(lane, copy, "copies to outside of the block's shared memory"))
    return false;
  const Allocation *source =
      bulkMemory(lane, copy, "copies elements of a tensor that lie outside of every allocation");
  if (source)
    bulkRead(lane, copy);
  Writer mine;
  mine.op = static_cast<uint16_t>(copy.op);
  mine.lane = kBulkLane;
  mine.copy = true;
  if (b.agent != ~0u) { // an untracked mbarrier has no phases to compare
    mine.warp = (b.agent - clocks.mbarrier(0)) & 31;
    mine.tick = static_cast<uint32_t>(copy.phase + 1);
  }
  Conflict first;
  forRows(copy, [&](const BulkRow &row) {
    const bool whole =
        !row.bytes() || !source || source->isWritten(row.address - source->address(), row.bytes());
    for (uint32_t at = 0; at < copy.rowBytes(); at += 16) {
      Conflict c =
          shadow.writeBulk(clocks, lane.warp->index, lane.index, swizzle(row.offset + at, copy.map.swizzle),
                           mine, whole ? 0xffff : validChunk(*source, row, at));
      if (!first.kind)
        first = c;
    }
  });
  reportShared(lane, copy.op, first, true);
  return true;
}

bool Checker::bulkStored(Lane &lane, BulkStore &store) {
  const auto negative = [](int32_t coordinate) { return coordinate < 0; };
  if (std::any_of(store.at, store.at + store.map.rank, negative))
    block->report(FindingKind::Sync, store.op, lane, "a bulk store begins before the tensor");
  if (!bulkShared(lane, store, "stores from outside of the block's shared memory"))
    return false;
  Allocation *target =
      bulkMemory(lane, store, "stores elements of a tensor that lie outside of every allocation");
  if (target && !writes.mayWrite(target)) {
    reportGlobal(lane, store.op, FindingKind::OutOfBounds, target->base, 1,
                 "writes into an allocation that none of its tensor maps are of");
    store.accessible = false;
  }
  const unsigned warp = lane.warp->index;
  if (!store.accessible)
    target = nullptr;
  Conflict first, onTarget;
  uint64_t conflictAt = 0;
  forRows(store, [&](const BulkRow &row) {
    if (store.adds && target && row.bytes() &&
        !target->isWritten(row.address - target->address(), row.bytes()))
      reportGlobal(lane, store.op, FindingKind::Uninitialized, reinterpret_cast<const void *>(row.address),
                   row.bytes(), "adds to unwritten bytes");
    // A store does not use its bytes: unwritten bytes stay unwritten.
    for (uint32_t at = row.begin / 16 * 16; at < row.end; at += 16) {
      uint32_t valid = 0;
      Conflict c =
          shadow.readBulk(clocks, warp, lane.index, swizzle(row.offset + at, store.map.swizzle), valid);
      if (!first.kind)
        first = c;
      for (uint32_t i = std::max(at, row.begin); target && i < std::min(at + 16, row.end);) {
        const uint32_t end = valid == 0xffff ? std::min(at + 16, row.end) : i + 1;
        if (valid >> (i - at) & 1)
          target->mark(row.address + (i - row.begin) - target->address(), end - i);
        i = end;
      }
    }
    if (!row.bytes() || !target)
      return;
    touchGlobal(lane, store.op, row.address, row.bytes(), store.adds ? "adds to" : "writes");
    Conflict c = global.writeBulk(clocks, warp, lane.index, row.address, row.bytes(), store);
    if (c.kind && !onTarget.kind)
      onTarget = c, conflictAt = row.address;
    requests.bulkRun(row.address, row.address + row.bytes(), store.op, lane.thread, /*writes=*/true);
  });
  ++requests.counters.requests;
  reportShared(lane, store.op, first, false);
  if (onTarget.kind)
    block->reportWith(FindingKind::Race, store.op, lane.thread, onTarget.op, [&](LocalFinding &f) {
      f.address = describeGlobal(grid->memory, conflictAt + onTarget.offset, 1);
      f.message = "stores without order against " + party(*grid, onTarget);
    });
  shadow.noteStore(lane.thread, store.sequence, store.offset, static_cast<uint32_t>(store.map.boxBytes()),
                   store.op);
  return true;
}

void Checker::bulkWaited(Lane &lane, const BulkStore &store, bool reading) {
  clocks.learn(lane, {lane.thread | Clocks::kStoresRead, store.sequence, store.sequence});
  if (!reading)
    bulkWritten(lane, store.sequence);
}

void Checker::bulkWritten(Lane &lane, uint32_t sequence) {
  clocks.learn(lane, {lane.thread | Clocks::kStoresWritten, sequence, sequence});
}

} // namespace attn::rt::host

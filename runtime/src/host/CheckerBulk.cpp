//===- CheckerBulk.cpp - Bulk copies --------------------------------------===//
#include "BulkCopy.h"
#include "Checker.h"
#include "Mbarrier.h"
#include "Swizzle.h"

namespace attn::rt::host {

/// The allocation that the elements in range lie in; null, with a report, if they lie in none. Null too if no
/// element is in range.
const Allocation *Checker::bulkSource(Lane &lane, BulkCopy &copy) {
  uint64_t low = ~0ull, high = 0;
  forRows(copy, [&](const BulkRow &row) {
    if (!row.bytes())
      return;
    low = std::min(low, row.source);
    high = std::max(high, row.source + row.bytes());
  });
  if (high == 0)
    return nullptr;
  const Allocation *a = grid->memory.find(low);
  if (a && a->contains(low, high - low))
    return a;
  copy.readable = false;
  bool told = false;
  forRows(copy, [&](const BulkRow &row) {
    if (told || !row.bytes() || (a && a->contains(row.source, row.bytes())))
      return;
    told = true;
    reportGlobal(lane, copy.op, FindingKind::OutOfBounds, reinterpret_cast<const void *>(row.source),
                 row.bytes(), "copies elements of a tensor that lie outside of every allocation");
  });
  return nullptr;
}

/// Rows that follow each other in memory are one run.
void Checker::bulkRead(Lane &lane, const BulkCopy &copy) {
  uint64_t start = 0, end = 0;
  const auto close = [&] {
    if (start == end)
      return;
    requests.bulkRun(start, end, copy.op, lane.thread);
    const auto bytes = static_cast<uint32_t>(end - start);
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
    if (row.source != end) {
      close();
      start = row.source;
    }
    end = row.source + row.bytes();
  });
  close();
  ++requests.counters.requests;
}

/// Bit i: byte i of 16 was written, or is a zero from out of range.
static uint32_t validChunk(const Allocation &a, const BulkRow &row, uint32_t at) {
  uint32_t valid = 0xffff;
  for (uint32_t i = 0; i < 16; ++i)
    if (at + i >= row.begin && at + i < row.end &&
        !a.isWritten(row.source + (at + i - row.begin) - a.address(), 1))
      valid &= ~(1u << i);
  return valid;
}

bool Checker::bulkIssued(Lane &lane, BulkCopy &copy, const Mbarrier &b) {
  const uint64_t bytes = copy.map.boxBytes();
  if (bytes > kArenaBytes || !inShared(copy.offset, static_cast<uint32_t>(bytes))) {
    block->reportWith(FindingKind::OutOfBounds, copy.op, lane.thread, 1, [&](LocalFinding &f) {
      f.message = "copies to outside of the block's shared memory";
      f.address = "shared + " + std::to_string(int64_t(copy.offset) - dynamicStart) + " (" +
                  std::to_string(bytes) + " bytes)";
    });
    return false;
  }
  if (!checkAlignment(lane, copy.op, copy.offset, 128, true))
    return false;
  const Allocation *source = bulkSource(lane, copy);
  if (source)
    bulkRead(lane, copy);
  Writer mine;
  mine.op = static_cast<uint16_t>(copy.op);
  mine.lane = kBulkLane;
  mine.copy = true;
  if (b.agent != ~0u) { // of a phase that nobody follows, nothing can be said
    mine.warp = (b.agent - clocks.mbarrier(0)) & 31;
    mine.tick = static_cast<uint32_t>(copy.phase + 1);
  }
  Conflict first;
  forRows(copy, [&](const BulkRow &row) {
    const bool whole =
        !row.bytes() || !source || source->isWritten(row.source - source->address(), row.bytes());
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

} // namespace attn::rt::host

//===- Checker.cpp - Detectors and counters of one block ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Checker.h"
#include "host/machine/Fiber.h"
#include <cstring>

namespace attn::rt::host {

void Checker::beginBlock(Block &b) {
  block = &b;
  grid = b.grid;
  staticEnd = grid->kernel.staticShared;
  dynamicStart = dynamicSharedOffset(staticEnd, grid->kernel.sharedAlignment);
  dynamicEnd = dynamicStart + grid->sharedBytes;
  clocks.reset(b.warpCount, grid->kernel.wgmmaPrograms.empty() ? 0 : b.warpCount / 4);
  previousGrids = grid->inFlight && !grid->inFlight->empty() ? clocks.track() : ~0u;
  shadow.reset(clocks, dynamicEnd);
  global.reset();
  log.reset(*grid, writes);
  requests.reset(b, log);
  lastHit.assign(grid->kernel.ops.size(), nullptr);
  std::memset(scratch, 0, sizeof scratch);
}

void Checker::endBlock(Block &b) {
  for (unsigned w = 0; w < b.warpCount; ++w)
    requests.flush(*b.warps[w]);
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

bool Checker::inShared(uint32_t offset, uint32_t bytes) const {
  uint64_t end = uint64_t(offset) + bytes;
  return end <= staticEnd || (offset >= dynamicStart && end <= dynamicEnd);
}

Allocation *Checker::find(uint32_t op, const void *p, uint32_t bytes) {
  Allocation *&hit = lastHit[op];
  if (!hit || !hit->contains(p, bytes)) {
    Allocation *a = grid->memory.find(p);
    if (!a || !a->contains(p, bytes))
      return nullptr;
    hit = a;
  }
  return hit;
}

void *Checker::access(Lane &lane, uint32_t op, void *p) {
  const HostOpInfo &info = grid->kernel.ops[op];
  uint64_t offset = static_cast<uint64_t>(static_cast<uint8_t *>(p) - lane.shared);
  if (info.space == Space::Shared)
    return sharedAccess(lane, op, static_cast<uint32_t>(std::min<uint64_t>(offset, ~0u)), p);
  if (info.space == Space::Generic) {
    if (offset < kArenaBytes)
      return sharedAccess(lane, op, static_cast<uint32_t>(offset), p);
    uint64_t stack = static_cast<uint64_t>(static_cast<uint8_t *>(p) - block->stacks);
    if (stack < block->stackCount * kStackStride)
      return p; // the thread's own stack
  }
  return globalAccess(lane, op, p);
}

void *Checker::sharedAccess(Lane &lane, uint32_t op, uint32_t offset, void *p) {
  const HostOpInfo &info = grid->kernel.ops[op];
  if (!inShared(offset, info.bytes)) {
    block->reportWith(FindingKind::OutOfBounds, op, lane.thread, 0, [&](LocalFinding &f) {
      f.message = "outside of the block's shared memory (" + std::to_string(dynamicEnd - dynamicStart) +
                  " dynamic, " + std::to_string(staticEnd) + " static bytes)";
      f.address = "shared + " + std::to_string(int64_t(offset) - dynamicStart) + " (" +
                  std::to_string(info.bytes) + " bytes)";
    });
    return scratch;
  }
  checkAlignment(lane, op, offset, info.alignment, true);
  clocks.touch(lane);
  unsigned warp = lane.warp->index;
  bool writes = info.access != Access::Load;
  Conflict c;
  if (writes)
    c = shadow.write(clocks, warp, lane.index, offset, info.bytes, op, info.access == Access::Atomic);
  else
    c = shadow.read(clocks, warp, lane.index, offset, info.bytes);
  reportShared(lane, op, c, writes);
  throttle(lane, requests.add(lane, op, nullptr, 0, offset, info.bytes));
  return p;
}

void *Checker::globalAccess(Lane &lane, uint32_t op, void *p) {
  const HostOpInfo &info = grid->kernel.ops[op];
  Allocation *a = find(op, p, info.bytes);
  if (!a) {
    reportGlobal(lane, op, FindingKind::OutOfBounds, p, info.bytes, "outside of every allocation");
    return scratch;
  }
  checkAlignment(lane, op, reinterpret_cast<uintptr_t>(p), info.alignment, false);
  clocks.touch(lane);
  touchGlobal(lane, op, reinterpret_cast<uintptr_t>(p), info.bytes,
              info.access == Access::Load ? "reads" : "writes");
  unsigned warp = lane.warp->index;
  size_t offset = static_cast<size_t>(static_cast<uint8_t *>(p) - a->base);
  Conflict c;
  if (info.access == Access::Load) {
    if (!a->isWritten(offset, info.bytes))
      reportGlobal(lane, op, FindingKind::Uninitialized, p, info.bytes, "reads unwritten bytes");
    c = global.read(clocks, warp, lane.index, reinterpret_cast<uintptr_t>(p), info.bytes);
  } else {
    bool atomic = info.access == Access::Atomic;
    if (!writes.mayWrite(a)) {
      reportGlobal(lane, op, FindingKind::OutOfBounds, p, info.bytes,
                   "writes into an allocation that none of its pointers point to");
      return scratch;
    }
    if (atomic && !a->isWritten(offset, info.bytes))
      reportGlobal(lane, op, FindingKind::Uninitialized, p, info.bytes, "updates unwritten bytes");
    a->mark(offset, info.bytes);
    c = global.write(clocks, warp, lane.index, reinterpret_cast<uintptr_t>(p), info.bytes, op, atomic);
  }
  if (c.kind)
    block->reportWith(FindingKind::Race, op, lane.thread, c.op, [&](LocalFinding &f) {
      f.address = describeGlobal(grid->memory, p, info.bytes);
      f.message = std::string(info.access == Access::Load ? "reads" : "writes") + " without order against " +
                  party(*grid, c);
    });
  throttle(lane, requests.add(lane, op, p, info.bytes, ~0u, 0));
  return p;
}

void Checker::throttle(Lane &lane, uint32_t n) {
  if (n + 1 < Requests::kAhead)
    return;
  lane.warp->throttled |= lane.bit();
  block->throttledWarps |= 1u << lane.warp->index;
  block->switchAway(lane);
}

bool Checker::copyIssued(Lane &lane, uint32_t op, uint32_t offset, const void *source, uint32_t bytes,
                         uint32_t &sourceBytes) {
  if (sourceBytes > bytes) {
    block->report(FindingKind::Sync, op, lane, "copies more source bytes than its size");
    sourceBytes = bytes;
  }
  if (sourceBytes) {
    checkAlignment(lane, op, reinterpret_cast<uintptr_t>(source), bytes, false);
    if (!find(op, source, sourceBytes)) {
      reportGlobal(lane, op, FindingKind::OutOfBounds, source, sourceBytes,
                   "copies from outside of every allocation");
      sourceBytes = 0;
    }
  }
  if (!inShared(offset, bytes)) {
    block->reportWith(FindingKind::OutOfBounds, op, lane.thread, 1, [&](LocalFinding &f) {
      f.message = "copies to outside of the block's shared memory";
      f.address = "shared + " + std::to_string(int64_t(offset) - dynamicStart) + " (" +
                  std::to_string(bytes) + " bytes)";
    });
    return false;
  }
  unsigned warp = lane.warp->index;
  if (checkAlignment(lane, op, offset, bytes, true))
    reportShared(lane, op, shadow.write(clocks, warp, lane.index, offset, bytes, op, false, /*pending=*/true),
                 true);
  if (sourceBytes) {
    touchGlobal(lane, op, reinterpret_cast<uintptr_t>(source), sourceBytes, "copies");
    Conflict c = global.read(clocks, warp, lane.index, reinterpret_cast<uintptr_t>(source), sourceBytes);
    if (c.kind)
      block->reportWith(FindingKind::Race, op, lane.thread, c.op, [&](LocalFinding &f) {
        f.address = describeGlobal(grid->memory, source, sourceBytes);
        f.message = "copies without order against " + party(*grid, c);
      });
  }
  throttle(lane, requests.add(lane, op, source, sourceBytes, offset, bytes));
  return true;
}

void Checker::copyFinished(Lane &lane, const PendingCopy &copy) {
  clocks.touch(lane);
  shadow.finish(clocks, lane.warp->index, lane.index, copy.offset, copy.bytes, copy.op, validBytes(copy));
}

void Checker::matrix(Warp &warp, uint32_t op, uint32_t *offsets, uint32_t rows, bool isWrite) {
  clocks.settle(warp);
  if (isWrite)
    clocks.touch(warp.index, warp.alive);
  for (uint32_t r = 0; r < rows; ++r) {
    Lane &lane = warp.lanes[r];
    if (!inShared(offsets[r], 16)) {
      block->reportWith(FindingKind::OutOfBounds, op, lane.thread, 0, [&](LocalFinding &f) {
        f.message = "a row outside of the block's shared memory";
        f.address = "shared + " + std::to_string(int64_t(offsets[r]) - dynamicStart) + " (16 bytes)";
      });
      offsets[r] = 0;
      continue;
    }
    checkAlignment(lane, op, offsets[r], 16, true);
    Conflict c = isWrite ? shadow.write(clocks, warp.index, kEveryLane, offsets[r], 16, op)
                         : shadow.read(clocks, warp.index, kEveryLane, offsets[r], 16);
    reportShared(lane, op, c, isWrite);
  }
  requests.matrix(offsets, rows);
}

void Checker::atomicAdd(Lane &lane, uint32_t op, float *p, bool &usable) {
  usable = globalAccess(lane, op, p) == p;
}

void Checker::laneExit(Lane &lane) {
  if (lane.copiesHead < lane.copies.size())
    block->report(FindingKind::Sync, lane.copies[lane.copiesHead].op, lane,
                  "the thread exits with copies that were not waited for");
  // An arrival that covers copies does not wait for them in the thread's name: the thread must have seen its
  // phase.
  else if (lane.landedSequence && !clocks.copyOrdered(lane.warp->index, lane.index, lane.landedSequence,
                                                      lane.warp->index, lane.index))
    block->report(FindingKind::Sync, lane.landedOp, lane,
                  "the thread exits with copies that only an mbarrier waits for");
  for (const BulkStore &store : block->bulkStores)
    if (store.thread == lane.thread && !store.released)
      block->report(FindingKind::Sync, store.op, lane,
                    "the thread exits with a bulk store that may still read the block's shared memory");
}

} // namespace attn::rt::host

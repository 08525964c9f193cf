//===- Mbarrier.cpp - Barriers in shared memory ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mbarrier.h"
#include "AsyncCopy.h"
#include "BulkCopy.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include <string>

namespace attn::rt::host {

Mbarrier *findMbarrier(Block &block, uint32_t offset) {
  for (auto &b : block.mbarriers)
    if (b->offset == offset)
      return b.get();
  return nullptr;
}

Mbarrier *useMbarrier(Lane &lane, uint32_t op, void *p) {
  Block &block = *lane.block;
  auto offset = static_cast<uint32_t>(static_cast<uint8_t *>(p) - lane.shared);
  Mbarrier *b = findMbarrier(block, offset);
  if (!b) {
    block.report(FindingKind::Sync, op, lane, "no mbarrier was initialized here");
    return nullptr;
  }
  if (block.checker)
    block.checker->mbarrierUsed(lane, op, *b);
  return b;
}

/// Reports copies that signal the phase after it completes: their bytes were not expected.
static void checkCopies(Block &block, const Mbarrier &b) {
  for (const BulkCopy &copy : block.bulkCopies)
    if (!copy.landed && copy.barrier == b.offset && copy.phase == b.phase)
      block.report(FindingKind::Sync, copy.op, block.warps[copy.thread / kLanes]->lanes[copy.thread % kLanes],
                   "the mbarrier's phase completes without the " + std::to_string(copy.map.boxBytes()) +
                       " bytes of this copy, which no thread expected");
}

static void complete(Block &block, Mbarrier &b) {
  while (b.pending == 0 && b.bytes == 0) {
    checkCopies(block, b);
    ++b.phase;
    b.pending = b.expected;
    if (block.checker)
      block.checker->mbarrierCompleted(b);
    for (Lane *lane : b.waiting)
      block.wake(*lane->warp, lane->bit());
    b.waiting.clear();
  }
}

void completeBytes(Block &block, Mbarrier &b, uint64_t bytes) {
  b.bytes -= static_cast<int64_t>(bytes);
  complete(block, b);
}

static void expectBytes(Lane &lane, uint32_t op, Mbarrier &b, uint32_t bytes) {
  b.bytes += bytes;
  if (b.bytes >= 1 << 20)
    lane.block->report(FindingKind::Sync, op, lane,
                       "an mbarrier expects " + std::to_string(b.bytes) + " bytes; 2^20 - 1 are possible");
}

void arriveOn(Block &block, Mbarrier &b, uint32_t count, Lane &by, uint32_t op) {
  if (count > b.pending) {
    block.report(FindingKind::Sync, op, by,
                 "arrives " + std::to_string(count) + " times on an mbarrier whose phase waits for " +
                     std::to_string(b.pending));
    count = b.pending;
  }
  b.pending -= count;
  complete(block, b);
}

void fireArrival(Lane &lane) {
  Block &block = *lane.block;
  CopyArrival arrival = lane.arrivals.front();
  lane.arrivals.pop_front();
  uint32_t sequence = ++lane.copySequence;
  landCopies(lane, arrival.limit, sequence);
  Mbarrier *b = findMbarrier(block, arrival.barrier);
  if (!b)
    return; // reported when the arrival was issued, or the barrier no longer exists
  if (block.checker)
    block.checker->copiesReleased(lane, sequence, *b);
  arriveOn(block, *b, 1, lane, arrival.op);
}

bool Block::fireEvents() {
  while (!readyWarps) {
    const auto inFlight = [](const BulkCopy &copy) { return !copy.landed; };
    const size_t copies = static_cast<size_t>(std::count_if(bulkCopies.begin(), bulkCopies.end(), inFlight));
    if (events.empty() && copies == 0)
      return false;
    size_t which = 0;
    if (grid->options.asyncEffects == AsyncEffects::Random)
      which = effects.below(static_cast<uint32_t>(std::min<size_t>(events.size() + copies, 64)));
    if (which >= events.size()) {
      auto copy = std::find_if(bulkCopies.begin(), bulkCopies.end(), inFlight);
      for (which -= events.size(); which > 0; --which)
        copy = std::find_if(copy + 1, bulkCopies.end(), inFlight);
      landBulkCopy(*this, *copy);
      continue;
    }
    Lane *lane = events[which];
    events.erase(events.begin() + static_cast<ptrdiff_t>(which));
    if (!lane->arrivals.empty())
      fireArrival(*lane);
  }
  return true;
}

} // namespace attn::rt::host

using namespace attn::rt::host;

void attn_host_mbarrier_init(LaneAbi *abi, uint32_t op, void *p, uint32_t count) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  auto offset = static_cast<uint32_t>(static_cast<uint8_t *>(p) - lane.shared);
  if (count == 0 || count >= 1u << 20) {
    block.report(FindingKind::Sync, op, lane,
                 "an mbarrier of " + std::to_string(count) + " arrivals; 1 to 2^20 - 1 are possible");
    count = 1;
  }
  Mbarrier *b = findMbarrier(block, offset);
  if (b) {
    block.report(FindingKind::Sync, op, lane, "initializes a live mbarrier again, without mbarrier.inval");
  } else {
    block.mbarriers.push_back(std::make_unique<Mbarrier>());
    b = block.mbarriers.back().get();
  }
  b->offset = offset;
  b->expected = b->pending = count;
  b->phase = 0;
  b->bytes = 0;
  b->op = op;
  if (block.checker && !block.checker->mbarrierMade(lane, op, *b))
    std::erase_if(block.mbarriers, [&](auto &other) { return other.get() == b; });
}

void attn_host_mbarrier_inval(LaneAbi *abi, uint32_t op, void *p) {
  Lane &lane = laneOf(abi);
  Mbarrier *b = useMbarrier(lane, op, p);
  if (!b)
    return;
  if (!b->waiting.empty())
    lane.block->report(FindingKind::Sync, op, lane, "invalidates an mbarrier that threads wait on");
  if (lane.block->checker)
    lane.block->checker->mbarrierGone(lane, op, *b);
  std::erase_if(lane.block->mbarriers, [&](auto &other) { return other.get() == b; });
}

uint64_t attn_host_mbarrier_arrive(LaneAbi *abi, uint32_t op, void *p, uint32_t count, uint32_t bytes) {
  Lane &lane = laneOf(abi);
  Mbarrier *b = useMbarrier(lane, op, p);
  if (!b)
    return 0;
  uint64_t state = b->phase;
  expectBytes(lane, op, *b, bytes);
  if (lane.block->checker)
    lane.block->checker->mbarrierReleased(lane, *b);
  arriveOn(*lane.block, *b, count, lane, op);
  return state;
}

void attn_host_mbarrier_expect(LaneAbi *abi, uint32_t op, void *p, uint32_t bytes) {
  if (Mbarrier *b = useMbarrier(laneOf(abi), op, p))
    expectBytes(laneOf(abi), op, *b, bytes);
}

void attn_host_mbarrier_wait(LaneAbi *abi, uint32_t op, void *p, uint32_t parity) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  // A lane may get here long after the others: if the phases that it must not miss can complete meanwhile,
  // they complete now.
  if (block.shuffle && (block.schedule.next() & block.lateness) == 0) {
    lane.warp->late |= lane.bit();
    block.lateWarps |= 1u << lane.warp->index;
    block.switchAway(lane);
  }
  Mbarrier *b = useMbarrier(lane, op, p);
  if (!b)
    return;
  lane.waitOp = op;
  lane.waitParity = parity & 1;
  while ((b->phase & 1) == (parity & 1)) {
    if (block.checker)
      block.checker->mbarrierLag(lane, op, *b, parity & 1);
    b->waiting.push_back(&lane);
    block.switchAway(lane);
    uint32_t offset = static_cast<uint32_t>(static_cast<uint8_t *>(p) - lane.shared);
    b = findMbarrier(block, offset);
    if (!b)
      return;
  }
  observeBulkCopies(block, *b);
  if (block.checker) {
    block.checker->mbarrierLag(lane, op, *b, parity & 1);
    block.checker->mbarrierPassed(lane, op, *b);
  }
}

void attn_host_cp_mbarrier(LaneAbi *abi, uint32_t op, void *p, uint32_t counted) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  Mbarrier *b = useMbarrier(lane, op, p);
  if (!b)
    return;
  if (block.checker)
    block.checker->mbarrierStarted(lane, *b);
  if (!counted) // the default form raises the pending count itself
    ++b->pending;
  lane.arrivals.push_back({b->offset, op, lane.copiesDone + (lane.copies.size() - lane.copiesHead)});
  AsyncEffects effects = block.grid->options.asyncEffects;
  if (effects == AsyncEffects::Eager || (effects == AsyncEffects::Random && block.effects.below(2) == 0)) {
    while (!lane.arrivals.empty())
      fireArrival(lane);
    return;
  }
  block.events.push_back(&lane);
}

void attn_host_fence_async(LaneAbi *abi) {
  Lane &lane = laneOf(abi);
  if (lane.block->checker)
    lane.block->checker->fenceAsync(lane);
}

void attn_host_fence_mbarrier(LaneAbi *abi) {
  Lane &lane = laneOf(abi);
  if (lane.block->checker)
    lane.block->checker->publishMbarriers(lane);
}

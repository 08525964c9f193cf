//===- BulkCopy.cpp - cp.async.bulk.tensor to shared memory ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bytes move at any moment between the issue and the moment at which no thread
// could continue without them. The signal to the mbarrier is as free, and independent.
//
//===----------------------------------------------------------------------===//
#include "BulkCopy.h"
#include "Mbarrier.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include "host/machine/Swizzle.h"
#include <cstring>

namespace attn::rt::host {

static void move(Block &block, BulkCopy &copy) {
  if (copy.moved)
    return;
  copy.moved = true;
  const uint32_t rowBytes = copy.rowBytes(), span = copy.map.swizzle;
  forRows(copy, [&](const BulkRow &row) {
    alignas(16) uint8_t patched[256 * 4];
    const auto *from = reinterpret_cast<const uint8_t *>(row.address);
    if (row.bytes() != rowBytes || !copy.accessible) {
      std::memset(patched, 0, rowBytes);
      if (copy.accessible)
        std::memcpy(patched + row.begin, from, row.bytes());
      from = patched;
    }
    if (!span) {
      std::memcpy(block.shared + row.offset, from, rowBytes);
      return;
    }
    for (uint32_t i = 0; i < rowBytes; i += 16)
      std::memcpy(block.shared + swizzle(row.offset + i, span), from + i, 16);
  });
}

bool makeBulkBox(Lane &lane, uint32_t op, const void *shared, const void *map, uint32_t rank,
                 const int32_t *at, BulkBox &box) {
  std::memcpy(&box.map, map, sizeof box.map);
  if (box.map.mark != TensorMapBits::kMark || box.map.rank != rank) {
    lane.block->report(FindingKind::Sync, op, lane,
                       box.map.mark != TensorMapBits::kMark
                           ? "copies through what is no tensor map"
                           : "gives " + std::to_string(rank) + " coordinates of a tensor with " +
                                 std::to_string(box.map.rank) + " dimensions");
    return false;
  }
  std::copy_n(at, maxBulkRank, box.at);
  box.offset = static_cast<uint32_t>(static_cast<const uint8_t *>(shared) - lane.shared);
  box.op = op;
  box.thread = lane.thread;
  return true;
}

void landBulkCopy(Block &block, BulkCopy &copy) {
  move(block, copy);
  copy.landed = true;
  Lane &lane = block.warps[copy.thread / kLanes]->lanes[copy.thread % kLanes];
  if (Mbarrier *b = findMbarrier(block, copy.barrier))
    completeBytes(block, *b, copy.map.boxBytes());
  else
    block.report(FindingKind::Sync, copy.op, lane,
                 "the mbarrier of a bulk copy is gone before the copy landed");
}

void observeBulkCopies(Block &block, const Mbarrier &barrier) {
  if (block.bulkCopies.empty())
    return;
  for (BulkCopy &copy : block.bulkCopies)
    copy.observed |= copy.barrier == barrier.offset && copy.phase < barrier.phase;
  std::erase_if(block.bulkCopies, [](const BulkCopy &copy) { return copy.landed && copy.observed; });
}

} // namespace attn::rt::host

using namespace attn::rt::host;

void attn_host_bulk_copy(LaneAbi *abi, uint32_t op, void *to, const void *map, void *barrier, uint32_t rank,
                         int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  BulkCopy copy;
  const int32_t at[] = {c0, c1, c2, c3, c4};
  if (!makeBulkBox(lane, op, to, map, rank, at, copy))
    return;
  Mbarrier *b = useMbarrier(lane, op, barrier);
  if (!b)
    return;
  copy.barrier = b->offset;
  copy.phase = b->phase;
  if (block.checker) {
    block.checker->mbarrierSignalled(lane, op, *b);
    block.checker->mbarrierStarted(lane, *b);
  }
  // A copy that cannot be made counts as done, so that its waiters continue.
  copy.moved = copy.offset % 128 || copy.offset + copy.map.boxBytes() > kArenaBytes;
  if (block.checker && !block.checker->bulkIssued(lane, copy, *b))
    copy.moved = true;
  const AsyncEffects effects = block.grid->options.asyncEffects;
  const uint32_t draw = effects == AsyncEffects::Random  ? block.effects.below(3)
                        : effects == AsyncEffects::Eager ? 0
                                                         : 2;
  if (draw == 1)
    move(block, copy);
  block.bulkCopies.push_back(copy);
  if (draw == 0)
    landBulkCopy(block, block.bulkCopies.back());
}

//===- AsyncCopy.cpp - cp.async -------------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A copy may take effect at any moment from its issue until a wait of the same
// thread covers its group. A correct kernel gives the same bits at any such moment;
// a kernel that lacks a wait sees old bytes in Delayed mode.
//
//===----------------------------------------------------------------------===//
#include "AsyncCopy.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include <cstring>

namespace attn::rt::host {

static void move(Lane &lane, PendingCopy &copy) {
  if (copy.moved)
    return;
  copy.moved = true;
  uint8_t *to = lane.shared + copy.offset;
  if (copy.bytes == 16 && copy.sourceBytes == 16) { // nearly all copies
    std::memcpy(to, copy.source, 16);
    return;
  }
  std::memcpy(to, copy.source, copy.sourceBytes);
  std::memset(to + copy.sourceBytes, 0, copy.bytes - copy.sourceBytes);
}

static PendingCopy &takeCopy(Lane &lane) {
  ++lane.copiesDone;
  return lane.copies[lane.copiesHead++];
}

static void compact(Lane &lane) {
  if (lane.copiesHead == lane.copies.size()) {
    lane.copies.clear();
    lane.copiesHead = 0;
  } else if (lane.copiesHead > 256 && lane.copiesHead * 2 > lane.copies.size()) {
    lane.copies.erase(lane.copies.begin(), lane.copies.begin() + lane.copiesHead);
    lane.copiesHead = 0;
  }
}

void landCopies(Lane &lane, uint64_t limit, uint32_t sequence) {
  while (lane.copiesDone < limit) {
    PendingCopy &copy = takeCopy(lane);
    move(lane, copy);
    if (lane.block->checker)
      lane.block->checker->copyLanded(lane, copy, sequence);
  }
  compact(lane);
}

void finishCopies(Lane &lane, uint32_t groupLimit) {
  // An arrival whose copies are all covered takes place before the wait returns.
  while (!lane.arrivals.empty()) {
    uint64_t limit = lane.arrivals.front().limit;
    if (limit > lane.copiesDone &&
        lane.copies[lane.copiesHead + (limit - 1 - lane.copiesDone)].group >= groupLimit)
      break;
    fireArrival(lane);
  }
  if (lane.block->checker)
    lane.block->checker->copiesWaited(lane, groupLimit);
  while (lane.copiesHead < lane.copies.size() && lane.copies[lane.copiesHead].group < groupLimit) {
    PendingCopy &copy = takeCopy(lane);
    move(lane, copy);
    if (lane.block->checker)
      lane.block->checker->copyFinished(lane, copy);
  }
  compact(lane);
}

} // namespace attn::rt::host

using namespace attn::rt::host;

void attn_host_cp_async(LaneAbi *abi, uint32_t op, void *to, const void *from, uint32_t bytes,
                        uint32_t sourceBytes) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  uint32_t offset = static_cast<uint32_t>(static_cast<uint8_t *>(to) - lane.shared);
  if (block.checker && !block.checker->copyIssued(lane, op, offset, from, bytes, sourceBytes))
    return;
  if (offset > kArenaBytes - 16)
    return; // unchecked code of a wrong kernel must not crash the process
  PendingCopy copy{
      static_cast<const uint8_t *>(from), offset, lane.openGroup, op, static_cast<uint8_t>(bytes),
      static_cast<uint8_t>(sourceBytes),  false,  false};
  AsyncEffects effects = block.grid->options.asyncEffects;
  uint32_t draw = effects == AsyncEffects::Random  ? block.effects.below(3)
                  : effects == AsyncEffects::Eager ? 0
                                                   : 2;
  if (draw == 0)
    move(lane, copy);
  if (draw == 0 && !block.checker)
    return;
  copy.atCommit = draw == 1;
  lane.copies.push_back(copy);
}

void attn_host_cp_commit(LaneAbi *abi) {
  Lane &lane = laneOf(abi);
  for (size_t i = lane.copies.size(); i > lane.copiesHead && lane.copies[i - 1].group == lane.openGroup; --i)
    if (lane.copies[i - 1].atCommit)
      move(lane, lane.copies[i - 1]);
  ++lane.openGroup;
}

void attn_host_cp_wait(LaneAbi *abi, uint32_t newest) {
  Lane &lane = laneOf(abi);
  // The open group is not committed, so no wait covers it.
  if (lane.openGroup > newest)
    finishCopies(lane, lane.openGroup - newest);
}

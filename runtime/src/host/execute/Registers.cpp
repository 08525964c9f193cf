//===- Registers.cpp - setmaxnreg, elect, the rest of Hopper's housekeeping ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/async/BulkCopy.h"
#include "host/async/Mbarrier.h"
#include "host/async/Wgmma.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include <string>

namespace attn::rt::host {

constexpr uint32_t kRegisterFile = 65536;

void Block::beginAsync() {
  mbarriers.clear();
  events.clear();
  bulkCopies.clear();
  bulkStores.clear();
  elections = 0;
  unsigned groups = grid->kernel.wgmmaPrograms.empty() ? 0 : warpCount / kGroupWarps;
  while (tensors.size() < groups)
    tensors.push_back(std::make_unique<Tensor>());
  tensors.resize(groups);
  for (auto &tensor : tensors)
    tensor->reset();
  // The block gets as many registers as fit beside the other blocks of its multiprocessor, in steps of eight.
  uint32_t threads = warpCount * kLanes;
  uint32_t each = std::min(kRegisterFile / (threads * grid->kernel.blocksPerMultiprocessor) / 8 * 8, 256u);
  registersAllocated = each * threads;
  for (unsigned w = 0; w < warpCount; ++w)
    registers[w] = {each, each, 0, 0, 0};
}

static uint32_t registersInUse(const Block &block) {
  uint32_t sum = 0;
  for (unsigned w = 0; w < block.warpCount; ++w)
    sum += block.registers[w].current * kLanes;
  return sum;
}

/// Continues warps whose increase fits by now.
static void grantRegisters(Block &block) {
  for (unsigned w = 0; w < block.warpCount; ++w) {
    RegisterShare &share = block.registers[w];
    if (!share.waiting ||
        registersInUse(block) + (share.wanted - share.current) * kLanes > block.registersAllocated)
      continue;
    share.current = share.wanted;
    block.wake(*block.warps[w], share.waiting);
    share.waiting = 0;
  }
}

static bool runSetRegisters(Warp &warp, const Group &g) {
  Block &block = *warp.block;
  RegisterShare &share = block.registers[warp.index];
  auto wrong = [&](const std::string &what) {
    block.report(FindingKind::Sync, g.op, warp.lanes[0], "setmaxnreg: " + what);
  };
  uint32_t count = g.a;
  bool increase = g.b;
  if (count % 8 || count < 24 || count > 256)
    wrong(std::to_string(count) + " registers; multiples of 8 from 24 to 256 are possible");
  if (increase ? count < share.current : count > share.current)
    wrong(std::string(increase ? "an increase from " : "a decrease from ") + std::to_string(share.current) +
          " to " + std::to_string(count));
  ++share.changes;
  share.op = g.op;
  share.wanted = count;
  if (!increase || count <= share.current) {
    share.current = count;
    grantRegisters(block);
    return true;
  }
  if (registersInUse(block) + (count - share.current) * kLanes <= block.registersAllocated) {
    share.current = count;
    return true;
  }
  share.waiting = g.arrived;
  return false;
}

static bool runElect(Warp &warp, const Group &g) {
  // Any lane may be chosen, but always the same one for a seed, whatever ran first.
  Random random(warp.block->grid->options.seed + warp.block->linear * 131 + warp.index * 7 + g.op);
  uint32_t which = random.below(static_cast<uint32_t>(std::popcount(g.arrived))), lanes = g.arrived;
  for (; which; --which)
    lanes &= lanes - 1;
  for (uint32_t l = 0; l < kLanes; ++l)
    if (g.arrived >> l & 1)
      warp.word(0)[l] = static_cast<uint32_t>(std::countr_zero(lanes)) == l;
  return true;
}

//===----------------------------------------------------------------------===//
// The end of a block
//===----------------------------------------------------------------------===//

void Block::endAsync() {
  finishBulkStores(*this);
  for (BulkCopy &copy : bulkCopies) {
    if (!copy.landed)
      landBulkCopy(*this, copy);
    if (!copy.observed)
      report(FindingKind::Sync, copy.op, warps[copy.thread / kLanes]->lanes[copy.thread % kLanes],
             "the block ends with a bulk copy that was not waited for");
  }
  for (uint32_t id = 0; id < kBarriers; ++id)
    if (barriers[id].warps)
      report(FindingKind::Sync, barriers[id].op, warps[std::countr_zero(barriers[id].warps)]->lanes[0],
             "the block ends with " + std::to_string(barriers[id].arrived) + " threads of " +
                 std::to_string(barriers[id].expected) + " at barrier " + std::to_string(id));
  for (const auto &b : mbarriers)
    if (b->pending != b->expected || b->bytes)
      report(FindingKind::Sync, b->op, warps[b->warp]->lanes[b->lane],
             "the block ends within a phase of this mbarrier: " + std::to_string(b->expected - b->pending) +
                 " of " + std::to_string(b->expected) + " arrivals came, " + std::to_string(b->bytes) +
                 " bytes are outstanding");
  for (unsigned t = 0; t < tensors.size(); ++t)
    for (const Issue &issue : tensors[t]->issues) {
      if (issue.number == ~0ull)
        continue;
      const Lane &lane = warps[t * kGroupWarps]->lanes[0];
      if (issue.warps != (1u << kGroupWarps) - 1)
        report(FindingKind::Sync, issue.op, lane, "not every warp of the warpgroup executed this wgmma");
      else if (*std::min_element(tensors[t]->retired, tensors[t]->retired + kGroupWarps) < issue.group)
        report(FindingKind::Sync, issue.op, lane, "the block ends with a wgmma that was not waited for");
    }
  for (unsigned w = 0; w < warpCount; ++w)
    if (unsigned first = w / kGroupWarps * kGroupWarps;
        registers[w].current != registers[first].current || registers[w].changes != registers[first].changes)
      report(FindingKind::Sync, std::max(registers[w].op, registers[first].op), warps[w]->lanes[0],
             "setmaxnreg was not executed alike by all warps of the warpgroup");
}

void Block::reportAsyncDeadlock() {
  for (const auto &b : mbarriers)
    for (const Lane *lane : b->waiting)
      report(FindingKind::Deadlock, lane->waitOp, *lane,
             "the mbarrier's phase " + std::to_string(b->phase) + " never completes: " +
                 std::to_string(b->expected - b->pending) + " of " + std::to_string(b->expected) +
                 " arrivals came, " + std::to_string(b->bytes) + " bytes are outstanding");
  for (unsigned w = 0; w < warpCount; ++w) {
    if (registers[w].waiting)
      report(FindingKind::Deadlock, registers[w].op, warps[w]->lanes[0],
             "setmaxnreg waits for " + std::to_string((registers[w].wanted - registers[w].current) * kLanes) +
                 " registers; " + std::to_string(registersAllocated - registersInUse(*this)) +
                 " of the block's " + std::to_string(registersAllocated) + " are free");
    if (w / kGroupWarps < tensors.size())
      if (const Tensor::Waiter &waiter = tensors[w / kGroupWarps]->waiting[w % kGroupWarps]; waiter.lanes)
        report(FindingKind::Deadlock, waiter.op, warps[w]->lanes[0],
               "waits for a wgmma that not every warp of the warpgroup executes");
  }
}

} // namespace attn::rt::host

using namespace attn::rt::host;

void attn_host_set_registers(LaneAbi *abi, uint32_t op, uint32_t count, uint32_t increase) {
  rendezvous(laneOf(abi), runSetRegisters, meetKey(Meet::Registers, op), ~0u, op, count, increase);
}

uint32_t attn_host_elect(LaneAbi *abi, uint32_t op, uint32_t mask) {
  Lane &lane = laneOf(abi);
  if (!(mask & lane.bit())) {
    lane.block->report(FindingKind::Sync, op, lane, "elect.sync whose mask does not name the lane");
    mask |= lane.bit();
  }
  rendezvous(lane, runElect, meetKey(Meet::Elect, op), mask, op);
  return lane.exchange[0];
}

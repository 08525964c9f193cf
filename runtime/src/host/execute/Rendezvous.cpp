//===- Rendezvous.cpp - Where lanes, warps and blocks meet ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane that has to wait yields its core; the last lane to arrive runs the operation for
// all and makes the others ready. An exiting lane counts as arrived everywhere, so it may
// complete what the others wait for. Only a lane that waits for another process polls.
//
//===----------------------------------------------------------------------===//
#include "host/async/AsyncCopy.h"
#include "host/async/BulkCopy.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include "host/machine/Machine.h"
#include <chrono>
#include <string>
#include <thread>

namespace attn::rt::host {

/// Runs a group that is complete. Returns true if its lanes may continue.
static bool complete(Warp &warp, unsigned which) {
  Group group = warp.groups[which];
  warp.groups[which] = warp.groups[--warp.groupCount];
  // Requests are flushed only where all lanes converge, and none has exited: they must not depend on which
  // lane was faster.
  if (Checker *checker = warp.block->checker) {
    if (group.arrived == warp.all)
      checker->converge(warp);
    checker->meet(warp, group.arrived);
  }
  return group.run(warp, group);
}

void rendezvous(Lane &lane, Group::Run run, uint32_t key, uint32_t mask, uint32_t op, uint32_t a,
                uint32_t b) {
  Warp &warp = *lane.warp;
  Block &block = *lane.block;
  unsigned which = 0;
  while (which < warp.groupCount && !(warp.groups[which].key == key && warp.groups[which].mask == mask &&
                                      !(warp.groups[which].arrived & lane.bit())))
    ++which;
  if (which == warp.groupCount)
    warp.groups[warp.groupCount++] = {run, key, mask, 0, op, a, b};
  Group &group = warp.groups[which];
  group.arrived |= lane.bit();
  if (mask & warp.alive & ~group.arrived) {
    block.switchAway(lane);
    return;
  }
  uint32_t others = group.arrived & ~lane.bit();
  if (!complete(warp, which)) {
    block.switchAway(lane);
    return;
  }
  block.wake(warp, others);
  if (block.shuffle && (block.schedule.next() & 3) == 0) {
    block.wake(warp, lane.bit());
    block.switchAway(lane);
  }
}

void Block::report(FindingKind kind, uint32_t op, const Lane &lane, std::string message) {
  reportWith(kind, op, lane.thread, 0, [&](LocalFinding &f) { f.message = std::move(message); });
}

void Block::laneExit(Lane &lane) {
  Warp &warp = *lane.warp;
  while (!lane.arrivals.empty())
    fireArrival(lane);
  if (checker)
    checker->laneExit(lane);
  finishCopies(lane, ~0u);
  abandonBulkStores(lane);
  --aliveLanes;
  warp.alive &= ~lane.bit();
  warp.exited |= lane.bit();
  if (checker && !warp.alive)
    checker->converge(warp);
  for (unsigned i = 0; i < warp.groupCount;) {
    Group &group = warp.groups[i];
    if (group.mask & warp.alive & ~group.arrived) {
      ++i;
      continue;
    }
    uint32_t lanes = group.arrived;
    if (complete(warp, i))
      wake(warp, lanes);
    i = 0;
  }
  if (!warp.alive)
    completeBarriersAfterExit();
}

//===----------------------------------------------------------------------===//
// Block barriers
//===----------------------------------------------------------------------===//

static bool satisfied(const Block &block, const Barrier &barrier) {
  if (barrier.expected)
    return barrier.arrived >= barrier.expected;
  for (unsigned w = 0; w < block.warpCount; ++w)
    if (block.warps[w]->alive && !(barrier.warps >> w & 1))
      return false;
  return true;
}

static void release(Block &block, Barrier &barrier, uint32_t id) {
  for (unsigned w = 0; w < block.warpCount; ++w) {
    if (block.checker && barrier.waiting[w])
      block.checker->barrierAcquire(*block.warps[w], id);
    block.wake(*block.warps[w], barrier.waiting[w]);
  }
  if (block.checker)
    block.checker->barrierReset(id);
  barrier = Barrier();
}

bool barrierArrive(Warp &warp, const Group &group, uint32_t id, uint32_t threads, bool waits) {
  Block &block = *warp.block;
  Checker *checker = block.checker;
  Barrier &barrier = block.barriers[id];
  if (checker) {
    auto misuse = [&](std::string message) {
      block.report(FindingKind::Sync, group.op, warp.lanes[std::countr_zero(group.arrived)],
                   "barrier " + std::to_string(id) + ": " + std::move(message));
    };
    if (threads % kLanes)
      misuse("expects " + std::to_string(threads) + " threads, which is no multiple of 32");
    if (barrier.warps && barrier.expected != threads)
      misuse("expects " + std::to_string(threads) + " threads, but an earlier arrival expects " +
             (barrier.expected ? std::to_string(barrier.expected) : "all"));
    if (barrier.warps >> warp.index & 1)
      misuse("warp " + std::to_string(warp.index) + " arrives again before the barrier completed");
    if (barrier.expected && barrier.arrived + kLanes > barrier.expected)
      misuse("more threads arrive than it expects (" + std::to_string(barrier.expected) + ")");
    checker->barrierRelease(warp, id);
  }
  if (!barrier.warps)
    barrier.expected = threads;
  barrier.op = group.op;
  barrier.arrived += kLanes;
  barrier.warps |= 1u << warp.index;
  if (waits)
    barrier.waiting[warp.index] |= group.arrived;
  if (!satisfied(block, barrier))
    return !waits;
  // rendezvous() wakes the arriving lanes; the other lanes are woken here.
  if (waits) {
    if (checker)
      checker->barrierAcquire(warp, id);
    barrier.waiting[warp.index] = 0;
  }
  release(block, barrier, id);
  return true;
}

void Block::completeBarriersAfterExit() {
  for (uint32_t id = 0; id < kBarriers; ++id)
    if (barriers[id].warps && satisfied(*this, barriers[id]))
      release(*this, barriers[id], id);
}

void Block::reportDeadlock() {
  reportAsyncDeadlock();
  for (unsigned w = 0; w < warpCount; ++w) {
    Warp &warp = *warps[w];
    for (unsigned i = 0; i < warp.groupCount; ++i) {
      const Group &group = warp.groups[i];
      uint32_t missing = group.mask & warp.alive & ~group.arrived;
      char text[160];
      snprintf(text, sizeof text, "lanes %08x of warp %u wait here for lanes %08x, which never come",
               group.arrived, w, missing);
      report(FindingKind::Deadlock, group.op, warp.lanes[std::countr_zero(group.arrived)], text);
    }
  }
  for (uint32_t id = 0; id < kBarriers; ++id) {
    const Barrier &barrier = barriers[id];
    for (unsigned w = 0; w < warpCount; ++w) {
      if (!barrier.waiting[w])
        continue;
      std::string expected = barrier.expected ? std::to_string(barrier.expected) : "all live";
      report(FindingKind::Deadlock, barrier.op, warps[w]->lanes[std::countr_zero(barrier.waiting[w])],
             "barrier " + std::to_string(id) + ": " + std::to_string(barrier.arrived) + " threads of " +
                 expected + " arrived, the rest never comes");
      break;
    }
  }
}

} // namespace attn::rt::host

using namespace attn::rt::host;

// A kernel reads the clock while it waits for another process. All its other lanes go first, which may have
// something to tell that process, and then other threads.
uint64_t attn_host_globaltimer(LaneAbi *abi) {
  Lane &lane = laneOf(abi);
  lane.warp->late |= lane.bit();
  lane.block->lateWarps |= 1u << lane.warp->index;
  lane.block->switchAway(lane);
  std::this_thread::yield();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

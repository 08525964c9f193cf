//===- Block.cpp - One block from launch to exit --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Signals.h"
#include "host/async/Mbarrier.h"
#include "host/async/Wgmma.h"
#include "host/detect/Checker.h"
#include "host/machine/Fiber.h"
#include "host/machine/Machine.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace attn::rt::host {

static constexpr uint64_t kCanary = 0x5ca1ab1e0ddba11ull;

static uint8_t *reserve(size_t bytes, const char *what) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw NoRoom(bytes, what);
  return static_cast<uint8_t *>(p);
}

Block::Block() : signalStack(new uint8_t[kSignalStackBytes]) {
  // 256 KiB alignment: the low 18 bits of a host address are the shared address.
  uint8_t *raw = reserve(2 * kArenaBytes, "its shared memory");
  size_t before = -reinterpret_cast<uintptr_t>(raw) & (kArenaBytes - 1);
  shared = raw + before;
  if (before)
    munmap(raw, before);
  munmap(shared + kArenaBytes, kArenaBytes - before);
}

Block::~Block() {
  munmap(shared, kArenaBytes);
  if (stacks)
    munmap(stacks, stackCount * kStackStride);
}

static void laneMain(boost::context::detail::transfer_t t) {
  // The lane is the one whose fiber starts here.
  Lane *lane = static_cast<Switch *>(t.data)->to;
  arrived(t, lane->fiber);
  Block &block = *lane->block;
  block.grid->kernel.entry(lane, block.grid->args);
  try {
    block.laneExit(*lane);
    lane->fiber.ended = true;
    block.switchAway(*lane);
  } catch (...) {
    block.failure = std::current_exception();
  }
  block.abandon(*lane); // an exited lane is never chosen
}

void Block::abandon(Lane &from) {
  from.fiber.ended = true;
  switchTo(mainFiber, from.fiber, nullptr);
  abort(); // run() does not resume a block that failed
}

void Block::run(const Grid &g, uint64_t index) {
  grid = &g;
  linear = index;
  ctaid[0] = static_cast<uint32_t>(index % g.grid.x);
  ctaid[1] = static_cast<uint32_t>(index / g.grid.x % g.grid.y);
  ctaid[2] = static_cast<uint32_t>(index / g.grid.x / g.grid.y);
  shuffle = g.options.shuffle;
  schedule.reseed(g.options.seed * 0x9e3779b97f4a7c15ull + index);
  lateness = shuffle && (schedule.next() & 1) ? 7 : 127;
  effects.reseed((g.options.seed ^ 0x5bd1e995) * 0xd1342543de82ef95ull + index);
  adds.clear();
  flops = 0;
  uint32_t threads = static_cast<uint32_t>(g.block.count());
  warpCount = (threads + kLanes - 1) / kLanes;
  if (stackCount < threads) {
    uint8_t *larger = reserve(threads * kStackStride, "the stacks of its threads");
    if (stacks)
      munmap(stacks, stackCount * kStackStride);
    stackCount = threads;
    stacks = larger;
  }
  while (warps.size() < warpCount)
    warps.push_back(std::unique_ptr<Warp>(new Warp)); // not zeroed: the exchange buffer is large
  for (Barrier &b : barriers)
    b = Barrier();
  readyWarps = throttledWarps = lateWarps = 0;
  currentWarp = 0;
  aliveLanes = threads;
  // Memory of the previous block must not be mistaken for memory of this block.
  uint32_t sharedEnd = dynamicSharedOffset(g.kernel.staticShared, g.kernel.sharedAlignment) + g.sharedBytes;
  std::memset(shared, 0xff, std::min<size_t>(sharedEnd + 256, kArenaBytes));
  for (unsigned w = 0; w < warpCount; ++w) {
    Warp &warp = *warps[w];
    warp.block = this;
    warp.index = w;
    warp.groupCount = 0;
    warp.throttled = warp.late = warp.exited = 0;
    uint32_t lanes = std::min(kLanes, threads - w * kLanes);
    warp.alive = warp.all = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    warp.ready = 0;
    for (uint32_t l = 0; l < lanes; ++l) {
      Lane &lane = warp.lanes[l];
      uint32_t t = w * kLanes + l;
      const uint32_t special[NumSpecialRegisters] = {t % g.block.x,
                                                     t / g.block.x % g.block.y,
                                                     t / g.block.x / g.block.y,
                                                     ctaid[0],
                                                     ctaid[1],
                                                     ctaid[2],
                                                     g.block.x,
                                                     g.block.y,
                                                     g.block.z,
                                                     g.grid.x,
                                                     g.grid.y,
                                                     g.grid.z,
                                                     l,
                                                     w,
                                                     warpCount};
      std::memcpy(lane.special, special, sizeof special);
      lane.exchange = warp.exchange + l;
      lane.shared = shared;
      lane.warp = &warp;
      lane.block = this;
      lane.index = l;
      lane.thread = t;
      lane.copies.clear();
      lane.copiesHead = lane.openGroup = 0;
      lane.copiesDone = lane.copySequence = lane.wgmmaCommits = 0;
      lane.landedGroup = lane.landedSequence = 0;
      lane.openBulkGroup = lane.bulkStores = lane.readStores = lane.readGroup = 0;
      lane.arrivals.clear();
      lane.wgmmaFence = false;
      // The block's end detects a frame that grew past its stack.
      std::memcpy(stacks + t * kStackStride, &kCanary, sizeof kCanary);
      uint8_t *top = stacks + (t + 1) * kStackStride;
      lane.fiber = Fiber(top, laneMain);
    }
    wake(warp, warp.alive);
  }
  if (checker)
    checker->beginBlock(*this);
  beginAsync();
  while (Lane *first = chosen ? std::exchange(chosen, nullptr) : pick()) {
    switchTo(first->fiber, mainFiber, first);
    if (failure) // of a lane; an exception must not leave its fiber
      std::rethrow_exception(failure);
    if (g.interrupt)
      g.interrupt->poll();
    if (g.isFailed)
      throw Interrupted();
  }
  if (aliveLanes)
    reportDeadlock();
  else
    endAsync();
  for (uint32_t t = 0; t < threads; ++t)
    if (std::memcmp(stacks + t * kStackStride, &kCanary, sizeof kCanary) != 0) {
      fprintf(stderr, "host device: a thread of %s needs more than %zu bytes of stack\n",
              g.kernel.name.c_str(), kStackBytes);
      abort(); // the stack below it is gone
    }
  for (uint32_t t = 0; t < threads; ++t)
    warps[t / kLanes]->lanes[t % kLanes].fiber.notes.forget();
  if (checker)
    checker->endBlock(*this);
}

/// The set bit at or cyclically after a position.
static unsigned bitFrom(uint32_t mask, unsigned position) {
  return (position + static_cast<unsigned>(std::countr_zero(std::rotr(mask, static_cast<int>(position))))) %
         32;
}

bool Block::releaseLate() {
  if (!lateWarps)
    return false;
  Warp &warp = *warps[bitFrom(lateWarps, schedule.next() & 31)];
  lateWarps &= ~(1u << warp.index);
  wake(warp, warp.late);
  warp.late = 0;
  return true;
}

bool Block::releaseThrottled() {
  for (; throttledWarps; throttledWarps &= throttledWarps - 1) {
    Warp &warp = *warps[static_cast<unsigned>(std::countr_zero(throttledWarps))];
    checker->converge(warp);
    wake(warp, warp.throttled);
    warp.throttled = 0;
  }
  return readyWarps != 0;
}

Lane *Block::pick() {
  if (!readyWarps && !fireEvents() && !releaseThrottled() && !finishDelayedWaits() && !releaseLate())
    return nullptr;
  unsigned w = currentWarp;
  bool here = readyWarps >> w & 1;
  uint32_t draw = shuffle ? schedule.next() : 0;
  // A warp's lanes run one after another: they converge at the next warp-wide operation anyway.
  if (!here || (shuffle && (draw & 0x700) == 0))
    w = bitFrom(readyWarps, shuffle ? draw & 31 : (w + 1) % 32);
  currentWarp = w;
  Warp &warp = *warps[w];
  unsigned l = bitFrom(warp.ready, shuffle ? draw >> 16 & 31 : 0);
  warp.ready &= ~(1u << l);
  if (!warp.ready)
    readyWarps &= ~(1u << w);
  return &warp.lanes[l];
}

void Block::switchAway(Lane &from) {
  Lane *to = pick();
  if (--switchesToPoll == 0) {
    switchesToPoll = kSwitchesPerPoll;
    chosen = to;
    switchTo(mainFiber, from.fiber, nullptr);
    return;
  }
  if (to == &from)
    return;
  switchTo(to ? to->fiber : mainFiber, from.fiber, to);
}

} // namespace attn::rt::host

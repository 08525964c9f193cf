//===- Clocks.cpp - What happened before what, in one block ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Clocks.h"

namespace attn::rt::host {

void Knowledge::add(const Extra &extra) {
  for (Extra &e : extras)
    if (e.who == extra.who) {
      e.g = std::max(e.g, extra.g);
      e.a = std::max(e.a, extra.a);
      return;
    }
  extras.push_back(extra);
}

void Knowledge::join(const Knowledge &other, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    g[i] = std::max(g[i], other.g[i]);
    a[i] = std::max(a[i], other.a[i]);
  }
  for (const Extra &e : other.extras)
    add(e);
}

void Clocks::reset(unsigned warpCount, unsigned queueCount) {
  count = warpCount;
  queues = queueCount;
  tracked = 0;
  for (unsigned w = 0; w < count; ++w) {
    WarpClock &clock = warps[w];
    clock.tick = 1;
    clock.partial = false;
    clock.deviates = clock.touched = clock.waited = clock.unfenced = 0;
    std::fill(std::begin(clock.fenced), std::end(clock.fenced), 0u);
    clock.common = Knowledge();
  }
  for (Knowledge &barrier : barriers)
    barrier = Knowledge();
}

unsigned Clocks::track() {
  if (tracked == kMaxTracked)
    return ~0u;
  unsigned agent = mbarrier(tracked++);
  for (unsigned w = 0; w < count; ++w)
    for (uint32_t mask = warps[w].deviates; mask; mask &= mask - 1) {
      Knowledge &k = warps[w].lanes[std::countr_zero(mask)];
      k.g[agent] = k.a[agent] = 0;
    }
  return agent;
}

Knowledge &Clocks::own(const Lane &lane) {
  WarpClock &clock = warps[lane.warp->index];
  Knowledge &mine = clock.lanes[lane.index];
  if (!(clock.deviates & lane.bit())) {
    clock.deviates |= lane.bit();
    std::copy_n(clock.common.g, agents(), mine.g);
    std::copy_n(clock.common.a, agents(), mine.a);
    mine.extras = clock.common.extras;
  }
  return mine;
}

void Clocks::settle(const Warp &warp) {
  WarpClock &clock = warps[warp.index];
  if (!warp.alive || (clock.deviates & warp.alive) != warp.alive)
    return;
  Knowledge least;
  std::fill_n(least.g, agents(), ~0u);
  std::fill_n(least.a, agents(), ~0u);
  for (uint32_t lanes = warp.alive; lanes; lanes &= lanes - 1) {
    const Knowledge &k = clock.lanes[std::countr_zero(lanes)];
    for (unsigned i = 0; i < agents(); ++i) {
      least.g[i] = std::min(least.g[i], k.g[i]);
      least.a[i] = std::min(least.a[i], k.a[i]);
    }
  }
  clock.common.join(least, agents());
}

bool Clocks::extraKnown(unsigned w, uint32_t lane, uint32_t who, uint32_t tick, bool async) const {
  auto in = [&](const Knowledge &k) {
    return std::any_of(k.extras.begin(), k.extras.end(),
                       [&](const Extra &e) { return e.who == who && tick <= (async ? e.a : e.g); });
  };
  return in(view(w, lane)) || (lane == kEveryLane && everyoneKnows(1u << w, who, tick, async));
}

bool Clocks::everyoneKnows(uint32_t warpMask, uint32_t who, uint32_t tick, bool async) const {
  for (; warpMask; warpMask &= warpMask - 1) {
    unsigned w = static_cast<unsigned>(std::countr_zero(warpMask));
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      if (!extraKnown(w, lane, who, tick, async))
        return false;
  }
  return true;
}

bool Clocks::slowOrdered(unsigned w2, uint32_t lane2, uint32_t tick2, unsigned w, uint32_t lane) const {
  const WarpClock &clock = warps[w];
  if (w2 == w && clock.partial && lane < kLanes && lane2 < kLanes && tick2 <= partials[w].known[lane][lane2])
    return true;
  return lane2 < kLanes && extraKnown(w, lane, w2 * kLanes + lane2, tick2, false);
}

void Clocks::syncLanes(const Warp &warp, uint32_t lanes) {
  unsigned w = warp.index;
  WarpClock &clock = warps[w];
  uint32_t now = clock.tick;
  lanes &= warp.alive;
  if (lanes == warp.alive) {
    for (uint32_t mask = clock.deviates; mask; mask &= mask - 1)
      clock.common.join(clock.lanes[std::countr_zero(mask)], agents());
    uint32_t fenced = now;
    for (uint32_t mask = lanes & clock.unfenced; mask; mask &= mask - 1)
      fenced = std::min(fenced, clock.fenced[std::countr_zero(mask)]);
    clock.common.g[w] = clock.common.g[waits(w)] = now;
    clock.common.a[w] = std::max(clock.common.a[w], fenced);
    std::erase_if(clock.common.extras, [&](const Extra &e) {
      unsigned agent = agentOf(e);
      return agent != ~0u && e.g <= clock.common.g[agent] && e.a <= clock.common.a[agent];
    });
    clock.partial = false;
    clock.deviates = clock.touched = clock.waited = 0;
    ++clock.tick;
    return;
  }
  ++clock.tick;
  // Only some lanes synchronize: each of them now knows what any of them knew.
  PartialClock &partial = partials[w];
  if (!clock.partial)
    partial = {};
  clock.partial = true;
  uint32_t joined[kLanes] = {};
  Knowledge all = clock.common;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if (!(lanes >> l & 1))
      continue;
    for (uint32_t o = 0; o < kLanes; ++o)
      joined[o] = std::max(joined[o], partial.known[l][o]);
    joined[l] = now;
    all.join(view(w, l), agents());
  }
  bool deviates = clock.deviates & lanes;
  for (uint32_t l = 0; l < kLanes; ++l)
    if (lanes >> l & 1) {
      std::copy(std::begin(joined), std::end(joined), partial.known[l]);
      if (deviates)
        own(warp.lanes[l]) = all;
    }
}

//===----------------------------------------------------------------------===//
// Waits for mbarriers
//===----------------------------------------------------------------------===//

void Clocks::joinWaits(Knowledge &to, const Knowledge &from) const {
  for (unsigned w = 0; w < count; ++w)
    to.g[waits(w)] = std::max(to.g[waits(w)], from.g[waits(w)]);
  for (const Extra &e : from.extras)
    if (e.who & kWaits && e.g > to.g[agentOf(e)])
      to.add(e);
}

void Clocks::shareWaits(const Warp &warp, uint32_t lanes) {
  WarpClock &clock = warps[warp.index];
  const bool all = !(warp.alive & ~lanes);
  Knowledge sum;
  if (all)
    sum.g[waits(warp.index)] = clock.tick;
  else
    for (uint32_t mask = clock.waited & lanes; mask; mask &= mask - 1)
      sum.add({warp.lanes[std::countr_zero(mask)].thread | kWaits, clock.tick, 0});
  joinWaits(sum, clock.common);
  for (uint32_t mask = clock.deviates & lanes; mask; mask &= mask - 1)
    joinWaits(sum, clock.lanes[std::countr_zero(mask)]);
  if (all) {
    joinWaits(clock.common, sum);
    clock.waited = 0;
  }
  for (uint32_t mask = all ? clock.deviates : lanes; mask; mask &= mask - 1)
    joinWaits(own(warp.lanes[std::countr_zero(mask)]), sum);
  ++clock.tick;
}

void Clocks::releaseWaits(const Lane &lane, Knowledge &to) {
  WarpClock &clock = warps[lane.warp->index];
  joinWaits(to, view(lane.warp->index, lane.index));
  if (clock.waited & lane.bit())
    to.add({lane.thread | kWaits, clock.tick++, 0});
}

bool Clocks::waitKnown(const Knowledge &k, uint32_t thread, uint32_t tick) const {
  return tick <= k.g[waits(thread / kLanes)] ||
         std::any_of(k.extras.begin(), k.extras.end(),
                     [&](const Extra &e) { return e.who == (thread | kWaits) && tick <= e.g; });
}

//===----------------------------------------------------------------------===//
// One lane by itself
//===----------------------------------------------------------------------===//

void Clocks::releaseLane(const Lane &lane, Knowledge &to) {
  unsigned w = lane.warp->index;
  WarpClock &clock = warps[w];
  to.join(view(w, lane.index), agents());
  if (clock.touched & lane.bit())
    to.add({lane.thread, clock.tick, fencedUpTo(w, lane.index)});
  if (clock.waited & lane.bit())
    to.add({lane.thread | kWaits, clock.tick, 0});
  if (clock.partial)
    for (uint32_t l = 0; l < kLanes; ++l)
      if (uint32_t tick = partials[w].known[lane.index][l]; tick > clock.common.g[w])
        to.add({w * kLanes + l, tick, 0});
  ++clock.tick;
}

void Clocks::acquireLane(const Lane &lane, const Knowledge &from) { own(lane).join(from, agents()); }

void Clocks::fenceLane(const Lane &lane) {
  WarpClock &clock = warps[lane.warp->index];
  Knowledge &mine = own(lane);
  for (unsigned i = 0; i < agents(); ++i)
    mine.a[i] = std::max(mine.a[i], mine.g[i]);
  for (Extra &e : mine.extras)
    e.a = std::max(e.a, e.g);
  clock.fenced[lane.index] = clock.tick++;
  clock.unfenced &= ~lane.bit();
}

void Clocks::see(const Lane &lane, unsigned agent, uint32_t value) {
  Knowledge &mine = own(lane);
  mine.g[agent] = std::max(mine.g[agent], value);
  mine.a[agent] = std::max(mine.a[agent], value);
}

void Clocks::seeTogether(const Warp &warp, unsigned agent, uint32_t value) {
  WarpClock &clock = warps[warp.index];
  auto raise = [&](Knowledge &k) {
    k.g[agent] = std::max(k.g[agent], value);
    k.a[agent] = std::max(k.a[agent], value);
  };
  raise(clock.common);
  for (uint32_t mask = clock.deviates; mask; mask &= mask - 1)
    raise(clock.lanes[std::countr_zero(mask)]);
}

void Clocks::fold(const Block &block, Knowledge &k) const {
  struct Sum {
    uint32_t lanes = 0, g = ~0u, a = ~0u;
  };
  std::vector<Sum> sums(agents());
  for (const Extra &e : k.extras) {
    if (agentOf(e) == ~0u)
      continue;
    Sum &sum = sums[agentOf(e)];
    sum.lanes |= 1u << (e.who % kLanes);
    sum.g = std::min(sum.g, e.g);
    sum.a = std::min(sum.a, e.a);
  }
  for (unsigned w = 0; w < count; ++w)
    for (unsigned agent : {w, copies(w), waits(w)})
      if (sums[agent].lanes == block.warps[w]->all) {
        k.g[agent] = std::max(k.g[agent], sums[agent].g);
        k.a[agent] = std::max(k.a[agent], sums[agent].a);
      }
  std::erase_if(k.extras, [&](const Extra &e) {
    unsigned agent = agentOf(e);
    return agent != ~0u && e.g <= k.g[agent] && e.a <= k.a[agent];
  });
}

} // namespace attn::rt::host

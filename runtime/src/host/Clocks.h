//===- Clocks.h - What happened before what, in one block -------*- C++ -*-===//
//
// A warp has a tick that grows whenever its lanes synchronise (bar.warp.sync, a
// block barrier), so an access is stamped (warp, lane, tick). Two accesses are
// ordered if
//   * one lane did both, or
//   * in one warp: its lanes met after the first one's tick, or
//   * across warps: a chain of block barriers carried the first one's tick to the
//     second warp. Each warp knows, per other warp, the last tick it may rely on.
// shfl, vote, ldmatrix and mma are not synchronization: they leave the tick alone.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_CLOCKS_H
#define ATTN_RT_SRC_HOST_CLOCKS_H

#include "Machine.h"
#include <algorithm>

namespace attn::rt::host {

/// The lane field of an access that all lanes of a warp take part in.
inline constexpr uint32_t kEveryLane = 63;

class Clocks {
public:
  void reset(unsigned warpCount) {
    count = warpCount;
    for (unsigned w = 0; w < count; ++w) {
      warps[w] = {};
      warps[w].tick = 1;
    }
    for (auto &clock : barriers)
      std::fill(std::begin(clock), std::end(clock), 0u);
  }

  uint32_t tick(unsigned w) const { return warps[w].tick; }

  /// May an access of `lane` of warp `w` rely on an access (w2, lane2, tick2)?
  bool ordered(unsigned w2, uint32_t lane2, uint32_t tick2, unsigned w, uint32_t lane) const {
    const WarpClock &clock = warps[w];
    if (tick2 <= clock.known[w2])
      return true;
    if (w2 != w)
      return false;
    if (lane2 == lane && lane != kEveryLane)
      return true;
    return clock.partial && lane < kLanes && lane2 < kLanes && tick2 <= partials[w].known[lane][lane2];
  }

  /// Per warp, the last of its ticks on which every lane of w may rely.
  const uint32_t *known(unsigned w) const { return warps[w].known; }

  void syncLanes(const Warp &warp, uint32_t lanes) {
    WarpClock &clock = warps[warp.index];
    uint32_t now = clock.tick++;
    if ((lanes & warp.alive) == warp.alive) {
      clock.known[warp.index] = now;
      clock.partial = false;
      return;
    }
    // Some lanes only: what each of them knew, all of them know.
    PartialClock &partial = partials[warp.index];
    if (!clock.partial)
      partial = {};
    clock.partial = true;
    uint32_t joined[kLanes] = {};
    for (uint32_t l = 0; l < kLanes; ++l) {
      if (!(lanes >> l & 1))
        continue;
      for (uint32_t o = 0; o < kLanes; ++o)
        joined[o] = std::max(joined[o], partial.known[l][o]);
      joined[l] = now;
    }
    for (uint32_t l = 0; l < kLanes; ++l)
      if (lanes >> l & 1)
        std::copy(std::begin(joined), std::end(joined), partial.known[l]);
  }

  void release(const Warp &warp, uint32_t barrier) {
    WarpClock &clock = warps[warp.index];
    for (unsigned o = 0; o < count; ++o)
      barriers[barrier][o] = std::max(barriers[barrier][o], clock.known[o]);
    barriers[barrier][warp.index] = clock.tick;
    syncLanes(warp, warp.alive);
  }
  void acquire(const Warp &warp, uint32_t barrier) {
    for (unsigned o = 0; o < count; ++o)
      if (o != warp.index)
        warps[warp.index].known[o] = std::max(warps[warp.index].known[o], barriers[barrier][o]);
  }
  void resetBarrier(uint32_t barrier) { std::fill_n(barriers[barrier], count, 0u); }

private:
  struct WarpClock {
    uint32_t tick = 1;
    bool partial = false; ///< some lanes met since
    uint32_t known[kMaxWarps] = {};
  };
  struct PartialClock {
    uint32_t known[kLanes][kLanes] = {};
  };
  unsigned count = 0;
  WarpClock warps[kMaxWarps];
  PartialClock partials[kMaxWarps];
  uint32_t barriers[kBarriers][kMaxWarps] = {};
};

} // namespace attn::rt::host

#endif

//===- Clocks.h - What happened before what, in one block -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp has a tick that grows whenever its lanes synchronize (bar.warp.sync, a
// block barrier) or one of them releases something, so an access is stamped (warp,
// lane, tick). Two accesses are ordered if
//   * one lane made both, or
//   * in one warp: its lanes converged after the first access's tick, or
//   * a chain of barriers carried the first access's tick to the second lane.
// shfl, vote, ldmatrix and mma are not synchronization: they order no memory.
//
// *Agents* are the entries of a clock: warps; the wgmma queue of each warpgroup
// (its committed groups, in order); the copy queues of each warp's lanes (arrivals
// of cp.async on mbarriers, in order); mbarriers (completed phases). An entry says
// up to which tick everything of that agent, of a warp all lanes, may be relied on.
//
// *Waits.* A wait for an mbarrier names a parity, so it must be over before the next
// phase completes: a lane that came later would wait for the phase after that. Each warp
// has an agent for this, whose entry says up to which tick the waits of its lanes are
// over. Every point at which lanes converge carries these entries, even one that orders
// no memory: no lane leaves a shuffle before the other lanes have reached it. So does
// any operation that a lane starts after a wait.
//
// *Lanes.* What all lanes of a warp know is stored once. A lane that waited on an
// mbarrier by itself knows more: it then has a clock of its own until its warp
// converges. A lane that releases by itself can only promise its own accesses; such
// promises travel beside the clock, one lane each (`Extra`), until they add up to a
// whole warp.
//
// *Proxies.* Every clock is two: g for generic accesses, a for those of the async
// proxy. fence.proxy.async raises a to g in the lane that executes it; barriers
// carry both. What an async agent completed is in both from the start.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_DETECT_CLOCKS_H
#define ATTN_RT_SRC_HOST_DETECT_CLOCKS_H

#include "host/machine/Machine.h"
#include <algorithm>

namespace attn::rt::host {

/// The lane field of an access by all lanes of a warp.
inline constexpr uint32_t kEveryLane = 63;

inline constexpr unsigned kMaxQueues = kMaxWarps / 4;
inline constexpr unsigned kMaxTracked = 32; ///< mbarriers whose phases are tracked; more run untracked
inline constexpr unsigned kMaxAgents = 3 * kMaxWarps + kMaxQueues + kMaxTracked;

/// Knowledge of one lane beyond the knowledge of its warp. Knowledge of a lane's bulk stores is stored only
/// here.
struct Extra {
  uint32_t who; ///< thread; or its copy queue, its waits, its bulk stores that were read, or written
  uint32_t g, a;
};

struct Knowledge {
  uint32_t g[kMaxAgents] = {}, a[kMaxAgents] = {};
  std::vector<Extra> extras;

  void join(const Knowledge &other, unsigned count);
  void add(const Extra &extra);
};

class Clocks {
public:
  static constexpr uint32_t kCopyQueue = 1 << 16; ///< in Extra::who
  static constexpr uint32_t kStoresRead = 1 << 17, kStoresWritten = 1 << 18;
  static constexpr uint32_t kWaits = 1 << 19;

  void reset(unsigned warpCount, unsigned queueCount);

  unsigned warpCount() const { return count; }
  unsigned readers() const { return count + queues; } ///< warps and queues: agents that stamp reads
  unsigned queue(unsigned q) const { return count + q; }
  unsigned copies(unsigned w) const { return count + queues + w; }
  unsigned waits(unsigned w) const { return 2 * count + queues + w; }
  unsigned mbarrier(unsigned i) const { return 3 * count + queues + i; }

  uint32_t tick(unsigned w) const { return warps[w].tick; }
  /// Notes that a lane made an access: its next release must include it.
  void touch(const Lane &lane) { touch(lane.warp->index, lane.bit()); }
  void touch(unsigned w, uint32_t lanes) {
    warps[w].touched |= lanes;
    warps[w].unfenced |= lanes;
  }

  /// Whether an access of `lane` of warp `w` may rely on an access (w2, lane2, tick2).
  bool ordered(unsigned w2, uint32_t lane2, uint32_t tick2, unsigned w, uint32_t lane) const {
    if (tick2 <= known(w, lane)[w2])
      return true;
    if (w2 == w && lane2 == lane && lane != kEveryLane)
      return true;
    return slowOrdered(w2, lane2, tick2, w, lane);
  }
  /// Whether it may rely on a copy that landed, by its lane's sequence number.
  bool copyOrdered(unsigned w2, uint32_t lane2, uint32_t sequence, unsigned w, uint32_t lane) const {
    return sequence <= known(w, lane)[copies(w2)] ||
           extraKnown(w, lane, (w2 * kLanes + lane2) | kCopyQueue, sequence, false);
  }
  /// Both questions for an access of the async proxy that the lane issues.
  bool orderedAsync(unsigned w2, uint32_t lane2, uint32_t tick2, unsigned w, uint32_t lane) const {
    return tick2 <= knownAsync(w, lane)[w2] || (w2 == w && lane2 == lane && tick2 <= fencedUpTo(w, lane)) ||
           (lane2 < kLanes && extraKnown(w, lane, w2 * kLanes + lane2, tick2, true));
  }
  bool copyOrderedAsync(unsigned w2, uint32_t lane2, uint32_t sequence, unsigned w, uint32_t lane) const {
    return sequence <= knownAsync(w, lane)[copies(w2)] ||
           extraKnown(w, lane, (w2 * kLanes + lane2) | kCopyQueue, sequence, true);
  }
  /// Whether it may rely on bulk stores of a thread, up to this one, having been read, or written (`what`).
  bool storeOrdered(uint32_t what, uint32_t thread, uint32_t sequence, unsigned w, uint32_t lane) const {
    return extraKnown(w, lane, thread | what, sequence, false);
  }
  /// Whether all lanes of these warps know it, by extras.
  bool everyoneKnows(uint32_t warpMask, uint32_t who, uint32_t tick, bool async) const;

  /// Per agent, the last of its ticks that a lane (or every lane) may rely on.
  const uint32_t *known(unsigned w, uint32_t lane) const { return view(w, lane).g; }
  const uint32_t *knownAsync(unsigned w, uint32_t lane) const { return view(w, lane).a; }
  /// The clock of operations of the whole warp.
  const Knowledge &together(unsigned w) const { return warps[w].common; }
  /// Merges knowledge that all lanes have gained: the warp has it then.
  void settle(const Warp &warp);

  void syncLanes(const Warp &warp, uint32_t lanes);
  void release(const Warp &warp, uint32_t barrier) {
    syncLanes(warp, warp.alive);
    barriers[barrier].join(warps[warp.index].common, agents());
  }
  void acquire(const Warp &warp, uint32_t barrier) {
    warps[warp.index].common.join(barriers[barrier], agents());
  }
  void resetBarrier(uint32_t barrier) { barriers[barrier] = Knowledge(); }

  // Waits for mbarriers
  /// Notes that a wait of the lane is over; returns its tick.
  uint32_t waited(const Lane &lane) {
    warps[lane.warp->index].waited |= lane.bit();
    return warps[lane.warp->index].tick;
  }
  /// Notes that lanes converged: none of them continues before the waits of the others are over.
  void meet(const Warp &warp, uint32_t lanes) {
    if (warps[warp.index].waited & lanes)
      shareWaits(warp, lanes);
  }
  /// Passes on the waits that the lane knows to be over: an operation that it starts now, and does not wait
  /// for, comes after them.
  void releaseWaits(const Lane &lane, Knowledge &to);
  bool waitKnown(const Knowledge &knowledge, uint32_t thread, uint32_t tick) const;

  // One lane by itself
  void releaseLane(const Lane &lane, Knowledge &to);
  void acquireLane(const Lane &lane, const Knowledge &from);
  void fenceLane(const Lane &lane);
  void learn(const Lane &lane, const Extra &extra) { own(lane).add(extra); }
  void see(const Lane &lane, unsigned agent, uint32_t value);
  /// Notes that every lane of the warp observed it.
  void seeTogether(const Warp &warp, unsigned agent, uint32_t value);
  /// Turns extras that make up whole warps into entries.
  void fold(const Block &block, Knowledge &knowledge) const;
  unsigned agents() const { return 3 * count + queues + tracked; }
  /// Adds an entry for one more mbarrier; returns its agent, or ~0 if there are too many.
  unsigned track();

private:
  /// The agent of an extra; ~0: none.
  unsigned agentOf(const Extra &e) const {
    if (e.who & (kStoresRead | kStoresWritten))
      return ~0u;
    return (e.who & kCopyQueue ? copies(0)
            : e.who & kWaits   ? waits(0)
                               : 0) +
           (e.who & (kCopyQueue - 1)) / kLanes;
  }
  struct WarpClock {
    uint32_t tick = 1;
    bool partial = false;         ///< whether some lanes synchronized since
    uint32_t deviates = 0;        ///< lanes with clocks of their own
    uint32_t touched = 0;         ///< lanes with accesses since all converged
    uint32_t waited = 0;          ///< lanes with waits since all converged, even without memory
    uint32_t unfenced = 0;        ///< lanes with accesses since their last proxy fence
    uint32_t fenced[kLanes] = {}; ///< the tick of that fence
    Knowledge common;
    Knowledge lanes[kLanes];
  };
  struct PartialClock {
    uint32_t known[kLanes][kLanes] = {};
  };
  /// The tick up to which a lane's own accesses precede the async proxy's next access.
  uint32_t fencedUpTo(unsigned w, uint32_t lane) const {
    return warps[w].unfenced >> lane & 1 ? warps[w].fenced[lane] : warps[w].tick;
  }
  const Knowledge &view(unsigned w, uint32_t lane) const {
    const WarpClock &clock = warps[w];
    return lane < kLanes && (clock.deviates >> lane & 1) ? clock.lanes[lane] : clock.common;
  }
  Knowledge &own(const Lane &lane);
  void shareWaits(const Warp &warp, uint32_t lanes);
  void joinWaits(Knowledge &to, const Knowledge &from) const;
  bool slowOrdered(unsigned w2, uint32_t lane2, uint32_t tick2, unsigned w, uint32_t lane) const;
  bool extraKnown(unsigned w, uint32_t lane, uint32_t who, uint32_t tick, bool async) const;

  unsigned count = 0, queues = 0, tracked = 0;
  std::vector<WarpClock> warps = std::vector<WarpClock>(kMaxWarps);
  PartialClock partials[kMaxWarps];
  Knowledge barriers[kBarriers];
};

} // namespace attn::rt::host

#endif

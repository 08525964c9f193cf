//===- Warp.h - Lanes and warps ---------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SRC_HOST_MACHINE_WARP_H
#define ATTN_RT_SRC_HOST_MACHINE_WARP_H

#include "attn_rt/host/Abi.h"
#include "attn_rt/host/Launch.h"
#include "host/machine/Fiber.h"
#include <bit>
#include <deque>
#include <string>
#include <vector>

namespace attn::rt::host {

inline constexpr unsigned kLanes = 32;
inline constexpr unsigned kMaxWarps = 32;
inline constexpr unsigned kBarriers = 16;
inline constexpr size_t kArenaBytes = 256 << 10;

struct Block;
struct Warp;
class Checker;

/// A finding before it is merged with those of other blocks.
struct LocalFinding {
  FindingKind kind;
  uint32_t op, thread;
  uint32_t detail; ///< separates findings of one operation (the other party's operation)
  std::string address, message;
  uint64_t count;
};

template <class Make>
void reportTo(std::vector<LocalFinding> &findings, FindingKind kind, uint32_t op, uint32_t thread,
              uint32_t detail, Make make) {
  for (LocalFinding &f : findings)
    if (f.kind == kind && f.op == op && f.detail == detail) {
      ++f.count;
      return;
    }
  LocalFinding f{kind, op, thread, detail, {}, {}, 1};
  make(f);
  findings.push_back(std::move(f));
}

/// A small generator: one draw must cost less than a fiber switch.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed = 0) { reseed(seed); }
  void reseed(uint64_t seed) {
    state = seed + 0x9e3779b97f4a7c15ull;
    next();
  }
  uint32_t next() { // splitmix64
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<uint32_t>((z ^ (z >> 31)) >> 16);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t(next()) * n) >> 32); }
};

/// One cp.async of one lane, from issue until a wait covers its group.
struct PendingCopy {
  const uint8_t *source;
  uint32_t offset; ///< in the shared window
  uint32_t group;
  uint32_t op;
  uint8_t bytes, sourceBytes;
  bool moved;    ///< the bytes have already moved
  bool atCommit; ///< drawn to move when its group is committed
};

/// An arrival on an mbarrier that waits for the lane's first `limit` copies to land.
struct CopyArrival {
  uint32_t barrier; ///< offset
  uint32_t op;
  uint64_t limit;
};

struct Lane : LaneAbi {
  Fiber fiber;
  Warp *warp = nullptr;
  Block *block = nullptr;
  uint32_t index = 0, thread = 0;
  std::vector<PendingCopy> copies; ///< FIFO; [copiesHead, size) are pending
  uint32_t copiesHead = 0, openGroup = 0;
  uint64_t copiesDone = 0; ///< number of copies that left the FIFO
  std::deque<CopyArrival> arrivals;
  uint32_t copySequence = 0;                  ///< arrivals made
  uint32_t landedGroup = 0;                   ///< group of the last copy that an arrival covered
  uint32_t landedSequence = 0, landedOp = 0;  ///< the number of that arrival, and the copy's operation
  uint32_t openBulkGroup = 0, bulkStores = 0; ///< groups committed, stores issued
  uint32_t readStores = 0, readGroup = 0; ///< the last store dropped after a wait with `.read`, and its group
  bool wgmmaFence = false;                ///< executed since the last wgmma returned registers
  uint32_t wgmmaCommits = 0;
  uint32_t waitOp = 0, waitParity = 0; ///< at an mbarrier

  uint32_t bit() const { return 1u << index; }
};

/// Lanes of a warp that join at one warp-wide operation.
struct Group {
  /// Runs the operation for the lanes that arrived; false keeps them waiting (block barriers).
  using Run = bool (*)(Warp &, const Group &);
  Run run;
  uint32_t key, mask, arrived, op, a, b;
};

struct Warp {
  Block *block = nullptr;
  uint32_t index = 0;
  uint32_t all = 0, alive = 0, ready = 0, exited = 0; ///< lanes
  uint32_t throttled = 0;                             ///< yielded until their warp caught up (see Requests.h)
  uint32_t late = 0;                                  ///< reach an mbarrier when no other lane can continue
  unsigned groupCount = 0;
  Group groups[kLanes];
  Lane lanes[kLanes];
  alignas(64) uint32_t exchange[kExchangeWords * kLanes];

  uint32_t *word(unsigned w) { return exchange + w * kLanes; }
};

} // namespace attn::rt::host

#endif

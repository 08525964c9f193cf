//===- Machine.h - Blocks, warps and lanes as fibers ------------*- C++ -*-===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_H
#define ATTN_RT_SRC_HOST_MACHINE_H

#include "attn_rt/host/Abi.h"
#include "attn_rt/host/Launch.h"
#include <bit>
#include <memory>
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

/// A small generator of our own: one draw must cost less than a fiber switch.
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
  bool moved;    ///< the bytes are there already
  bool atCommit; ///< drawn to move when its group is committed
};

struct Lane : LaneAbi {
  void *context = nullptr; ///< where to resume
  Warp *warp = nullptr;
  Block *block = nullptr;
  uint32_t index = 0, thread = 0;
  std::vector<PendingCopy> copies; ///< FIFO; [copiesHead, size) are pending
  uint32_t copiesHead = 0, openGroup = 0;

  uint32_t bit() const { return 1u << index; }
};

/// Lanes of a warp on their way to one warp-wide operation.
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
  unsigned groupCount = 0;
  Group groups[kLanes];
  Lane lanes[kLanes];
  alignas(64) uint32_t exchange[kExchangeWords * kLanes];

  uint32_t *word(unsigned w) { return exchange + w * kLanes; }
};

struct Barrier {
  uint32_t expected = 0;            ///< threads; 0: every live thread of the block
  uint32_t arrived = 0;             ///< threads, by whole warps
  uint32_t warps = 0;               ///< which warps arrived
  uint32_t waiting[kMaxWarps] = {}; ///< lanes to wake
  uint32_t op = 0;
};

/// What a launch shares between its blocks.
struct Grid {
  const HostKernel &kernel;
  Dim3 grid, block;
  uint32_t sharedBytes;
  void **args;
  MemoryMap &memory;
  const LaunchOptions &options;
};

/// A deferred global reduction: float additions are applied in block order, so that
/// bits do not depend on which core was faster.
struct DeferredAdd {
  float *address;
  float value;
};

struct Block {
  const Grid *grid = nullptr;
  uint64_t linear = 0; ///< index of the block in the grid
  uint32_t ctaid[3] = {};
  unsigned warpCount = 0;
  uint32_t readyWarps = 0, throttledWarps = 0;
  unsigned currentWarp = 0;
  uint32_t aliveLanes = 0;
  bool shuffle = false;
  Random schedule, effects;
  Barrier barriers[kBarriers];
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<DeferredAdd> adds;
  uint64_t flops = 0;
  uint8_t *shared = nullptr;
  uint8_t *stacks = nullptr;
  size_t stackCount = 0;
  void *mainContext = nullptr;
  Checker *checker = nullptr; ///< null in fast mode
  std::vector<LocalFinding> findings;

  Block();
  ~Block();
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs one block to its end (or to a deadlock, which is reported).
  void run(const Grid &g, uint64_t index);

  /// Gives the core to a ready lane; returns when this one is ready and chosen again.
  void switchAway(Lane &from);
  void wake(Warp &warp, uint32_t lanes) {
    warp.ready |= lanes;
    if (lanes)
      readyWarps |= 1u << warp.index;
  }
  Lane *pick();
  /// Lets lanes that ran ahead of their warp go on; false if there are none.
  bool releaseThrottled();
  /// Records a finding, or counts it if its operation did the same before. The message
  /// is made only for a new one, so pass what makes it.
  template <class Make>
  void reportWith(FindingKind kind, uint32_t op, uint32_t thread, uint32_t detail, Make make) {
    reportTo(findings, kind, op, thread, detail, make);
  }
  void report(FindingKind kind, uint32_t op, const Lane &lane, std::string message);
  void laneExit(Lane &lane);
  void completeBarriersAfterExit();
  void reportDeadlock();
};

/// Joins the other lanes of `mask` at an operation. The last one to arrive runs it and
/// wakes the rest. `key` says what counts as the same operation.
void rendezvous(Lane &lane, Group::Run run, uint32_t key, uint32_t mask, uint32_t op, uint32_t a = 0,
                uint32_t b = 0);

/// Rendezvous keys: operations of different kinds never meet.
enum class Meet : uint32_t { Barrier = 1, Arrive, WarpSync, Shuffle, Vote, Matrix, Program };
inline uint32_t meetKey(Meet kind, uint32_t detail) { return static_cast<uint32_t>(kind) << 28 | detail; }

/// Enters a barrier for a whole warp; true when the barrier completed.
bool barrierArrive(Warp &warp, const Group &group, uint32_t id, uint32_t threads, bool waits);

/// Report.cpp: turns a block's findings into the launch's.
void addFindings(Report &report, const Grid &grid, uint64_t block, const std::vector<LocalFinding> &findings);

// AsyncCopy.cpp
void finishCopies(Lane &lane, uint32_t groupLimit);

} // namespace attn::rt::host

#endif

//===- Checker.h - Detectors and counters of one block ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sees every access and every synchronization of a block while it runs. Clocks.h
// tracks what is ordered, SharedShadow.h who accessed which shared bytes, Requests.h
// the cost of accesses, and BlockLog.h logs accesses for comparison with other blocks.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_DETECT_CHECKER_H
#define ATTN_RT_SRC_HOST_DETECT_CHECKER_H

#include "Clocks.h"
#include "GlobalShadow.h"
#include "SharedShadow.h"
#include "host/count/BlockLog.h"
#include "host/count/Requests.h"
#include "host/machine/Machine.h"

namespace attn::rt::host {

struct Mbarrier;
struct Issue;
struct Descriptor;
struct BulkRow;

class Checker {
public:
  explicit Checker(const WriteSet &writes) : writes(writes) {}

  void beginBlock(Block &block);
  void endBlock(Block &block);

  // Accesses. They return the address to use: the given one, or scratch memory if it would fault.
  void *access(Lane &lane, uint32_t op, void *p);
  void atomicAdd(Lane &lane, uint32_t op, float *p, bool &usable);
  /// Whether the copy may be made; `sourceBytes` becomes 0 if the source must not be read.
  bool copyIssued(Lane &lane, uint32_t op, uint32_t offset, const void *source, uint32_t bytes,
                  uint32_t &sourceBytes);
  void copyFinished(Lane &lane, const PendingCopy &copy);
  /// Checks the ldmatrix or stmatrix rows of all lanes; rows that would fault are moved to offset 0.
  void matrix(Warp &warp, uint32_t op, uint32_t *offsets, uint32_t rows, bool writes);

  // CheckerAsync.cpp
  bool mbarrierMade(Lane &lane, uint32_t op, Mbarrier &b); ///< false if it cannot be at this address
  void mbarrierGone(Lane &lane, uint32_t op, Mbarrier &b);
  void mbarrierUsed(Lane &lane, uint32_t op, const Mbarrier &b);
  void mbarrierReleased(Lane &lane, Mbarrier &b);
  void mbarrierCompleted(Mbarrier &b);
  /// The lane starts a copy, or an arrival after copies, that the open phase waits for.
  void mbarrierStarted(Lane &lane, Mbarrier &b);
  void mbarrierPassed(Lane &lane, uint32_t op, Mbarrier &b);
  void mbarrierLag(Lane &lane, uint32_t op, const Mbarrier &b, uint32_t parity);
  /// An operation of the async proxy will signal the mbarrier.
  void mbarrierSignalled(Lane &lane, uint32_t op, const Mbarrier &b);
  void publishMbarriers(Lane &lane);
  void fenceAsync(Lane &lane);
  // CheckerBulk.cpp
  /// Whether the copy may be made; `accessible` is cleared if its source must not be read.
  bool bulkIssued(Lane &lane, BulkCopy &copy, const Mbarrier &b);
  /// Whether the store may be made; `accessible` is cleared if its target must not be written.
  bool bulkStored(Lane &lane, BulkStore &store);
  /// A wait of the lane covers the store; with `reading`, only the read of the box.
  void bulkWaited(Lane &lane, const BulkStore &store, bool reading);
  /// A wait covers what the lane's stores up to this one have written.
  void bulkWritten(Lane &lane, uint32_t sequence);
  void copyLanded(Lane &lane, const PendingCopy &copy, uint32_t sequence);
  void copiesReleased(const Lane &lane, uint32_t sequence, Mbarrier &b);
  void copiesWaited(Lane &lane, uint32_t groupLimit);
  void wgmmaView(Warp &warp, AsyncView &view);
  void wgmmaIssued(const Issue &issue, unsigned group);
  void wgmmaRetired(Warp &warp, uint32_t groups);

  // Overlap.cpp
  void gridWaited(Lane &lane);
  /// Whether a lane of any block has waited for the grids in front since the checker was made.
  bool waitedForGrids() const { return waited; }

  // Synchronization
  void laneExit(Lane &lane);
  void converge(Warp &warp) { requests.flush(warp); }
  void meet(Warp &warp, uint32_t lanes) { clocks.meet(warp, lanes); }
  void warpSync(Warp &warp, uint32_t lanes) { clocks.syncLanes(warp, lanes); }
  void barrierRelease(Warp &warp, uint32_t id) { clocks.release(warp, id); }
  void barrierAcquire(Warp &warp, uint32_t id) { clocks.acquire(warp, id); }
  void barrierReset(uint32_t id) { clocks.resetBarrier(id); }

  const Counters &counters() const { return requests.counters; }
  std::vector<LoggedRange> takeLog() { return log.take(); }

private:
  /// Makes a lane that runs far ahead of its warp yield.
  void throttle(Lane &lane, uint32_t n);
  void *sharedAccess(Lane &lane, uint32_t op, uint32_t offset, void *p);
  void *globalAccess(Lane &lane, uint32_t op, void *p);
  bool checkAlignment(Lane &lane, uint32_t op, uint64_t address, uint32_t alignment, bool shared) {
    if ((address & (alignment - 1)) == 0) // a power of two
      return true;
    reportAlignment(lane, op, address, alignment, shared);
    return false;
  }
  uint32_t validBytes(const PendingCopy &copy);
  /// Checks and logs bytes of global memory that the lane is about to access.
  void touchGlobal(Lane &lane, uint32_t op, uint64_t address, uint32_t bytes, const char *verb) {
    if (previousGrids != ~0u)
      touchInFlight(lane, op, address, bytes, verb);
  }
  void touchInFlight(Lane &lane, uint32_t op, uint64_t address, uint32_t bytes, const char *verb);
  Allocation *bulkMemory(Lane &lane, BulkBox &box, const char *what);
  bool bulkShared(Lane &lane, const BulkBox &box, const char *what);
  void bulkRead(Lane &lane, const BulkCopy &copy);
  void checkDescriptor(Lane &lane, uint32_t op, const Descriptor &d);
  void wgmmaRead(Lane &lane, uint32_t op, const AsyncView &view, const uint32_t *rows, unsigned group,
                 uint32_t commit);
  void reportAlignment(Lane &lane, uint32_t op, uint64_t address, uint32_t alignment, bool shared);
  bool inShared(uint32_t offset, uint32_t bytes) const;
  void reportShared(Lane &lane, uint32_t op, const Conflict &conflict, bool writes) {
    if (conflict.kind)
      describeShared(lane, op, conflict, writes);
  }
  void describeShared(Lane &lane, uint32_t op, const Conflict &conflict, bool writes);
  void reportGlobal(Lane &lane, uint32_t op, FindingKind kind, const void *p, uint32_t bytes,
                    const char *what);
  Allocation *find(uint32_t op, const void *p, uint32_t bytes);

  const WriteSet &writes;
  Block *block = nullptr;
  const Grid *grid = nullptr;
  unsigned previousGrids = ~0u; ///< the agent of the grids in front, if some are in flight
  bool waited = false;
  uint32_t staticEnd = 0, dynamicStart = 0, dynamicEnd = 0;
  Clocks clocks;
  SharedShadow shadow;
  GlobalShadow global;
  BlockLog log;
  Requests requests;
  std::vector<Allocation *> lastHit;  ///< per operation
  uint32_t queueOps[kMaxQueues] = {}; ///< the last wgmma of each warpgroup
  alignas(64) uint8_t scratch[64];
};

/// Describes an address: "k_pages + 4096 (16 bytes)", with its distance from the end if it is outside.
std::string describeGlobal(const MemoryMap &memory, uintptr_t address, uint32_t bytes);
inline std::string describeGlobal(const MemoryMap &memory, const void *p, uint32_t bytes) {
  return describeGlobal(memory, reinterpret_cast<uintptr_t>(p), bytes);
}

/// The other side of a race.
std::string party(const Grid &grid, const Conflict &conflict);

} // namespace attn::rt::host

#endif

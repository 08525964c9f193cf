//===- Mbarrier.h - Barriers in shared memory -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The object lies in eight bytes of shared memory that no other access may touch while
// it lives; its state is kept here. Phases are counted, not only their parity, so that
// a wait for the parity of a phase long gone is detected.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_ASYNC_MBARRIER_H
#define ATTN_RT_SRC_HOST_ASYNC_MBARRIER_H

#include "host/detect/Clocks.h"

namespace attn::rt::host {

struct Mbarrier {
  uint32_t offset = 0, expected = 0, pending = 0;
  int64_t bytes = 0;                             ///< transactions expected and not yet complete
  uint64_t phase = 0;                            ///< the open phase
  uint32_t op = 0, warp = 0, lane = 0, tick = 0; ///< its initialization
  uint32_t published = 0; ///< tick of the later fence that makes it known to the async proxy; 0: none yet
  unsigned agent = ~0u;
  std::vector<Lane *> waiting;
  Knowledge gathered; ///< by arrivals of the open phase
  Knowledge passed;   ///< what a waiter learns
  struct Wait {
    uint32_t thread, tick, op;
  };
  std::vector<Wait> waits; ///< waits that ended since the last phase completed
};

/// The barrier of an operation; null, with a report, if there is none.
Mbarrier *useMbarrier(Lane &lane, uint32_t op, void *p);
/// Subtracts completed bytes from the open phase.
void completeBytes(Block &block, Mbarrier &barrier, uint64_t bytes);
/// Subtracts `count` arrivals from the open phase.
void arriveOn(Block &block, Mbarrier &barrier, uint32_t count, Lane &by, uint32_t op);
Mbarrier *findMbarrier(Block &block, uint32_t offset);

} // namespace attn::rt::host

#endif

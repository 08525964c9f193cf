//===- Mbarrier.h - Barriers in shared memory -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The object lies in eight bytes of shared memory that nothing else may touch while
// it lives; its state is kept here. Phases are counted, not only their parity, so a
// wait that names the parity of a phase long gone is seen for what it is.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_ASYNC_MBARRIER_H
#define ATTN_RT_SRC_HOST_ASYNC_MBARRIER_H

#include "host/detect/Clocks.h"

namespace attn::rt::host {

struct Mbarrier {
  uint32_t offset = 0, expected = 0, pending = 0;
  int64_t bytes = 0;                             ///< transactions expected and not yet complete
  uint64_t phase = 0;                            ///< the open one
  uint32_t op = 0, warp = 0, lane = 0, tick = 0; ///< its initialization
  uint32_t published = 0; ///< tick of the fence behind it that tells the async proxy; 0: none yet
  unsigned agent = ~0u;
  std::vector<Lane *> waiting;
  Knowledge gathered; ///< by arrivals of the open phase
  Knowledge passed;   ///< what a waiter learns
  struct Wait {
    uint32_t thread, tick, op;
  };
  std::vector<Wait> waits; ///< that have found the open phase to be the next one
};

/// The barrier an operation means; null, with a report, if there is none.
Mbarrier *useMbarrier(Lane &lane, uint32_t op, void *p);
/// Takes bytes that have come off the open phase.
void completeBytes(Block &block, Mbarrier &barrier, uint64_t bytes);
/// Takes `count` arrivals off the open phase.
void arriveOn(Block &block, Mbarrier &barrier, uint32_t count, Lane &by, uint32_t op);
Mbarrier *findMbarrier(Block &block, uint32_t offset);

} // namespace attn::rt::host

#endif

//===- Checker.h - Detectors and counters of one block ----------*- C++ -*-===//
#ifndef ATTN_RT_SRC_HOST_CHECKER_H
#define ATTN_RT_SRC_HOST_CHECKER_H

#include "Machine.h"

namespace attn::rt::host {

class Checker {
public:
  void beginBlock(Block &block) {}
  void endBlock(Block &block) {}
  void laneExit(Lane &lane) {}
  void converge(Warp &warp) {}
  void warpSync(Warp &warp, uint32_t lanes) {}
  void barrierRelease(Warp &warp, uint32_t id) {}
  void barrierAcquire(Warp &warp, uint32_t id) {}
  void barrierReset(uint32_t id) {}
};

} // namespace attn::rt::host

#endif

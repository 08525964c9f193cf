//===- GlobalShadow.h - Races on global memory within a block ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels write little global memory, so writes are kept per byte in a hash of
// 64-byte lines, and a read checks only lines that the block wrote. A write misses
// reads before the line's first write: between blocks GridRaces.h finds those, within
// a block they go unseen.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_DETECT_GLOBALSHADOW_H
#define ATTN_RT_SRC_HOST_DETECT_GLOBALSHADOW_H

#include "SharedShadow.h"
#include "host/machine/BulkBox.h"

namespace attn::rt::host {

class GlobalShadow {
public:
  void reset() { lines.clear(); }
  Conflict read(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address, uint32_t bytes) {
    return access(clocks, warp, lane, address, bytes, 0, false, false);
  }
  Conflict write(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address, uint32_t bytes,
                 uint32_t op, bool atomic) {
    return access(clocks, warp, lane, address, bytes, op, true, atomic);
  }

  /// Notes a bulk store. Until its lane waits without `.read`, no access may rely on it.
  Conflict writeBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address, uint32_t bytes,
                     const BulkStore &store);

private:
  struct Line {
    Writer writers[64];
  };
  Conflict access(const Clocks &clocks, unsigned warp, uint32_t lane, uint64_t address, uint32_t bytes,
                  uint32_t op, bool writes, bool atomic);
  template <class Ordered>
  Conflict visit(uint64_t address, uint32_t bytes, const Writer *mine, Ordered ordered);
  static bool storeOrdered(const Clocks &clocks, const Writer &w, unsigned warp, uint32_t lane) {
    return clocks.storeOrdered(Clocks::kStoresWritten, w.warp * kLanes + w.lane, w.tick, warp, lane);
  }
  std::unordered_map<uint64_t, Line> lines;
};

} // namespace attn::rt::host

#endif

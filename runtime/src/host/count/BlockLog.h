//===- BlockLog.h - What a block did to global memory -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each block of a grid logs the byte ranges that it read, wrote and updated
// atomically, in allocations the kernel may write at all (the others cannot race).
// When the grid is done, detect/GridRaces.h compares the logs.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_COUNT_BLOCKLOG_H
#define ATTN_RT_SRC_HOST_COUNT_BLOCKLOG_H

#include "host/machine/Machine.h"
#include <algorithm>

namespace attn::rt::host {

struct LoggedRange {
  enum Kind : uint8_t { Read, NonCoherent, Write, Atomic };
  uint64_t start, end;
  uint32_t op, thread;
  Kind kind;
};

/// The allocations that a kernel may write: those that its stores' pointer parameters point into.
class WriteSet {
public:
  void build(const Grid &grid);
  bool mayWrite(const Allocation *a) const {
    return everything || std::find(list.begin(), list.end(), a) != list.end();
  }

private:
  bool everything = false;
  std::vector<const Allocation *> list;
};

class BlockLog {
public:
  void reset(const Grid &grid, const WriteSet &writes);
  void add(uint64_t start, uint64_t end, uint32_t op, uint32_t thread, const HostOpInfo &info);
  bool partials(uint64_t address);
  /// Returns sorted ranges; adjacent ranges of one operation are joined.
  std::vector<LoggedRange> take();

private:
  const Allocation *lookUp(uint64_t address);
  void compact();
  const Grid *grid = nullptr;
  const WriteSet *writes = nullptr;
  const Allocation *last = nullptr;
  bool lastMayWrite = false;
  size_t compactAt = 0;
  std::vector<LoggedRange> ranges;
};

} // namespace attn::rt::host

#endif

//===- Requests.h - Lanes' accesses as requests of a warp -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lanes run one after another, but a GPU issues their accesses together. A request is
// what the lanes of a warp did when each executed one static operation for the n-th time
// since the warp last converged; its cost is counted when the warp converges again. A
// lane that runs far ahead of its warp yields, which bounds the buffers.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_COUNT_REQUESTS_H
#define ATTN_RT_SRC_HOST_COUNT_REQUESTS_H

#include "BlockLog.h"
#include "host/machine/Machine.h"

namespace attn::rt::host {

class Requests {
public:
  void reset(const Block &block, BlockLog &log);
  /// Adds one lane's part; `address` is null or `offset` ~0 if it has no global or shared side. Returns the
  /// lane's number of executions since its warp converged.
  uint32_t add(const Lane &lane, uint32_t op, const void *address, uint32_t bytes, uint32_t offset,
               uint32_t sharedBytes);
  void flush(const Warp &warp);
  /// Counts ldmatrix and stmatrix: `rows` offsets of 16 bytes, eight to a matrix.
  void matrix(const uint32_t *offsets, uint32_t rows);
  /// Counts eight rows that wgmma reads, in the same way.
  void operand(const uint32_t *offsets) {
    counters.operandWavefronts += wavefrontsOf(offsets);
    ++counters.operandWavefrontsNeeded;
  }
  /// Counts contiguous bytes of global memory that a bulk copy reads or writes.
  void bulkRun(uint64_t start, uint64_t end, uint32_t op, uint32_t thread, bool writes);
  Counters counters;

  static constexpr uint32_t kAhead = 4096; ///< executions before a lane yields

private:
  struct Request {
    uint64_t address[kLanes];
    uint32_t offset[kLanes];
    uint8_t bytes[kLanes], sharedBytes[kLanes];
    uint32_t global, shared; ///< lanes with a global, or a shared, side
  };
  struct Entry {
    uint32_t op = 0;
    uint32_t used = 0; ///< requests since the warp converged
    uint32_t count[kLanes] = {};
    std::vector<Request> requests;
  };
  static uint32_t wavefrontsOf(const uint32_t *offsets);
  void priceGlobal(const Request &request, uint32_t op, const Warp &warp);
  void priceShared(const Request &request);

  const Grid *grid = nullptr;
  BlockLog *log = nullptr;
  unsigned opCount = 0;
  std::vector<Entry> entries;               ///< [warp][op]
  std::vector<uint32_t> touched[kMaxWarps]; ///< entries in use, in order of first use
};

} // namespace attn::rt::host

#endif

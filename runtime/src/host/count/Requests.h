//===- Requests.h - Lanes' accesses as requests of a warp -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lanes run one after another, a GPU issues their accesses together. A request is
// what the lanes of a warp did when each executed one static operation for the
// n-th time since the warp last met; it is priced when the warp meets again. A
// lane that runs far ahead of its warp gives way, which bounds the buffers.
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
  /// One lane's part; `address` null or `offset` ~0 if it has no global or shared side.
  /// Returns how often the lane did this since its warp met.
  uint32_t add(const Lane &lane, uint32_t op, const void *address, uint32_t bytes, uint32_t offset,
               uint32_t sharedBytes);
  void flush(const Warp &warp);
  /// ldmatrix, stmatrix: `rows` offsets of 16 bytes, eight to a matrix.
  void matrix(const uint32_t *offsets, uint32_t rows);
  /// The same for eight rows that wgmma reads.
  void operand(const uint32_t *offsets) {
    counters.operandWavefronts += wavefrontsOf(offsets);
    ++counters.operandWavefrontsNeeded;
  }
  /// Contiguous bytes of global memory that a bulk copy reads or writes.
  void bulkRun(uint64_t start, uint64_t end, uint32_t op, uint32_t thread, bool writes);
  Counters counters;

  static constexpr uint32_t kAhead = 4096; ///< executions before a lane gives way

private:
  struct Request {
    uint64_t address[kLanes];
    uint32_t offset[kLanes];
    uint8_t bytes[kLanes], sharedBytes[kLanes];
    uint32_t global, shared; ///< lanes that have a side there
  };
  struct Entry {
    uint32_t op = 0;
    uint32_t used = 0; ///< requests of this stretch
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

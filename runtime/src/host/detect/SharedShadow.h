//===- SharedShadow.h - Who touched which shared bytes ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Per 4-byte cell: the last writer, per warp its last read, and which bytes were
// ever written. Narrower accesses split their cell into bytes, kept aside until a
// whole-cell write joins it again, so neighbours in a word never seem to race.
//
// An asynchronous copy marks its cells pending when it is issued and stamps them
// anew, as a write of the waiting lane, when a wait of that lane covers it. Any
// access in between is a race on every schedule, whatever moment was drawn for
// the bytes. If only an mbarrier covers the copy, the landed cells keep the stamp
// of the lane's copy queue, which only the mbarrier's phase makes known.
//
// A bulk copy stamps its cells at once with the phase of the mbarrier that it signals:
// only threads that have waited for that phase may access them, wherever the bytes are.
//
// A bulk store reads a box until a wait of its lane; boxes are few and kept as a list.
//
// Reads of wgmma are stamped with the group in which they will be committed, in one
// column per warpgroup beside those of the warps.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_DETECT_SHAREDSHADOW_H
#define ATTN_RT_SRC_HOST_DETECT_SHAREDSHADOW_H

#include "Clocks.h"
#include <unordered_map>

namespace attn::rt::host {

/// The lane field of a bulk copy's writes; the warp field numbers the mbarrier.
inline constexpr uint32_t kBulkLane = 62;

/// The last write of a cell; tick 0: none.
struct Writer {
  uint32_t tick = 0;
  uint16_t op = 0;
  uint16_t warp : 5 = 0, lane : 6 = 0, atomic : 1 = 0, pending : 1 = 0, split : 1 = 0;
  uint16_t copy : 1 = 0;   ///< landed; the tick is of the lane's copy queue, or of a bulk copy's mbarrier
  uint16_t object : 1 = 0; ///< a live mbarrier; also pending, so that any access is checked in full

  bool bulk() const { return copy && lane == kBulkLane; }
  bool operator==(const Writer &) const = default;
};

/// The conflict of an access with an earlier one.
struct Conflict {
  enum Kind { None, Race, Uninitialized } kind = None;
  uint32_t offset = 0; ///< of the first offending byte or cell
  uint32_t op = 0;     ///< of the other access, 0 if it was a read
  uint32_t warp = 0, lane = 0;
  bool pending = false, read = false;
  bool object = false;   ///< a live mbarrier
  bool queue = false;    ///< a read by the wgmma of warpgroup `warp`
  bool unfenced = false; ///< ordered, but not for the async proxy
  bool bulk = false;     ///< a bulk copy
  bool store = false;    ///< a read by a bulk store
};

/// The knowledge that the async accesses of some warps may rely on: the minimum of their clocks.
struct AsyncView {
  uint32_t g[kMaxAgents], a[kMaxAgents];
  uint32_t warps = 0;
};

class SharedShadow {
public:
  void reset(const Clocks &clocks, uint32_t end);

  Conflict read(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes);
  Conflict write(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes,
                 uint32_t op, bool atomic = false, bool pending = false);
  /// Ends the pending write of (warp, lane, op). `valid` has a bit per byte.
  void finish(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes,
              uint32_t op, uint32_t valid);

  /// Notes that the copy has landed, known only to its lane's copy queue.
  void land(unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes, uint32_t op, uint32_t valid,
            uint32_t sequence);
  /// Checks 16 bytes read by wgmma of a warpgroup, in the group in which it will be committed.
  Conflict readAsync(const Clocks &clocks, const AsyncView &view, uint32_t offset, unsigned queue,
                     uint32_t group);
  /// Checks 16 bytes written by a bulk copy that the lane issues. `valid` has a bit per byte.
  Conflict writeBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, const Writer &mine,
                     uint32_t valid);
  /// Checks 16 bytes read by a bulk store that the lane issues; `validBytes` gets a bit per byte.
  Conflict readBulk(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                    uint32_t &validBytes);
  /// Notes the whole box of the thread's bulk store of this number.
  void noteStore(uint32_t thread, uint32_t sequence, uint32_t offset, uint32_t bytes, uint32_t op);
  /// Notes that a live mbarrier is here, or no longer is.
  void setObject(uint32_t offset);
  void clearObject(uint32_t offset);

private:
  struct ByteCell {
    Writer writer;
    uint32_t readers[kMaxWarps + kMaxQueues] = {};
  };
  using SplitCell = std::array<ByteCell, 4>;
  struct StoreBox {
    uint32_t begin, end, thread, sequence, op;
  };
  /// The conflict of a write with the boxes that bulk stores read.
  Conflict storesConflict(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset,
                          uint32_t bytes) const;

  /// The agent whose clock a writer's tick counts.
  unsigned agentOf(const Writer &w) const {
    return w.warp + (!w.copy ? 0 : w.bulk() ? bulkAgents : copyAgents);
  }
  SplitCell &split(uint32_t cell);
  bool readRow(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t cell);
  bool writeRow(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t cell, const Writer &mine);
  bool writerConflicts(const Writer &writer, const Clocks &clocks, unsigned warp, uint32_t lane, bool atomic,
                       Conflict &conflict) const;
  bool readersConflict(const uint32_t *readers, const Clocks &clocks, unsigned warp, uint32_t lane,
                       Conflict &conflict) const;
  bool bulkConflicts(const Writer &writer, const Clocks &clocks, unsigned warp, uint32_t lane,
                     Conflict &conflict) const;
  bool asyncConflicts(const Writer &writer, const Clocks &clocks, const AsyncView &view,
                      Conflict &conflict) const;
  void noteRead(uint32_t &reader, const Clocks &clocks, unsigned warp, uint32_t lane) const;
  template <class Settle>
  void settle(unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes, uint32_t op, uint32_t valid,
              Settle how);

  unsigned warps = 0;            ///< warps, then warpgroups
  unsigned copyAgents = 0;       ///< agent number of warp 0's copies
  unsigned bulkAgents = 0;       ///< agent number of the first mbarrier
  std::vector<Writer> writers;   ///< per cell
  std::vector<uint32_t> readers; ///< per cell and warp: tick << 6 | lane
  std::vector<uint8_t> valid;    ///< per cell, a bit per byte
  std::unordered_map<uint32_t, SplitCell> splits;
  std::vector<StoreBox> stores;
};

} // namespace attn::rt::host

#endif

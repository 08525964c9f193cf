//===- SharedShadow.h - Who touched which shared bytes ----------*- C++ -*-===//
//
// Per 4-byte cell: the last writer, per warp its last read, and which bytes were
// ever written. Narrower accesses split their cell into bytes, kept aside until a
// whole-cell write makes it one again, so neighbours in a word never seem to race.
//
// An asynchronous copy marks its cells pending when it is issued and stamps them
// anew, as a write of the waiting lane, when a wait of that lane covers it. Any
// access in between is a race on every schedule, whichever moment was drawn for
// the bytes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_SHAREDSHADOW_H
#define ATTN_RT_SRC_HOST_SHAREDSHADOW_H

#include "Clocks.h"
#include <unordered_map>

namespace attn::rt::host {

/// The last write of a cell; tick 0: none.
struct Writer {
  uint32_t tick = 0;
  uint16_t op = 0;
  uint16_t warp : 5 = 0, lane : 6 = 0, atomic : 1 = 0, pending : 1 = 0, split : 1 = 0;

  bool operator==(const Writer &) const = default;
};

/// What an access ran into.
struct Conflict {
  enum Kind { None, Race, Uninitialized } kind = None;
  uint32_t offset = 0; ///< of the first offending byte or cell
  uint32_t op = 0;     ///< of the other access, 0 if it was a read
  uint32_t warp = 0, lane = 0;
  bool pending = false, read = false;
};

class SharedShadow {
public:
  void reset(unsigned warpCount, uint32_t end);

  Conflict read(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes);
  Conflict write(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes,
                 uint32_t op, bool atomic = false, bool pending = false);
  /// The pending write of (warp, lane, op) is done. `valid` has a bit per byte.
  void finish(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t offset, uint32_t bytes,
              uint32_t op, uint32_t valid);

private:
  struct ByteCell {
    Writer writer;
    uint32_t readers[kMaxWarps] = {};
  };
  using SplitCell = std::array<ByteCell, 4>;

  SplitCell &split(uint32_t cell);
  bool readRow(const Clocks &clocks, unsigned warp, uint32_t lane, uint32_t cell);
  bool writeRow(const Clocks &clocks, unsigned warp, uint32_t cell, const Writer &mine);
  bool writerConflicts(const Writer &writer, const Clocks &clocks, unsigned warp, uint32_t lane, bool atomic,
                       Conflict &conflict) const;
  bool readersConflict(const uint32_t *readers, const Clocks &clocks, unsigned warp, uint32_t lane,
                       Conflict &conflict) const;
  void noteRead(uint32_t &reader, const Clocks &clocks, unsigned warp, uint32_t lane) const;

  unsigned warps = 0;
  std::vector<Writer> writers;   ///< per cell
  std::vector<uint32_t> readers; ///< per cell and warp: tick << 6 | lane
  std::vector<uint8_t> valid;    ///< per cell, a bit per byte
  std::unordered_map<uint32_t, SplitCell> splits;
};

} // namespace attn::rt::host

#endif

//===- BulkCopy.h - Boxes of tensors on their way ---------------*- C++ -*-===//
//
// cp.async.bulk.tensor: one lane asks for a box, the copy lands later and takes the
// bytes of the whole box, those out of range included, off its mbarrier. It stays
// listed until a wait has seen the phase it belongs to; a block must not end before.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_BULKCOPY_H
#define ATTN_RT_SRC_HOST_BULKCOPY_H

#include "attn_rt/host/TensorMap.h"
#include <algorithm>

namespace attn::rt::host {

struct Block;
struct Mbarrier;

struct BulkCopy {
  TensorMapBits map;
  int32_t at[maxBulkRank] = {}; ///< the box's first element, innermost coordinate first
  uint32_t offset = 0;          ///< in the shared window
  uint32_t barrier = 0;         ///< offset of the mbarrier
  uint32_t op = 0, thread = 0;
  uint64_t phase = 0;    ///< of the mbarrier, when the copy was issued
  bool moved = false;    ///< the bytes are there
  bool landed = false;   ///< the mbarrier was told
  bool observed = false; ///< a wait has seen the phase
  bool readable = true;  ///< false: zeros stand for what lies outside of every allocation

  uint32_t rowBytes() const { return static_cast<uint32_t>(map.box[0] * map.strides[0]); }
};

/// Consecutive elements of a box along the innermost dimension.
struct BulkRow {
  uint32_t offset = 0; ///< of its first byte in the shared window, without the swizzle
  uint64_t source = 0; ///< address of the first byte in range
  uint32_t begin = 0;  ///< which byte of the row that is
  uint32_t end = 0;    ///< behind the last one in range; equal: all of the row is out of range
  uint32_t bytes() const { return end - begin; }
};

template <class Visit> void forRows(const BulkCopy &copy, Visit visit) {
  const TensorMapBits &map = copy.map;
  const auto clip = [&](unsigned d, int64_t i) {
    return std::clamp<int64_t>(i, 0, static_cast<int64_t>(map.extents[d]));
  };
  const int64_t first = clip(0, copy.at[0]), last = clip(0, int64_t{copy.at[0]} + map.box[0]);
  const uint64_t element = map.strides[0];
  int64_t index[maxBulkRank] = {};
  BulkRow row;
  for (row.offset = copy.offset;; row.offset += copy.rowBytes()) {
    bool inside = first < last;
    row.source = map.base + static_cast<uint64_t>(first) * element;
    for (unsigned d = 1; d < map.rank; ++d) {
      const int64_t i = copy.at[d] + index[d];
      inside &= i >= 0 && i < static_cast<int64_t>(map.extents[d]);
      row.source += static_cast<uint64_t>(i) * map.strides[d];
    }
    row.begin = inside ? static_cast<uint32_t>(static_cast<uint64_t>(first - copy.at[0]) * element) : 0;
    row.end = inside ? static_cast<uint32_t>(static_cast<uint64_t>(last - copy.at[0]) * element) : 0;
    visit(row);
    unsigned d = 1;
    while (d < map.rank && ++index[d] == map.box[d])
      index[d++] = 0;
    if (d >= map.rank)
      return;
  }
}

/// Moves the bytes, where that has not happened, and tells the mbarrier.
void landBulkCopy(Block &block, BulkCopy &copy);
/// A wait has seen all phases of the mbarrier but the open one.
void observeBulkCopies(Block &block, const Mbarrier &barrier);

} // namespace attn::rt::host

#endif

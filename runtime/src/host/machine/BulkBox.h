//===- BulkBox.h - Boxes of tensors on their way ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cp.async.bulk.tensor, in both directions.
//
// To shared memory: one lane issues a box. The copy lands later and subtracts the bytes of
// the whole box, including those out of range, from its mbarrier. It stays listed until a
// wait has seen the phase that it belongs to; a block must not end before.
//
// To global memory: the box belongs to a group of its lane. It may be read until a
// wait of that lane for the group, with or without `.read`. Its bytes may be missing
// from global memory until a wait without `.read`, or until the kernel ends. A lane
// must not exit before its boxes have been read.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_BULKBOX_H
#define ATTN_RT_SRC_HOST_MACHINE_BULKBOX_H

#include "attn_rt/host/TensorMap.h"
#include <algorithm>
#include <vector>

namespace attn::rt::host {

/// A part of a tensor, and its address in shared memory.
struct BulkBox {
  TensorMapBits map;
  int32_t at[maxBulkRank] = {}; ///< the box's first element, innermost coordinate first
  uint32_t offset = 0;          ///< in the shared window
  uint32_t op = 0, thread = 0;
  bool accessible = true; ///< false: elements in range lie outside of every allocation

  uint32_t rowBytes() const { return static_cast<uint32_t>(map.box[0] * map.strides[0]); }
};

struct BulkCopy : BulkBox {
  uint32_t barrier = 0;  ///< offset of the mbarrier
  uint64_t phase = 0;    ///< the mbarrier's phase when the copy was issued
  bool moved = false;    ///< the bytes were written; zeros, if the tensor is not accessible
  bool landed = false;   ///< the mbarrier was signalled
  bool observed = false; ///< a wait has seen the phase
};

struct BulkStore : BulkBox {
  uint32_t group = 0;         ///< group of its lane
  uint32_t sequence = 0;      ///< counts the lane's stores, from 1
  bool adds = false;          ///< adds f32 instead of writing
  bool read = false;          ///< the bytes to write are in `bytes`
  bool written = false;       ///< the bytes are in global memory
  bool released = false;      ///< a wait has confirmed that the box was read
  std::vector<uint8_t> bytes; ///< the box, laid out as in the tensor
};

/// Consecutive elements of a box along the innermost dimension.
struct BulkRow {
  uint32_t offset = 0;  ///< of its first byte in the shared window, without the swizzle
  uint64_t address = 0; ///< in global memory, of the first byte in range
  uint32_t begin = 0;   ///< index of the first byte in range within the row
  uint32_t end = 0;     ///< end of the bytes in range; equal to `begin`: the row is out of range
  uint32_t bytes() const { return end - begin; }
};

template <class Visit> void forRows(const BulkBox &box, Visit visit) {
  const TensorMapBits &map = box.map;
  const auto clip = [&](unsigned d, int64_t i) {
    return std::clamp<int64_t>(i, 0, static_cast<int64_t>(map.extents[d]));
  };
  const int64_t first = clip(0, box.at[0]), last = clip(0, int64_t{box.at[0]} + map.box[0]);
  const uint64_t element = map.strides[0];
  int64_t index[maxBulkRank] = {};
  BulkRow row;
  for (row.offset = box.offset;; row.offset += box.rowBytes()) {
    bool inside = first < last;
    row.address = map.base + static_cast<uint64_t>(first) * element;
    for (unsigned d = 1; d < map.rank; ++d) {
      const int64_t i = box.at[d] + index[d];
      inside &= i >= 0 && i < static_cast<int64_t>(map.extents[d]);
      row.address += static_cast<uint64_t>(i) * map.strides[d];
    }
    row.begin = inside ? static_cast<uint32_t>(static_cast<uint64_t>(first - box.at[0]) * element) : 0;
    row.end = inside ? static_cast<uint32_t>(static_cast<uint64_t>(last - box.at[0]) * element) : 0;
    visit(row);
    unsigned d = 1;
    while (d < map.rank && ++index[d] == map.box[d])
      index[d++] = 0;
    if (d >= map.rank)
      return;
  }
}

} // namespace attn::rt::host

#endif

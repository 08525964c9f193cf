//===- BulkBoxes.h - Boxes of tensors for tests -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The expected results of bulk copies in both directions: the rule of boxes, an
// element at a time.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_HOST_BULKBOXES_H
#define ATTN_TEST_HOST_BULKBOXES_H

#include "attn_rt/host/Abi.h"
#include "attn_rt/host/TensorMap.h"
#include <numeric>

namespace attn::test {

/// Bytes from the start of dynamic shared memory to a case's tile, by default.
constexpr uint32_t kTile = 1024;

/// A box of a tensor in a larger buffer, and its address in shared memory.
struct BulkCase {
  rt::BulkTensor tensor;
  std::vector<int32_t> at;
  uint32_t tile = kTile;

  uint64_t elementBytes() const { return dtypeSize(tensor.dtype); }
  uint32_t boxBytes() const {
    return std::accumulate(tensor.box.begin(), tensor.box.end(), static_cast<uint32_t>(elementBytes()),
                           std::multiplies<>());
  }

  /// Calls visit(byte of the tile, byte of the tensor's memory, whether it is in range) for each element.
  template <typename Visit> void forElements(Visit visit) const {
    const uint32_t start = rt::host::dynamicSharedOffset(0, 1024) + tile,
                   span = static_cast<uint32_t>(tensor.swizzle);
    for (uint32_t j = 0; j < boxBytes() / elementBytes(); ++j) {
      int64_t rest = j, offset = 0;
      bool inside = true;
      for (size_t d = 0; d < tensor.box.size(); ++d) {
        const int64_t i = at[d] + rest % tensor.box[d];
        rest /= tensor.box[d];
        inside &= i >= 0 && i < tensor.extents[d];
        offset += i * (d ? tensor.strides[d - 1] : static_cast<int64_t>(elementBytes()));
      }
      uint32_t address = start + j * static_cast<uint32_t>(elementBytes());
      if (span)
        address ^= (address >> 7 & (span / 16 - 1)) << 4;
      visit(address - start, offset, inside);
    }
  }
};

/// The names of coordinates in a kernel's text: "%c0, %c1, ...".
inline std::string coordinateNames(unsigned rank) {
  std::string names;
  for (unsigned i = 0; i < rank; ++i)
    names += (i ? ", %c" : "%c") + std::to_string(i);
  return names;
}

} // namespace attn::test

#endif

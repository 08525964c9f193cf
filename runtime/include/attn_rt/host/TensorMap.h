//===- TensorMap.h - The 128 bytes behind a bulk copy -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_HOST_TENSORMAP_H
#define ATTN_RT_HOST_TENSORMAP_H

#include "attn_rt/tensor/BulkTensor.h"

namespace attn::rt::host {

/// The host device's own form of a tensor map; NVIDIA's is opaque.
struct TensorMapBits {
  static constexpr uint64_t kMark = 0x70616d726f736e74ull; ///< tells a map from any other 128 bytes

  uint64_t mark = 0, base = 0;
  uint64_t extents[maxBulkRank] = {};
  uint64_t strides[maxBulkRank] = {}; ///< in bytes; [0] is an element
  uint16_t box[maxBulkRank] = {};
  uint8_t rank = 0, swizzle = 0;

  uint64_t boxBytes() const {
    uint64_t bytes = strides[0];
    for (unsigned i = 0; i < rank; ++i)
      bytes *= box[i];
    return bytes;
  }
};
static_assert(sizeof(TensorMapBits) <= sizeof(EncodedMap));

/// Encodes a tensor map. The tensor must have passed checkBulkTensor.
EncodedMap encodeTensorMap(const BulkTensor &tensor);

} // namespace attn::rt::host

#endif

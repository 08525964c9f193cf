//===- BulkTensor.h - Tensors that bulk copies read -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TMA, Hopper's copy engine for bulk copies, moves boxes of a tensor. A tensor map, 128
// bytes that the kernel gets as a parameter, describes the tensor's layout. The hardware's
// demands on such a tensor are written down here once, for manifests and devices.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_BULKTENSOR_H
#define ATTN_RT_TENSOR_BULKTENSOR_H

#include "attn_rt/tensor/Tensor.h"

#include <array>

namespace attn::rt {

inline constexpr size_t maxBulkRank = 5;

/// A tensor in a device's memory. Dimensions are counted from the innermost one.
struct BulkTensor {
  std::string name; ///< the map's name, for messages
  uint64_t base = 0;
  DType dtype = DType::BF16;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides; ///< in bytes, of dimensions 1 and up
  std::vector<int32_t> box;     ///< the extents that one copy moves
  int swizzle = 0;              ///< span in bytes: 0 (none), 32, 64 or 128
};

/// A tensor map as a kernel parameter; only the device that made it can read it.
struct alignas(64) EncodedMap {
  std::array<uint8_t, 128> bytes{};
};

/// A fault of a map: the field of TensorMapInfo, an index into it (negative: none), and a message.
struct BulkFault {
  std::string field;
  int index;
  std::string message;
};

/// Checks everything that is known before addresses and extents are.
std::optional<BulkFault> checkBulkLayout(DType dtype, size_t rank, std::span<const int64_t> strides,
                                         std::span<const int32_t> box, int swizzle);
/// Checks everything. Errors begin with the map's name: "tensor map 'kv.k.map0': …".
Status checkBulkTensor(const BulkTensor &tensor);

} // namespace attn::rt

#endif

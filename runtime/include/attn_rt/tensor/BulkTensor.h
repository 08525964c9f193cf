//===- BulkTensor.h - Tensors that bulk copies read -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hopper's bulk copies (TMA) move boxes of a tensor whose layout they find in 128
// bytes that the kernel gets as a parameter: a tensor map. What the hardware asks of
// such a tensor is written down here once, for manifests and devices.
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
  std::string name; ///< of its map, for messages
  uint64_t base = 0;
  DType dtype = DType::BF16;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides; ///< in bytes, of dimensions 1 and on
  std::vector<int32_t> box;     ///< what one copy moves
  int swizzle = 0;              ///< span in bytes: 0 (none), 32, 64 or 128
};

/// A tensor map as kernels take it; only the device that made it can read it.
struct alignas(64) EncodedMap {
  std::array<uint8_t, 128> bytes{};
};

/// What is wrong with a map, and where: a field of TensorMapInfo and, if not negative, an index into it.
struct BulkFault {
  std::string field;
  int index;
  std::string message;
};

/// Checks all that is known before addresses and extents are.
std::optional<BulkFault> checkBulkLayout(DType dtype, size_t rank, std::span<const int64_t> strides,
                                         std::span<const int32_t> box, int swizzle);
/// Checks everything. "tensor map 'kv.k.map0': …"
Status checkBulkTensor(const BulkTensor &tensor);

} // namespace attn::rt

#endif

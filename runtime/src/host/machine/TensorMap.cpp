//===- TensorMap.cpp - The 128 bytes behind a bulk copy -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/host/TensorMap.h"
#include <cstring>

namespace attn::rt::host {

EncodedMap encodeTensorMap(const BulkTensor &tensor) {
  TensorMapBits bits;
  bits.mark = TensorMapBits::kMark;
  bits.base = tensor.base;
  bits.rank = static_cast<uint8_t>(tensor.extents.size());
  bits.swizzle = static_cast<uint8_t>(tensor.swizzle);
  for (unsigned i = 0; i < bits.rank; ++i) {
    bits.extents[i] = static_cast<uint64_t>(tensor.extents[i]);
    bits.strides[i] = i ? static_cast<uint64_t>(tensor.strides[i - 1]) : dtypeSize(tensor.dtype);
    bits.box[i] = static_cast<uint16_t>(tensor.box[i]);
  }
  EncodedMap map;
  std::memcpy(map.bytes.data(), &bits, sizeof bits);
  return map;
}

} // namespace attn::rt::host

//===- CudaTensorMap.cpp - Tensor maps by the driver ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda/CudaTensorMap.h"

#include <bit>

namespace attn::rt::cuda {

namespace {

MapDType mapDType(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return mapF16;
  case DType::BF16:
    return mapBF16;
  case DType::F32:
    return mapF32;
  case DType::I32:
    return mapI32;
  default: // a copy treats types of the same size alike
    return dtypeSize(dtype) == 1 ? mapU8 : dtypeSize(dtype) == 2 ? mapU16 : mapU32;
  }
}

} // namespace

Result<EncodedMap> encodeTensorMap(const Api &api, const BulkTensor &tensor) {
  if (Status status = checkBulkTensor(tensor); !status)
    return status.error();
  if (!api.cuTensorMapEncodeTiled)
    return Error{ErrorKind::Device, "cuda: the NVIDIA driver is too old for tensor map '" + tensor.name +
                                        "': it supports CUDA " + versionText(api.driverVersion) +
                                        " and lacks 'cuTensorMapEncodeTiled'; CUDA 12.0 (driver 525) or "
                                        "later is needed"};
  const size_t rank = tensor.extents.size();
  uint64_t extents[maxBulkRank] = {}, strides[maxBulkRank] = {};
  unsigned box[maxBulkRank] = {}, steps[maxBulkRank] = {};
  for (size_t i = 0; i < rank; ++i) {
    extents[i] = static_cast<uint64_t>(tensor.extents[i]);
    strides[i] = i + 1 < rank ? static_cast<uint64_t>(tensor.strides[i]) : 0;
    box[i] = static_cast<unsigned>(tensor.box[i]);
    steps[i] = 1;
  }
  // 0, 1, 2, 3 for none, 32, 64 and 128 bytes.
  const int swizzle = tensor.swizzle ? std::countr_zero(static_cast<unsigned>(tensor.swizzle)) - 4 : 0;
  // Promotion past 128 bytes would load the rows of other heads if a row is no longer than that.
  EncodedMap map;
  const CUresult result =
      api.cuTensorMapEncodeTiled(map.bytes.data(), mapDType(tensor.dtype), static_cast<unsigned>(rank),
                                 reinterpret_cast<void *>(tensor.base), extents, strides, box, steps,
                                 mapNoInterleave, swizzle, mapPromote128, mapFillZeros);
  if (result != success)
    return api.error(result, "encoding tensor map '" + tensor.name + "'");
  return map;
}

} // namespace attn::rt::cuda

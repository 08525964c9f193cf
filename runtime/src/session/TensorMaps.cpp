//===- TensorMaps.cpp - A manifest's tensor maps with numbers -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/TensorMaps.h"

#include <algorithm>

namespace attn::rt {

namespace {

Error fail(const TensorMapInfo &info, const std::string &what) {
  return inputError("tensor map '" + info.name + "': " + what);
}

Result<int64_t> sizeOf(const TensorMapInfo &info, const std::string &name,
                       const std::map<std::string, int32_t> &dims) {
  auto found = dims.find(name);
  if (found == dims.end())
    return fail(info, "dimension '" + name + "' is not set");
  if (found->second < 0)
    return fail(info, "dimension '" + name + "' is " + std::to_string(found->second));
  return found->second;
}

Result<int64_t> extentOf(const TensorMapInfo &info, size_t dim, const std::map<std::string, int32_t> &dims) {
  int64_t extent = info.dims[dim].value;
  for (const std::string &name : info.dims[dim].of) {
    Result<int64_t> size = sizeOf(info, name, dims);
    if (!size)
      return size.error();
    if (__builtin_mul_overflow(extent, *size, &extent))
      return fail(info, "the extent of dimension " + std::to_string(dim) + " exceeds 2^63");
  }
  return extent;
}

/// Bytes from the first to the end of the last element; empty if that exceeds 2^63.
std::optional<int64_t> spanOf(const BulkTensor &tensor) {
  auto span = static_cast<int64_t>(dtypeSize(tensor.dtype));
  for (size_t i = 0; i < tensor.extents.size(); ++i) {
    const int64_t stride = i ? tensor.strides[i - 1] : static_cast<int64_t>(dtypeSize(tensor.dtype));
    int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.extents[i] - 1, stride, &reach) ||
        __builtin_add_overflow(span, reach, &span))
      return std::nullopt;
  }
  return span;
}

} // namespace

Result<BulkTensor> resolveTensorMap(const TensorMapInfo &info, const std::map<std::string, int32_t> &dims,
                                    const MapMemory &memory, DeviceAddress zero) {
  BulkTensor tensor{info.name, memory.address, info.dtype, {}, info.strides, info.box, info.swizzle};
  for (size_t i = 0; i < info.dims.size(); ++i) {
    Result<int64_t> extent = extentOf(info, i, dims);
    if (!extent)
      return extent.error();
    tensor.extents.push_back(*extent);
  }
  for (size_t i = 0; i < info.times.size(); ++i) {
    if (info.times[i].empty())
      continue;
    Result<int64_t> size = sizeOf(info, info.times[i], dims);
    if (!size)
      return size.error();
    tensor.strides[i] *= *size; // far below 2^63: see checkManifest
  }
  if (std::find(tensor.extents.begin(), tensor.extents.end(), 0) != tensor.extents.end()) {
    tensor.base = zero;
    std::fill(tensor.extents.begin(), tensor.extents.end(), 1);
    for (int64_t &stride : tensor.strides) // strides of a tensor without elements mean nothing
      stride = std::max<int64_t>(stride, 16);
    return tensor;
  }
  const std::optional<int64_t> span = spanOf(tensor);
  if (memory.bytes && (!span || *span > static_cast<int64_t>(*memory.bytes)))
    return fail(info, "reaches over " + (span ? std::to_string(*span) : "more than 2^63") + " bytes of '" +
                          info.buffer + "', which has " + std::to_string(*memory.bytes));
  return tensor;
}

} // namespace attn::rt

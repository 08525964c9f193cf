//===- BulkTensor.cpp - Tensors that bulk copies read ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/BulkTensor.h"

namespace attn::rt {

namespace {

constexpr int64_t strideLimit = int64_t{1} << 40;
constexpr int64_t extentLimit = int64_t{1} << 32;

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

} // namespace

std::optional<BulkFault> checkBulkLayout(DType dtype, size_t rank, std::span<const int64_t> strides,
                                         std::span<const int32_t> box, int swizzle) {
  const auto expected = [](const char *field, int index, const std::string &what, int64_t got) {
    return BulkFault{field, index, "expected " + what + ", got " + std::to_string(got)};
  };
  const auto size = static_cast<int64_t>(dtypeSize(dtype));
  if (size > 4)
    return BulkFault{"dtype", -1,
                     "expected a dtype of 1, 2 or 4 bytes, got " + std::string(dtypeName(dtype))};
  if (rank < 1 || rank > maxBulkRank)
    return expected("dims", -1, "1 to 5 dimensions", static_cast<int64_t>(rank));
  if (strides.size() != rank - 1)
    return expected("strides", -1, "one for each dimension but the innermost, " + std::to_string(rank - 1),
                    static_cast<int64_t>(strides.size()));
  if (box.size() != rank)
    return expected("box", -1, "one extent for each dimension, " + std::to_string(rank),
                    static_cast<int64_t>(box.size()));
  for (size_t i = 0; i < strides.size(); ++i)
    if (strides[i] <= 0 || strides[i] >= strideLimit || strides[i] % 16)
      return expected("strides", static_cast<int>(i), "a multiple of 16 bytes below 2^40", strides[i]);
  for (size_t i = 0; i < box.size(); ++i)
    if (box[i] < 1 || box[i] > 256)
      return expected("box", static_cast<int>(i), "1 to 256 elements", box[i]);
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return expected("swizzle", -1, "0, 32, 64 or 128 bytes", swizzle);
  const int64_t row = box[0] * size;
  if (row % 16)
    return expected("box", 0, "a multiple of 16 bytes", row);
  // The distance of rows shorter than the span is not documented.
  if (swizzle && row != swizzle)
    return expected("box", 0, "as many bytes as the swizzle, " + std::to_string(swizzle), row);
  return std::nullopt;
}

Status checkBulkTensor(const BulkTensor &tensor) {
  const auto fail = [&](const std::string &what) {
    return inputError("tensor map '" + tensor.name + "': " + what);
  };
  if (auto fault =
          checkBulkLayout(tensor.dtype, tensor.extents.size(), tensor.strides, tensor.box, tensor.swizzle))
    return fail(fault->field + (fault->index < 0 ? "" : "[" + std::to_string(fault->index) + "]") + ": " +
                fault->message);
  if (tensor.base % 16)
    return fail("expected a base address that is a multiple of 16, got " + hex(tensor.base));
  for (size_t i = 0; i < tensor.extents.size(); ++i)
    if (tensor.extents[i] < 1 || tensor.extents[i] > extentLimit)
      return fail("expected 1 to 2^32 elements in dimension " + std::to_string(i) + ", got " +
                  std::to_string(tensor.extents[i]));
  return {};
}

} // namespace attn::rt

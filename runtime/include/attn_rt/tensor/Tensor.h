//===- Tensor.h - Named arrays of numbers on the host -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A Tensor is a dtype, a shape and bytes, dense and row-major, little endian:
// files, the reference, the session and the tools exchange it. Element access goes
// through double so that every check works on every dtype.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_TENSOR_H
#define ATTN_RT_TENSOR_TENSOR_H

#include "attn_rt/support/Status.h"
#include "attn_rt/tensor/ElementType.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::rt {

/// The product of a shape; empty if it overflows or a dimension is negative.
std::optional<int64_t> elementCount(std::span<const int64_t> shape);
/// The shape as text: "[4, 32, 128]".
std::string shapeText(std::span<const int64_t> shape);

struct Tensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  Tensor() = default;
  /// Filled with zeros. The shape must be valid (elementCount has a value).
  Tensor(DType dtype, std::vector<int64_t> shape);
  /// Makes a tensor of values, which must fill the shape; ofDoubles rounds them to the dtype as set() does.
  static Tensor ofI32(std::vector<int64_t> shape, std::span<const int32_t> values);
  static Tensor ofDoubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values);

  int64_t elements() const { return static_cast<int64_t>(bytes.size() / dtypeSize(dtype)); }
  /// Integers above 2^53 lose their low bits.
  double get(int64_t index) const;
  /// Integers are rounded to nearest even and clamped to the dtype's range (NaN becomes 0).
  void set(int64_t index, double value);
  /// Sets all elements, as set() does.
  void fill(double value);
  std::vector<double> toDoubles() const;

  template <typename T> T *data() { return reinterpret_cast<T *>(bytes.data()); }
  template <typename T> const T *data() const { return reinterpret_cast<const T *>(bytes.data()); }
  /// The elements as T, which must be the dtype's own type (int32_t for I32, uint16_t for F16 and BF16, …).
  template <typename T> std::span<T> as() { return {data<T>(), bytes.size() / sizeof(T)}; }
  template <typename T> std::span<const T> as() const { return {data<T>(), bytes.size() / sizeof(T)}; }
};

using TensorMap = std::map<std::string, Tensor>;

} // namespace attn::rt

#endif

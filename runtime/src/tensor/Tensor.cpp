//===- Tensor.cpp - Named arrays of numbers on the host -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Tensor.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace attn::rt {

namespace {

template <typename T> T load(const uint8_t *bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T> void store(uint8_t *bytes, int64_t index, T value) {
  std::memcpy(bytes + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T> T toInteger(double value) {
  if (std::isnan(value))
    return 0;
  value = std::nearbyint(value);
  // The upper bound itself may round up to a power of two that T cannot hold.
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

} // namespace

std::optional<int64_t> elementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count))
      return std::nullopt;
  return count;
}

std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Tensor::Tensor(DType dtype, std::vector<int64_t> dims) : dtype(dtype), shape(std::move(dims)) {
  std::optional<int64_t> count = elementCount(shape);
  assert(count && "invalid shape");
  bytes.resize(static_cast<size_t>(count.value_or(0)) * dtypeSize(dtype));
}

Tensor Tensor::ofI32(std::vector<int64_t> shape, std::span<const int32_t> values) {
  Tensor tensor(DType::I32, std::move(shape));
  assert(tensor.bytes.size() == values.size_bytes() && "values do not fill the shape");
  if (!values.empty()) // memcpy takes no null, even for zero bytes
    std::memcpy(tensor.bytes.data(), values.data(), std::min(tensor.bytes.size(), values.size_bytes()));
  return tensor;
}

Tensor Tensor::ofDoubles(DType dtype, std::vector<int64_t> shape, std::span<const double> values) {
  Tensor tensor(dtype, std::move(shape));
  assert(tensor.elements() == static_cast<int64_t>(values.size()) && "values do not fill the shape");
  for (size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

double Tensor::get(int64_t index) const {
  const uint8_t *base = bytes.data();
  switch (dtype) {
  case DType::F16:
    return fromF16(load<uint16_t>(base, index));
  case DType::BF16:
    return fromBF16(load<uint16_t>(base, index));
  case DType::F32:
    return load<float>(base, index);
  case DType::F64:
    return load<double>(base, index);
  case DType::I8:
    return load<int8_t>(base, index);
  case DType::I16:
    return load<int16_t>(base, index);
  case DType::I32:
    return load<int32_t>(base, index);
  case DType::I64:
    return static_cast<double>(load<int64_t>(base, index));
  case DType::U8:
  case DType::Bool:
    return load<uint8_t>(base, index);
  case DType::F8E4M3FN:
  case DType::F8E5M2:
    return fromFloatBits(load<uint8_t>(base, index), elementType(dtype));
  case DType::U16:
    return load<uint16_t>(base, index);
  case DType::U32:
    return load<uint32_t>(base, index);
  case DType::U64:
    return static_cast<double>(load<uint64_t>(base, index));
  }
  return 0;
}

void Tensor::set(int64_t index, double value) {
  uint8_t *base = bytes.data();
  switch (dtype) {
  case DType::F16:
    return store(base, index, toF16(value));
  case DType::BF16:
    return store(base, index, toBF16(value));
  case DType::F32:
    return store(base, index, static_cast<float>(value));
  case DType::F64:
    return store(base, index, value);
  case DType::I8:
    return store(base, index, toInteger<int8_t>(value));
  case DType::I16:
    return store(base, index, toInteger<int16_t>(value));
  case DType::I32:
    return store(base, index, toInteger<int32_t>(value));
  case DType::I64:
    return store(base, index, toInteger<int64_t>(value));
  case DType::U8:
    return store(base, index, toInteger<uint8_t>(value));
  case DType::U16:
    return store(base, index, toInteger<uint16_t>(value));
  case DType::U32:
    return store(base, index, toInteger<uint32_t>(value));
  case DType::U64:
    return store(base, index, toInteger<uint64_t>(value));
  case DType::Bool:
    return store(base, index, static_cast<uint8_t>(value != 0));
  case DType::F8E4M3FN:
  case DType::F8E5M2:
    return store(base, index, static_cast<uint8_t>(toFloatBits(value, elementType(dtype))));
  }
}

void Tensor::fill(double value) {
  if (bytes.empty())
    return;
  set(0, value);
  for (size_t done = dtypeSize(dtype); done < bytes.size(); done *= 2)
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
}

std::vector<double> Tensor::toDoubles() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = get(static_cast<int64_t>(i));
  return values;
}

} // namespace attn::rt

#include "attn_rt/Tensor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace attn::rt {

namespace {

struct DTypeInfo {
  std::string_view name;
  size_t size;
};
// In the order of the enumeration.
constexpr DTypeInfo dtypeInfo[] = {{"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"i8", 1},
                                   {"i16", 2}, {"i32", 4},  {"i64", 8}, {"u8", 1},  {"u16", 2},
                                   {"u32", 4}, {"u64", 8},  {"bool", 1}};

// One rounding for every 16-bit format: a double's 53-bit significand is shifted down to `mantissaBits`
// (further for subnormals) and the discarded bits decide; the carry then walks into the exponent by itself.
uint16_t roundTo16(double value, int mantissaBits, int bias) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 63) << 15);
  const int rawExponent = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint16_t infinity = static_cast<uint16_t>((2 * bias + 1) << mantissaBits);
  if (rawExponent == 0x7ff) {
    if (fraction == 0)
      return sign | infinity;
    const uint16_t quiet = static_cast<uint16_t>(1 << (mantissaBits - 1));
    return static_cast<uint16_t>(sign | infinity | quiet | (fraction >> (52 - mantissaBits)));
  }
  const int exponent = rawExponent - 1023;
  if (rawExponent == 0 || exponent < -bias - mantissaBits - 1)
    return sign;
  if (exponent > bias)
    return sign | infinity;
  const int smallest = 1 - bias;
  const bool subnormal = exponent < smallest;
  const int shift = 52 - mantissaBits + (subnormal ? smallest - exponent : 0);
  const uint64_t significand = (uint64_t{1} << 52) | fraction;
  uint64_t kept = significand >> shift;
  const uint64_t dropped = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (dropped > half || (dropped == half && (kept & 1)))
    ++kept;
  if (!subnormal)
    kept += static_cast<uint64_t>(exponent + bias - 1) << mantissaBits;
  return static_cast<uint16_t>(sign | std::min<uint64_t>(kept, infinity));
}

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

std::string_view dtypeName(DType dtype) { return dtypeInfo[static_cast<size_t>(dtype)].name; }

std::optional<DType> parseDType(std::string_view name) {
  for (size_t i = 0; i < std::size(dtypeInfo); ++i)
    if (dtypeInfo[i].name == name)
      return static_cast<DType>(i);
  return std::nullopt;
}

size_t dtypeSize(DType dtype) { return dtypeInfo[static_cast<size_t>(dtype)].size; }

bool isFloat(DType dtype) { return dtype <= DType::F64; }

uint16_t toF16(double value) { return roundTo16(value, 10, 15); }
uint16_t toBF16(double value) { return roundTo16(value, 7, 127); }

double fromF16(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f)
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, -24);
  else
    magnitude = std::bit_cast<double>((static_cast<uint64_t>(exponent - 15 + 1023) << 52) |
                                      (static_cast<uint64_t>(mantissa) << 42));
  return std::copysign(magnitude, bits & 0x8000 ? -1.0 : 1.0);
}

double fromBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

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
  if (!values.empty()) // memcpy takes no null, not even for nothing
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

//===- ElementType.cpp - The types of elements ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/ElementType.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace attn::rt {

namespace {

// Results of few features have more tolerance: see attn.attend, "Numerics", and Tolerances::of.
constexpr double toleranceF16 = 1e-3, toleranceBF16 = 8e-3, toleranceE4M3 = 6e-2;

constexpr ElementType table[] = {
    {DType::F16, "f16", "F16", 16, 5, 10, true, toleranceF16, 16},
    {DType::BF16, "bf16", "BF16", 16, 8, 7, true, toleranceBF16, 16},
    {DType::F32, "f32", "F32", 32, 8, 23},
    {DType::F64, "f64", "F64", 64, 11, 52},
    {DType::I8, "i8", "I8", 8},
    {DType::I16, "i16", "I16", 16},
    {DType::I32, "i32", "I32", 32},
    {DType::I64, "i64", "I64", 64},
    {DType::U8, "u8", "U8", 8},
    {DType::U16, "u16", "U16", 16},
    {DType::U32, "u32", "U32", 32},
    {DType::U64, "u64", "U64", 64},
    {DType::Bool, "bool", "BOOL", 8},
    {DType::F8E4M3FN, "f8e4m3fn", "F8_E4M3", 8, 4, 3, false, toleranceE4M3},
    {DType::F8E5M2, "f8e5m2", "F8_E5M2", 8, 5, 2},
};
constexpr ElementType ofFourBits{DType::U8, "f4e2m1fn", "F4", 4, 2, 1, false};
constexpr bool inOrder() {
  for (size_t i = 0; i < std::size(table); ++i)
    if (static_cast<size_t>(table[i].dtype) != i)
      return false;
  return true;
}
static_assert(inOrder(), "the table is looked up by the number of the dtype");

/// The bits of the largest finite number: those before the first that is not finite.
uint16_t largestCode(const ElementType &type) {
  const int all = (1 << (type.exponentBits + type.mantissaBits)) - 1;
  const int none = type.infinities ? 1 << type.mantissaBits : type.bits > 4 ? 1 : 0;
  return static_cast<uint16_t>(all - none);
}

} // namespace

std::span<const ElementType> elementTypes() { return table; }
const ElementType &elementType(DType dtype) { return table[static_cast<size_t>(dtype)]; }
const ElementType &e2m1() { return ofFourBits; }

double ElementType::largest() const {
  if (bits <= 16)
    return fromFloatBits(largestCode(*this), *this);
  return bits == 32 ? static_cast<double>(std::numeric_limits<float>::max())
                    : std::numeric_limits<double>::max();
}

std::string_view dtypeName(DType dtype) { return elementType(dtype).name; }

std::optional<DType> parseDType(std::string_view name) {
  const auto *found = std::ranges::find(table, name, &ElementType::name);
  return found == std::end(table) ? std::nullopt : std::optional(found->dtype);
}

size_t dtypeSize(DType dtype) { return elementType(dtype).bytes(); }

bool isFloat(DType dtype) { return elementType(dtype).isFloat(); }

std::string multipliedNames() {
  std::string text;
  for (const ElementType &type : table)
    if (type.mmaDepth > 0)
      text += (text.empty() ? "" : " or ") + std::string(type.name);
  return text;
}

// One rounding for every format: a double's 53-bit significand is shifted down to `mantissaBits` (further for
// subnormals) and the discarded bits decide; the carry then walks into the exponent by itself.
uint16_t toFloatBits(double value, const ElementType &type) {
  const int mantissaBits = type.mantissaBits, bias = (1 << (type.exponentBits - 1)) - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 63) << (type.bits - 1));
  const int rawExponent = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint16_t overflow = static_cast<uint16_t>(largestCode(type) + (type.infinities ? 1 : 0));
  if (rawExponent == 0x7ff) {
    if (fraction == 0)
      return sign | overflow;
    if (!type.infinities)
      return static_cast<uint16_t>(sign | (overflow + 1));
    const uint16_t quiet = static_cast<uint16_t>(1 << (mantissaBits - 1));
    return static_cast<uint16_t>(sign | overflow | quiet | (fraction >> (52 - mantissaBits)));
  }
  const int exponent = rawExponent - 1023;
  if (rawExponent == 0 || exponent < -bias - mantissaBits - 1)
    return sign;
  if (exponent > bias + (type.infinities ? 0 : 1))
    return sign | overflow;
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
  return static_cast<uint16_t>(sign | std::min<uint64_t>(kept, overflow));
}

double fromFloatBits(uint16_t bits, const ElementType &type) {
  const int bias = (1 << (type.exponentBits - 1)) - 1, all = (1 << type.exponentBits) - 1;
  const int exponent = (bits >> type.mantissaBits) & all;
  const int mantissa = bits & ((1 << type.mantissaBits) - 1);
  const int magnitudeBits = bits & ((1 << (type.bits - 1)) - 1);
  double magnitude;
  if (magnitudeBits > largestCode(type))
    magnitude = type.infinities && mantissa == 0 ? std::numeric_limits<double>::infinity()
                                                 : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - bias - type.mantissaBits);
  else
    magnitude = std::bit_cast<double>((static_cast<uint64_t>(exponent - bias + 1023) << 52) |
                                      (static_cast<uint64_t>(mantissa) << (52 - type.mantissaBits)));
  return std::copysign(magnitude, bits >> (type.bits - 1) & 1 ? -1.0 : 1.0);
}

uint16_t toF16(double value) { return toFloatBits(value, elementType(DType::F16)); }
uint16_t toBF16(double value) { return toFloatBits(value, elementType(DType::BF16)); }
double fromF16(uint16_t bits) { return fromFloatBits(bits, elementType(DType::F16)); }
double fromBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

} // namespace attn::rt

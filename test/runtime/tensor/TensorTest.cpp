//===- TensorTest.cpp - Named arrays of numbers on the host ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Tensor.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace attn::rt;

namespace {

const double inf = std::numeric_limits<double>::infinity();

TEST(Tensor, DTypeNamesRoundTrip) {
  for (const ElementType &type : elementTypes()) {
    EXPECT_EQ(parseDType(type.name), type.dtype);
    EXPECT_EQ(&elementType(type.dtype), &type);
    EXPECT_EQ(dtypeSize(type.dtype) * 8, static_cast<size_t>(type.bits));
  }
  EXPECT_FALSE(parseDType("float32"));
  EXPECT_EQ(multipliedNames(), "f16 or bf16");
}

// All 256 values of both 8-bit floats, and the midpoints between neighbours.
TEST(Tensor, EightBitFloats) {
  EXPECT_EQ(elementType(DType::F8E4M3FN).largest(), 448);
  EXPECT_EQ(elementType(DType::F8E5M2).largest(), 57344);
  for (DType dtype : {DType::F8E4M3FN, DType::F8E5M2}) {
    const ElementType &type = elementType(dtype);
    for (int bits = 0; bits < 256; ++bits) {
      const double value = fromFloatBits(static_cast<uint16_t>(bits), type);
      const uint16_t back = toFloatBits(value, type);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(fromFloatBits(back, type)));
      else
        EXPECT_EQ(back, bits);
      const double above = fromFloatBits(static_cast<uint16_t>(bits + 1), type);
      if ((bits & 127) == 127 || !std::isfinite(value) || !std::isfinite(above))
        continue;
      const double middle = (value + above) / 2, outwards = bits & 128 ? -inf : inf;
      EXPECT_EQ(toFloatBits(middle, type), bits & 1 ? bits + 1 : bits);
      EXPECT_EQ(toFloatBits(std::nextafter(middle, 0), type), bits);
      EXPECT_EQ(toFloatBits(std::nextafter(middle, outwards), type), bits + 1);
    }
  }
  const ElementType &e4m3 = elementType(DType::F8E4M3FN), &e5m2 = elementType(DType::F8E5M2);
  EXPECT_EQ(fromFloatBits(1, e4m3), std::ldexp(1, -9));
  EXPECT_TRUE(std::isnan(fromFloatBits(0x7f, e4m3)) && std::isnan(fromFloatBits(0xff, e4m3)));
  EXPECT_EQ(fromFloatBits(0x78, e4m3), 256); // the largest exponent holds numbers
  EXPECT_EQ(toFloatBits(1e9, e4m3), 0x7e);
  EXPECT_EQ(toFloatBits(-inf, e4m3), 0xfe);
  EXPECT_EQ(toFloatBits(inf, e5m2), 0x7c);
  EXPECT_EQ(fromFloatBits(0xfc, e5m2), -inf);
}

// Every 16-bit pattern survives the conversion to double and back, NaNs as some quiet NaN.
TEST(Tensor, SixteenBitRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto pattern = static_cast<uint16_t>(bits);
    double half = fromF16(pattern), brain = fromBF16(pattern);
    if (std::isnan(half))
      EXPECT_TRUE(std::isnan(fromF16(toF16(half))));
    else
      EXPECT_EQ(toF16(half), pattern);
    if (std::isnan(brain))
      EXPECT_TRUE(std::isnan(fromBF16(toBF16(brain))));
    else
      EXPECT_EQ(toBF16(brain), pattern);
  }
}

// Between two neighbours: below the midpoint rounds down, above rounds up, the midpoint rounds to the even
// one.
template <typename To, typename From> void checkRounding(To to, From from, uint16_t lastFinite) {
  for (uint32_t bits = 0; bits < lastFinite; ++bits) {
    auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    double middle = (from(low) + from(high)) / 2;
    EXPECT_EQ(to(middle), bits & 1 ? high : low);
    EXPECT_EQ(to(std::nextafter(middle, -inf)), low);
    EXPECT_EQ(to(std::nextafter(middle, inf)), high);
    EXPECT_EQ(to(-middle), 0x8000 | (bits & 1 ? high : low));
  }
}

TEST(Tensor, RoundsToNearestEven) {
  checkRounding(toF16, fromF16, 0x7bff);
  checkRounding(toBF16, fromBF16, 0x7f7f);
}

TEST(Tensor, SpecialValues) {
  EXPECT_EQ(toF16(65519.999), 0x7bff);
  EXPECT_EQ(toF16(65520), 0x7c00);
  EXPECT_EQ(toF16(inf), 0x7c00);
  EXPECT_EQ(toBF16(-inf), 0xff80);
  EXPECT_EQ(toF16(std::ldexp(1, -25)), 0);
  EXPECT_EQ(toF16(std::nextafter(std::ldexp(1, -25), 1)), 1);
  EXPECT_EQ(toF16(1e-300), 0);
  EXPECT_EQ(toF16(-1e-300), 0x8000);
  EXPECT_EQ(toBF16(1e300), 0x7f80);
  EXPECT_EQ(toBF16(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(fromF16(toF16(std::nan("")))));
  // A NaN whose payload is in the dropped bits must not turn into an infinity.
  EXPECT_TRUE(std::isnan(fromBF16(toBF16(std::bit_cast<double>(uint64_t{0x7ff0000000000001})))));
}

TEST(Tensor, GetSetEveryDType) {
  for (int i = 0; i <= static_cast<int>(DType::U64); ++i) {
    Tensor tensor(static_cast<DType>(i), {2, 3});
    EXPECT_EQ(tensor.elements(), 6);
    tensor.set(4, 37);
    EXPECT_EQ(tensor.get(4), 37);
    EXPECT_EQ(tensor.get(5), 0);
    tensor.fill(5);
    EXPECT_EQ(tensor.toDoubles(), std::vector<double>(6, 5.0));
  }
  Tensor bytes(DType::I8, {1});
  bytes.set(0, 300);
  EXPECT_EQ(bytes.get(0), 127);
  bytes.set(0, -inf);
  EXPECT_EQ(bytes.get(0), -128);
  Tensor wide(DType::I64, {1});
  wide.set(0, 1e30);
  EXPECT_EQ(*wide.data<int64_t>(), std::numeric_limits<int64_t>::max());
}

TEST(Tensor, ShapesThatOverflow) {
  EXPECT_EQ(elementCount(std::vector<int64_t>{}), 1);
  EXPECT_EQ(elementCount(std::vector<int64_t>{3, 0, 5}), 0);
  EXPECT_FALSE(elementCount(std::vector<int64_t>{-1}));
  EXPECT_FALSE(elementCount(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32}));
  EXPECT_EQ(shapeText(std::vector<int64_t>{4, 32}), "[4, 32]");
}

} // namespace

//===- FormatTest.cpp - How the elements of keys and values are stored ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Format.h"
#include "attn_rt/support/Random.h"

#include <array>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <set>

using namespace attn::rt;

namespace {

using Scales = Format::Scales;
constexpr Format e4m3PerHead = {DType::F8E4M3FN, 8, Scales::Head};

std::vector<float> normalRow(size_t size, const char *stream) {
  Random random(1, stream);
  std::vector<float> row(size);
  for (size_t i = 0; i < row.size(); i += 2) {
    double a, b;
    random.normalPair(a, b);
    row[i] = static_cast<float>(a), row[i + 1] = static_cast<float>(b);
  }
  return row;
}

/// The row, quantized and dequantized.
std::vector<float> thereAndBack(Format format, std::vector<float> row) {
  std::vector<uint8_t> meta(static_cast<size_t>(format.metaBytes(std::ssize(row)))),
      codes(static_cast<size_t>(format.rowBytes(std::ssize(row))));
  findMeta(format, row, meta.data());
  quantizeRow(format, row, meta.data(), codes.data());
  RowDecoder(format).decode(codes.data(), meta.data(), row);
  return row;
}

TEST(Format, Texts) {
  const Format formats[] = {Format::plain(DType::F16),
                            Format::plain(DType::BF16),
                            e4m3PerHead,
                            Format::floats(DType::F8E5M2, Scales::Tensor),
                            Format::floats(DType::F8E4M3FN, Scales::Token),
                            Format::integers(8, 128),
                            Format::integers(4, 64),
                            Format::integers(2, 80),
                            Format::blocksOf(DType::F8E5M2, 32, Format::Blocks::E8M0),
                            Format::blocksOf(DType::U8, 32, Format::Blocks::E8M0),
                            Format::blocksOf(DType::U8, 16, Format::Blocks::E4M3),
                            Format::rows(128, 64)};
  std::set<std::string> texts;
  for (const Format &format : formats) {
    EXPECT_EQ(Format::parse(format.text()), format) << format.text();
    EXPECT_EQ(format.fault(), "");
    texts.insert(format.text());
  }
  EXPECT_EQ(texts,
            (std::set<std::string>{"bf16", "f16", "f4e2m1fn per 16 by f8e4m3fn",
                                   "f4e2m1fn per 32 by f8e8m0fnu", "f8e4m3fn per 128 rest 64",
                                   "f8e4m3fn per head", "f8e4m3fn per token", "f8e5m2 per 32 by f8e8m0fnu",
                                   "f8e5m2 per tensor", "i2 per 80", "i4 per 64", "i8 per 128"}));
  for (const char *text :
       {"", "bf16 per head", "bf16 per ", "f8e4m3fn", "f8e4m3fn per 64", "f8e4m3fn per 64 rest 64", "i4",
        "i4 per head", "i4 per 0", "i4 per 64x", "i3 per 64", "per 64", "f4e2m1fn", "f4e2m1fn per 32",
        "f4e2m1fn per 16 by f8e8m0fnu", " by f8e8m0fnu"})
    EXPECT_FALSE(Format::parse(text)) << text;
}

/// A line as FlashMLA and vLLM store it: quantized numbers, their scales, and bf16.
TEST(Format, RowsOfSeveralParts) {
  const Format format = Format::rows(128, 64);
  EXPECT_EQ(format.rowBytes(576), 656);
  EXPECT_EQ(format.restByte(576), 528);
  EXPECT_EQ(format.metaBytes(576), 0);
  EXPECT_TRUE(!format.isPlain() && !format.isInteger() && !format.hasMeta() && !format.hasLines() &&
              !format.hasSharedScale());
  std::vector<float> row = normalRow(576, "rows");
  for (size_t f = 128; f < 256; ++f)
    row[f] *= 1000;
  std::fill_n(row.begin() + 256, 128, 0.0F);
  row[512] = 1e30F;
  std::vector<uint8_t> codes(656);
  quantizeRow(format, row, nullptr, codes.data());
  std::array<float, 4> scales{};
  std::memcpy(scales.data(), codes.data() + 512, sizeof scales);
  for (size_t g = 0; g < 4; ++g) {
    float most = 0;
    for (size_t f = 128 * g; f < 128 * (g + 1); ++f)
      most = std::max(most, std::abs(row[f]));
    EXPECT_EQ(scales[g], std::max(most * (1 / 448.0F), std::numeric_limits<float>::min()));
  }
  std::vector<float> all(576), values(512);
  RowDecoder(format).decode(codes.data(), nullptr, all);
  RowDecoder(format).decode(codes.data(), nullptr, values);
  for (size_t f = 0; f < 576; ++f)
    EXPECT_NEAR(all[f], row[f],
                std::abs(row[f]) * (f < 512 ? 0x1p-4 : 0x1p-8) + (f < 512 ? scales[f / 128] / 512 : 0))
        << f;
  EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin()));
  EXPECT_EQ(format.faultOf(576), "");
  EXPECT_EQ(format.faultOf(512),
            "expected rows of 576 features, 512 of f8E4M3FN and a rest of 64, got 512; nearest legal: 576");
  EXPECT_EQ(Format::rows(64, 64).fault(),
            "expected rows of f8E4M3FN per 128 and a rest of 64 features, got per 64 and "
            "a rest of 64; nearest legal: per = 128, rest = 64");
  row = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  EXPECT_EQ(clampRow(format, row), 2);
  EXPECT_EQ(row[0], 0);
  EXPECT_EQ(row[1], static_cast<float>(elementType(DType::BF16).largest()));
}

TEST(Format, Faults) {
  EXPECT_EQ(Format::plain(DType::F32).fault(),
            "expected f16 or bf16, or quantized f8E4M3FN, f8E5M2, i8, i4 or i2, got f32");
  EXPECT_EQ(Format::floats(DType::BF16, Scales::Head).fault(),
            "expected f16 or bf16, or quantized f8E4M3FN, f8E5M2, i8, i4 or i2, got bf16 per head; nearest "
            "legal: bf16");
  EXPECT_EQ(Format::plain(DType::F8E5M2).fault(),
            "expected f8e5m2 values per tensor, head or token, got no scales; nearest legal: per = token");
  EXPECT_EQ(Format::integers(3, 64).fault(),
            "expected quantized integers of 8, 4 or 2 bits, got 3; nearest legal: i4");
  EXPECT_EQ((Format{DType::U8, 4, Scales::Head, 0}).fault(),
            "expected quantized integers per a number of features, got per head; nearest legal: per = 128");
  EXPECT_EQ(Format::integers(4, 64).faultOf(128), "");
  EXPECT_EQ(Format::integers(8, 80).faultOf(80), "");
  EXPECT_EQ(
      Format::integers(4, 64).faultOf(80),
      "expected a dim of whole 16 bytes, a multiple of 32 elements of i4, got 80; nearest legal: 64 or 96");
  EXPECT_EQ(
      Format::integers(4, 64).faultOf(96),
      "expected a group of 16, 32, 64 or 128 features that divides the dim of 96, or all of it, got 64; "
      "nearest legal: 96");
  EXPECT_EQ(
      Format::integers(8, 20).faultOf(80),
      "expected a group of 16, 32, 64 or 128 features that divides the dim of 80, or all of it, got 20; "
      "nearest legal: 16");
}

/// Checks the numbers that OCP's Microscaling Formats v1.0 lists.
TEST(Format, Blocks) {
  const Format mxfp4 = Format::blocksOf(DType::U8, 32, Format::Blocks::E8M0),
               mxfp8 = Format::blocksOf(DType::F8E4M3FN, 32, Format::Blocks::E8M0);
  EXPECT_EQ(mxfp4.metaBytes(128), 4);
  EXPECT_EQ(mxfp4.metaBytes(160), 8);
  EXPECT_EQ(mxfp4.rowBytes(64), 32);
  EXPECT_EQ(mxfp8.faultOf(80),
            "expected a dim of whole blocks, a multiple of 32, got 80; nearest legal: 64 or 96");
  const float ofE2M1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<uint8_t> codes(16), meta = {127, 0, 0, 0};
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(i | (i ^ 8) << 4);
  std::vector<float> row(32);
  for (const int power : {-126, -3, 0, 5}) {
    meta[0] = static_cast<uint8_t>(127 + power);
    RowDecoder(mxfp4).decode(codes.data(), meta.data(), row);
    for (size_t i = 0; i < 16; ++i) {
      const float wanted = std::ldexp(i < 8 ? ofE2M1[i] : -ofE2M1[i - 8], power);
      EXPECT_EQ(row[2 * i], wanted);
      EXPECT_EQ(row[2 * i + 1], -wanted);
    }
  }
  meta[0] = 255;
  RowDecoder(mxfp4).decode(codes.data(), meta.data(), row);
  EXPECT_TRUE(std::isnan(row[0]));
  // A block's scale is the power of two that gives its largest number the exponent of the largest value.
  std::vector<float> numbers(64);
  numbers[3] = 5, numbers[40] = -0.01F;
  std::vector<uint8_t> found(4), written(32);
  findMeta(mxfp4, numbers, found.data());
  EXPECT_EQ(found, (std::vector<uint8_t>{127, 127 - 9, 0, 0})); // 5 = 1.25 * 2^2, 0.01 = 1.28 * 2^-7
  quantizeRow(mxfp4, numbers, found.data(), written.data());
  EXPECT_EQ(written[1] >> 4, 6);      // 5 is between 4 and 6, and is rounded to the even one
  EXPECT_EQ(written[20] & 15, 8 | 7); // -5.12 is nearer to 6
  for (const Format &format : {mxfp4, mxfp8, Format::blocksOf(DType::F8E5M2, 32, Format::Blocks::E8M0)}) {
    const std::vector<float> back = thereAndBack(format, numbers);
    EXPECT_EQ(thereAndBack(format, back), back) << format.text();
  }
}

/// NVFP4: the scale of a block, which the tensor's scale multiplies.
TEST(Format, BlocksBesideATensorsScale) {
  const Format nvfp4 = Format::blocksOf(DType::U8, 16, Format::Blocks::E4M3);
  EXPECT_EQ(nvfp4.text(), "f4e2m1fn per 16 by f8e4m3fn");
  EXPECT_EQ(Format::parse(nvfp4.text()), nvfp4);
  EXPECT_EQ(
      Format::blocksOf(DType::U8, 32, Format::Blocks::E4M3).fault(),
      "expected blocks of f8e4m3fn per 32 by f8e8m0fnu, f8e5m2 per 32 by f8e8m0fnu, f4e2m1fn per 32 by "
      "f8e8m0fnu or f4e2m1fn per 16 by f8e4m3fn, got f4e2m1fn per 32 by f8e4m3fn; nearest legal: f4e2m1fn "
      "per 16 by f8e4m3fn");
  EXPECT_TRUE(nvfp4.hasLines() && nvfp4.hasSharedScale());
  EXPECT_EQ(nvfp4.metaBytes(64), 4);
  EXPECT_EQ(nvfp4.metaBytes(96), 8);
  std::vector<float> numbers(32);
  numbers[3] = -4.5F, numbers[4] = 0.7F; // the second block is zeros
  std::vector<uint8_t> meta(4), codes(16);
  const float scale = 0.25F;
  findMeta(nvfp4, numbers, meta.data(), scale);
  EXPECT_EQ(meta, (std::vector<uint8_t>{0x44, 1, 0, 0})); // 4.5 / 6 / 0.25 = 3; the smallest above 0
  quantizeRow(nvfp4, numbers, meta.data(), codes.data(), scale);
  EXPECT_EQ(codes[1] >> 4, 8 | 7); // -6
  EXPECT_EQ(codes[2] & 15, 2);     // 0.7 / 0.75 is nearest to 1
  std::vector<float> row(32);
  RowDecoder(nvfp4).decode(codes.data(), meta.data(), row, scale);
  EXPECT_EQ(row[3], -4.5F);
  EXPECT_EQ(row[4], 0.75F);
  EXPECT_EQ(row[20], 0);
  meta[0] |= 0x80; // a sign is not read
  RowDecoder(nvfp4).decode(codes.data(), meta.data(), row, scale);
  EXPECT_EQ(row[4], 0.75F);
  meta[0] = 0x7f;
  RowDecoder(nvfp4).decode(codes.data(), meta.data(), row, scale);
  EXPECT_TRUE(std::isnan(row[3]));
}

TEST(Format, DefaultGroups) {
  EXPECT_EQ(Format::defaultGroup(64), 64);
  EXPECT_EQ(Format::defaultGroup(128), 128);
  EXPECT_EQ(Format::defaultGroup(192), 192);
  EXPECT_EQ(Format::defaultGroup(256), 128);
}

TEST(Format, Bytes) {
  const Format codes = Format::integers(4, 32);
  EXPECT_EQ(codes.rowBytes(128), 64);
  EXPECT_EQ(codes.rowCodes(128), 64);
  EXPECT_EQ(codes.codesPerChunk(), 32);
  EXPECT_EQ(codes.metaBytes(128), 16);
  EXPECT_EQ(e4m3PerHead.codesPerChunk(), 16);
  EXPECT_EQ(e4m3PerHead.metaBytes(128), 4);
  EXPECT_EQ(Format::plain(DType::BF16).metaBytes(128), 0);
}

// After quantizing and dequantizing, a number is off by at most half a step of its exponent, or of the
// smallest.
TEST(Format, RowsOfFloats) {
  std::vector<float> row = normalRow(512, "rows"), back(512);
  row[7] = 0, row[9] = 5;
  const float scale = e4m3PerHead.scaleFor(5);
  EXPECT_FLOAT_EQ(scale, 5.0F / 448);
  const auto *meta = reinterpret_cast<const uint8_t *>(&scale);
  std::vector<uint8_t> codes(row.size());
  quantizeRow(e4m3PerHead, row, meta, codes.data());
  RowDecoder(e4m3PerHead).decode(codes.data(), meta, back);
  for (size_t i = 0; i < row.size(); ++i)
    EXPECT_LE(std::abs(row[i] - back[i]), std::max(std::abs(row[i]) / 16, scale * 0x1p-10F) * 1.0001F)
        << row[i];
  EXPECT_EQ(back[7], 0);
  EXPECT_EQ(codes[9], 0x7e);
  row[0] = 1e9F; // more than the scale can represent
  quantizeRow(e4m3PerHead, row, meta, codes.data());
  EXPECT_EQ(codes[0], 0x7e);
  EXPECT_EQ(e4m3PerHead.scaleFor(0), 1);
}

TEST(Format, RowsOfFloatsPerToken) {
  for (const DType type : {DType::F8E4M3FN, DType::F8E5M2}) {
    const Format format = Format::floats(type, Scales::Token);
    std::vector<float> row = normalRow(128, "token");
    row[5] = -7;
    const std::vector<float> back = thereAndBack(format, row);
    const float step = type == DType::F8E5M2 ? 8 : 16;
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_LE(std::abs(row[i] - back[i]), std::max(std::abs(row[i]) / step, 1e-4F) * 1.0001F);
    EXPECT_FLOAT_EQ(back[5], -7); // the largest number is exact
    EXPECT_EQ(thereAndBack(format, std::vector<float>(64, 0)), std::vector<float>(64, 0));
    EXPECT_EQ(thereAndBack(format, std::vector<float>(64, 1e-44F)), std::vector<float>(64, 0));
    const float largest = std::numeric_limits<float>::max();
    EXPECT_NEAR(thereAndBack(format, std::vector<float>(64, largest))[3] / largest, 1, 1e-6);
  }
}

// Numbers are off by at most half a step of the group's scale, plus the rounding of scale and zero point to
// f16.
TEST(Format, RowsOfIntegers) {
  for (const int bits : {8, 4, 2})
    for (const int64_t group : {16, 32, 128}) {
      const Format format = Format::integers(bits, group);
      std::vector<float> row = normalRow(128, "integers");
      for (size_t i = 0; i < 16; ++i)
        row[i] *= 50; // a group of another range
      const std::vector<float> back = thereAndBack(format, row);
      for (size_t g = 0; g < 128; g += static_cast<size_t>(group)) {
        const auto [low, high] =
            std::minmax_element(row.begin() + static_cast<long>(g),
                                row.begin() + static_cast<long>(g + static_cast<size_t>(group)));
        const float step = (*high - *low) / static_cast<float>(format.levels());
        for (size_t i = g; i < g + static_cast<size_t>(group); ++i)
          EXPECT_LE(std::abs(row[i] - back[i]), step / 2 + (*high - *low + std::abs(*low)) * 0x1p-10F);
      }
    }
}

TEST(Format, PackedCodes) {
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<float>(i % 16);
  const Format format = Format::integers(4, 64);
  uint8_t meta[4], codes[32];
  findMeta(format, row, meta);
  EXPECT_EQ(std::vector<uint8_t>(meta, meta + 4), (std::vector<uint8_t>{0x00, 0x3c, 0, 0})); // 1 and 0
  quantizeRow(format, row, meta, codes);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_EQ(codes[i], (2 * i % 16) | (2 * i + 1) % 16 << 4);
  row[1] = 2.5F, row[2] = 3.5F; // ties go to even
  quantizeRow(format, row, meta, codes);
  EXPECT_EQ(codes[0] >> 4, 2);
  EXPECT_EQ(codes[1] & 15, 4);
}

// A constant group is exact, by its zero point, whatever its size; so is one whose scale f16 cannot hold.
TEST(Format, ConstantRows) {
  for (const int bits : {8, 4, 2})
    for (const float x : {0.0F, 1.5F, -3.25F, 65280.0F, -65280.0F, 0x1p-24F}) {
      const std::vector<float> row(64, x);
      EXPECT_EQ(thereAndBack(Format::integers(bits, 64), row), row) << x;
    }
}

TEST(Format, ExtremeRows) {
  std::vector<float> row(64);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = i % 2 ? 65280.0F : -65280.0F;
  for (const int bits : {8, 4, 2}) {
    const std::vector<float> back = thereAndBack(Format::integers(bits, 64), row);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(back[i] / row[i], 1, 2e-3);
  }
}

TEST(Format, ClampedRows) {
  const float infinite = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  const std::vector<float> row = {1, NAN, infinite, -infinite, 1e30F, -7e4F};
  std::vector<float> integers = row, floats = row;
  EXPECT_EQ(clampRow(Format::integers(8, 16), integers), 3);
  EXPECT_EQ(integers, (std::vector<float>{1, 0, 65280, -65280, 65280, -65280}));
  EXPECT_EQ(clampRow(e4m3PerHead, floats), 3);
  EXPECT_EQ(floats, (std::vector<float>{1, 0, largest, -largest, 1e30F, -7e4F}));
}

TEST(Format, PlainRowsAreTheNumbers) {
  const std::vector<float> row = {1, -0.5F, 3e4F, 0};
  for (DType dtype : {DType::F16, DType::BF16}) {
    const std::vector<float> back = thereAndBack(Format::plain(dtype), row);
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(back[i], row[i], std::abs(row[i]) / 256);
  }
}

} // namespace

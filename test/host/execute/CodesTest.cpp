//===- CodesTest.cpp - Quantized right operands, as an MMA reads them -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn_rt/tensor/ElementType.h"
#include <gtest/gtest.h>
#include <random>

using namespace attn;
using namespace attn::rt::host;

namespace {

struct Case {
  std::string codes; ///< "i4"
  int bits;
  int features;
  bool values; ///< contracts over tokens, else over features
  std::string multiplied = "f16";
  int metaGroups = 0; ///< for values: groups of features with a factor and a term for each token
};

void PrintTo(const Case &c, std::ostream *out) {
  *out << c.codes << " x " << c.features << (c.values ? " values " : " keys ") << c.multiplied << " "
       << c.metaGroups;
}

constexpr int tokens = 32, rows = 16;

class Codes : public testing::TestWithParam<Case> {
protected:
  const Case &c = GetParam();
  const rt::ElementType &multiplied =
      *[this] { return &rt::elementType(c.multiplied == "f16" ? rt::DType::F16 : rt::DType::BF16); }();
  std::mt19937 random{7};

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
  /// The number of a quantized value.
  double number(unsigned code) const {
    if (c.codes == "f8E4M3FN")
      return rt::fromFloatBits(static_cast<uint16_t>(code), rt::elementType(rt::DType::F8E4M3FN));
    if (c.codes == "f8E5M2")
      return rt::fromFloatBits(static_cast<uint16_t>(code), rt::elementType(rt::DType::F8E5M2));
    return code;
  }
  unsigned code() {
    if (c.codes[0] == 'i')
      return integer(0, (1 << c.bits) - 1);
    // Numbers of like magnitude, so that sums are exact: exponents from -2 to 1, of either sign.
    bool e4m3 = c.codes == "f8E4M3FN";
    return integer(0, 1) << 7 | (e4m3 ? integer(5 << 3, (9 << 3) - 1) : integer(13 << 2, (17 << 2) - 1));
  }
  std::string kernel() const;
};

void replace(std::string &text, const std::string &what, const std::string &by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// lhs: queries, or weights of tokens.
constexpr const char *text = R"(
!lhs = !tile.shared<query 16, DEPTH, FLOAT>
!codes = !tile.shared<key 32, feature DIM, CODES>
!meta = !tile.shared<key 32, feature META, FLOAT>
!column = !tile.fragment<[key 32], FLOAT>
!result = !tile.fragment<[query 16, WIDTH], f32>
gpu.module @kernels {
  func.func @product(%lhs: !tile.buffer<FLOAT>, %codes: !tile.buffer<CODES>, %metas: !tile.buffer<FLOAT>, %out: !tile.buffer<f32>)
      attributes {tile.threads = 32 : i32} {
    %c0 = arith.constant 0 : i32
    %c16 = arith.constant 16 : i32
    %c32 = arith.constant 32 : i32
    %origin = arith.constant 0 : i64
    %width = arith.constant COLUMNS : i64
    %zero = arith.constant 0.0 : f32
    %l = tile.alloc : !lhs
    %r = tile.alloc : !codes
    %m = tile.alloc : !meta
    tile.gather warp %c0 to %c16 from %lhs origins %origin strides [CONTRACTED] into %l (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<FLOAT> -> !lhs
    tile.gather warp %c0 to %c32 from %codes origins %origin strides [DIM] into %r (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<CODES> -> !codes
    tile.gather warp %c0 to %c32 from %metas origins %origin strides [META] into %m (%line: i32) {
      tile.yield %line : i32
    } : !tile.buffer<FLOAT> -> !meta
    tile.commit
    tile.wait 0
    tile.sync warp
    %nothing = tile.splat %zero : f32 -> !result
    %left = tile.load %l at %c0 : !lhs -> !tile.fragment<[query 16, DEPTH], FLOAT>
    %loaded = tile.load_rhs %r PER: !codes -> !tile.fragment<[WIDTH, DEPTH], CODES>
    COLUMNS_OF_META
    %right = tile.widen %loaded SCALED -> !tile.fragment<[WIDTH, DEPTH], FLOAT>
    %product = tile.mma %left, %right, %nothing : !tile.fragment<[query 16, DEPTH], FLOAT>, !tile.fragment<[WIDTH, DEPTH], FLOAT>, !result -> !result
    tile.store %product to %out lines %c16 (%line: i32) {
      %wide = arith.extsi %line : i32 to i64
      %index = arith.muli %wide, %width : i64
      tile.yield %index : i64
    } : !result -> !tile.buffer<f32>
    return
  }
}
)";

std::string Codes::kernel() const {
  std::string result = text, dim = std::to_string(c.features), names, scales, zeros, types;
  int groups = std::max(c.metaGroups, 1);
  for (int i = 0; i < groups; ++i) {
    std::string number = std::to_string(i), comma = i ? ", " : "";
    names += comma + "%s" + number + ", %z" + number;
    scales += comma + "%s" + number, zeros += comma + "%z" + number;
    types += comma + "!column";
  }
  std::string columns = names + " = tile.load_columns %m : !meta -> " + types + ", " + types;
  std::string source = ": !tile.fragment<[WIDTH, DEPTH], CODES>";
  bool meta = c.metaGroups > 0;
  replace(result, "COLUMNS_OF_META", meta ? columns : "");
  replace(result, "SCALED",
          meta ? "times " + scales + " plus " + zeros + " " + source + " times " + types + " plus " + types
               : source);
  replace(result, "PER", meta && groups > 1 ? "per " + std::to_string(c.features / groups) + " " : "");
  replace(result, "WIDTH", c.values ? "feature " + dim : "key 32");
  replace(result, "DEPTH", c.values ? "key 32" : "feature " + dim);
  replace(result, "COLUMNS", c.values ? dim : "32");
  replace(result, "CONTRACTED", c.values ? "32" : dim);
  replace(result, "DIM", dim);
  replace(result, "META", std::to_string(2 * groups));
  replace(result, "CODES", c.codes);
  replace(result, "FLOAT", c.multiplied);
  return result;
}

TEST_P(Codes, Product) {
  auto program = test::Program::fromTileText(kernel());
  ASSERT_TRUE(program);
  const int dim = c.features, depth = c.values ? tokens : dim, width = c.values ? dim : tokens;
  const int groups = std::max(c.metaGroups, 1);
  std::vector<double> left(rows * depth), right(tokens * dim);
  std::vector<uint8_t> stored(tokens * dim * c.bits / 8);
  std::vector<uint16_t> lhs(rows * depth), meta(tokens * groups * 2);
  for (size_t i = 0; i < left.size(); ++i)
    lhs[i] = rt::toFloatBits(left[i] = integer(-2, 2), multiplied);
  // Factors are powers of two and terms are integers, so that q * factor + term is exact.
  for (size_t i = 0; i < meta.size(); ++i)
    meta[i] = rt::toFloatBits(i % 2 ? integer(-1, 1) : c.bits == 8 ? 1 : 1 << integer(0, 1), multiplied);
  for (int t = 0; t < tokens; ++t)
    for (int f = 0; f < dim; ++f) {
      unsigned bits = code();
      if (c.metaGroups && c.bits == 8 && c.codes[0] == 'i')
        bits = std::clamp(bits, 1u, 254u); // so that bf16 holds values one larger or smaller
      const size_t at = t * dim + f, perByte = 8 / c.bits;
      stored[at / perByte] |= bits << (at % perByte * c.bits);
      double x = number(bits);
      if (c.metaGroups) {
        const uint16_t *pair = &meta[(t * groups + f / (dim / groups)) * 2];
        x = x * rt::fromFloatBits(pair[0], multiplied) + rt::fromFloatBits(pair[1], multiplied);
      }
      right[at] = x;
    }
  test::Launcher launcher;
  auto *out = launcher.output<float>("out", rows * width);
  Report report = launcher.run(program->kernel("product"), {1}, {32}, 65536, launcher.upload("lhs", lhs),
                               launcher.upload("codes", stored), launcher.upload("meta", meta), out);
  ASSERT_TRUE(report.clean()) << report.describe();
  for (int r = 0; r < rows; ++r)
    for (int n = 0; n < width; ++n) {
      double sum = 0;
      for (int k = 0; k < depth; ++k)
        sum += left[r * depth + k] * (c.values ? right[k * dim + n] : right[n * dim + k]);
      ASSERT_EQ(out[r * width + n], sum) << "row " << r << " column " << n;
    }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::pair<std::string, int> types[] = {
      {"i8", 8}, {"i4", 4}, {"i2", 2}, {"f8E4M3FN", 8}, {"f8E5M2", 8}};
  for (auto [type, bits] : types)
    for (int features : {128, 64, 256, 96})
      for (bool values : {false, true})
        for (const char *multiplied : {"f16", "bf16"}) {
          if (features * bits % 256 != 0 && features * bits != 128)
            continue; // copies do not support such a line
          all.push_back({type, bits, features, values, multiplied});
          for (int groups : {1, 2, 4})
            if (values && type[0] == 'i' && features / groups % 16 == 0)
              all.push_back({type, bits, features, values, multiplied, groups});
        }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Codes, testing::ValuesIn(cases()));

} // namespace

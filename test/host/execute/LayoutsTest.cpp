//===- LayoutsTest.cpp - Tile-level kernels whose layouts are inferred ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn/Support/Chip.h"
#include "attn/Target/GpuCode.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace attn;
using namespace attn::rt::host;

namespace {

float widen(uint16_t h) {
  uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

uint16_t round(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

class Layouts : public testing::TestWithParam<bool> {
protected:
  void SetUp() override {
    static std::map<bool, std::unique_ptr<test::Program>> programs;
    if (!programs[GetParam()])
      programs[GetParam()] = test::Program::fromTileFile("layouts.mlir", GetParam());
    program = programs[GetParam()].get();
  }
  template <class... Args> void run(const char *name, Args... args) {
    Report report = launcher.run(program->kernel(name), {1}, {32}, 16384, args...);
    EXPECT_TRUE(report.clean()) << report.describe();
  }
  /// Small integers: sums of their products are exact in any order.
  template <class T> std::vector<T> integers(size_t n, int limit) {
    std::vector<T> values(n);
    for (T &x : values)
      x = static_cast<T>(std::uniform_int_distribution<int>(-limit, limit)(random));
    return values;
  }
  std::vector<uint16_t> rounded(const std::vector<float> &values) {
    std::vector<uint16_t> result(values.size());
    std::transform(values.begin(), values.end(), result.begin(), round);
    return result;
  }
  /// Tests a tile as a left operand, in all forms that the kernel of this name gives it.
  template <class T>
  void forms(const char *name, const std::vector<T> &in, int rows, int cols, float (*value)(T));

  test::Program *program = nullptr; ///< compiled once for all tests
  test::Launcher launcher;
  std::mt19937 random{5};
};
INSTANTIATE_TEST_SUITE_P(Modes, Layouts, testing::Bool(),
                         [](const auto &info) { return info.param ? "check" : "fast"; });

// An axis is a row in one value and a column in another, as backward passes need.
TEST_P(Layouts, scoresAndTheirTranspose) {
  constexpr int queries = 16, keys = 32, features = 16;
  std::vector<float> Q = integers<float>(queries * features, 2), K = integers<float>(keys * features, 2);
  std::vector<float> bias = integers<float>(queries, 5), scale = integers<float>(keys, 3);
  for (float &x : scale)
    x *= 0.5f;
  auto *p = launcher.output<float>("p", queries * keys), *pt = launcher.output<float>("pt", queries * keys),
       *pp = launcher.output<float>("pp", queries * keys),
       *dk = launcher.output<float>("dk", keys * features);
  run("both", launcher.upload("q", rounded(Q)), launcher.upload("k", rounded(K)),
      launcher.upload("bias", bias), launcher.upload("scale", scale), p, pt, pp, dk);

  std::vector<float> P(queries * keys);
  for (int i = 0; i < queries; ++i) {
    std::vector<float> s(keys);
    for (int j = 0; j < keys; ++j)
      for (int f = 0; f < features; ++f)
        s[j] += Q[features * i + f] * K[features * j + f];
    float max = *std::max_element(s.begin(), s.end());
    for (int j = 0; j < keys; ++j)
      P[keys * i + j] = (s[j] - max) * scale[j] + bias[i];
  }
  for (int i = 0; i < queries; ++i)
    for (int j = 0; j < keys; ++j) {
      EXPECT_EQ(p[keys * i + j], P[keys * i + j]) << "query " << i << " key " << j;
      EXPECT_EQ(pt[queries * j + i], P[keys * i + j]) << "query " << i << " key " << j;
      EXPECT_EQ(pp[queries * j + i], P[keys * i + j]) << "query " << i << " key " << j;
    }
  for (int j = 0; j < keys; ++j)
    for (int f = 0; f < features; ++f) {
      float sum = 0;
      for (int i = 0; i < queries; ++i)
        sum += widen(round(P[keys * i + j])) * Q[features * i + f];
      EXPECT_EQ(dk[features * j + f], sum) << "key " << j << " feature " << f;
    }
}

TEST_P(Layouts, reductionsAlongBothAxes) {
  constexpr int rows = 16, cols = 32;
  std::vector<float> in = integers<float>(rows * cols, 1000);
  auto *rowSum = launcher.output<float>("row_sum", rows), *rowMax = launcher.output<float>("row_max", rows),
       *colSum = launcher.output<float>("col_sum", cols), *colMax = launcher.output<float>("col_max", cols),
       *shares = launcher.output<float>("shares", cols);
  run("reductions", launcher.upload("in", in), rowSum, rowMax, colSum, colMax, shares);
  for (int i = 0; i < rows; ++i) {
    float sum = 0, max = in[cols * i];
    for (int j = 0; j < cols; ++j)
      sum += in[cols * i + j], max = std::max(max, in[cols * i + j]);
    EXPECT_EQ(rowSum[i], sum) << "row " << i;
    EXPECT_EQ(rowMax[i], max) << "row " << i;
  }
  for (int j = 0; j < cols; ++j) {
    float sum = 0, max = in[j];
    for (int i = 0; i < rows; ++i)
      sum += in[cols * i + j], max = std::max(max, in[cols * i + j]);
    EXPECT_EQ(colSum[j], sum) << "column " << j;
    EXPECT_EQ(colMax[j], max) << "column " << j;
    EXPECT_EQ(shares[j], sum) << "column " << j;
  }
}

template <class T>
void Layouts::forms(const char *name, const std::vector<T> &in, int rows, int cols, float (*value)(T)) {
  auto output = [&](const char *label) { return launcher.output<float>(label, in.size()); };
  auto *acc = output("acc"), *back = output("back"), *turned = output("turned"),
       *lhs = output("lhs_transposed");
  run(name, launcher.upload("in", in), acc, back, turned, lhs);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      float expected = value(in[cols * i + j]);
      EXPECT_EQ(acc[cols * i + j], expected) << "row " << i << " column " << j;
      EXPECT_EQ(back[cols * i + j], expected) << "row " << i << " column " << j;
      EXPECT_EQ(turned[rows * j + i], expected) << "row " << i << " column " << j;
      EXPECT_EQ(lhs[rows * j + i], expected) << "row " << i << " column " << j;
    }
}

TEST_P(Layouts, leftOperandsOf8Bits) {
  forms<int8_t>("bytes", integers<int8_t>(32 * 64, 127), 32, 64, [](int8_t x) { return float(x); });
}
TEST_P(Layouts, leftOperandsOf16Bits) {
  forms<uint16_t>("halves", rounded(integers<float>(32 * 48, 255)), 32, 48, widen);
}
TEST_P(Layouts, leftOperandsOf32Bits) {
  forms<float>("words", integers<float>(32 * 48, 100000), 32, 48, [](float x) { return x; });
}

TEST_P(Layouts, vectorsAlongBothAxes) {
  constexpr int n = 32;
  std::vector<int8_t> bytes = integers<int8_t>(n, 127);
  std::vector<int32_t> words = integers<int32_t>(n, 1 << 20);
  std::vector<uint16_t> halves(n);
  std::vector<float> values = integers<float>(n, 7);
  for (int i = 0; i < n; ++i) {
    _Float16 half = static_cast<_Float16>(values[i]);
    std::memcpy(&halves[i], &half, 2);
  }
  auto *out = launcher.output<float>("out", n * n), *turned = launcher.output<float>("turned", n * n);
  run("vectors", launcher.upload("bytes", bytes), launcher.upload("halves", halves),
      launcher.upload("words", words), out, turned);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      float expected = bytes[j] * values[j] + float(words[i]);
      EXPECT_EQ(out[n * i + j], expected) << "row " << i << " column " << j;
      EXPECT_EQ(turned[n * j + i], expected) << "row " << i << " column " << j;
    }
}

// movmatrix came with PTX 7.8, which the oldest chip needs for nothing else.
TEST_P(Layouts, movmatrixInPTX) {
  auto kernels = *program->module->getOps<mlir::gpu::GPUModuleOp>().begin();
  auto code = mlir::attn::emitGpuCode(kernels, *mlir::attn::findChip("sm_80"), /*assembles=*/true);
  ASSERT_TRUE(mlir::succeeded(code));
  EXPECT_EQ(code->refusal, "");
  std::string ptx = code->ptx();
  EXPECT_NE(ptx.find(".version 7.8\n"), std::string::npos);
  EXPECT_EQ(ptx.find(".version", ptx.find(".version") + 1), std::string::npos);
  EXPECT_NE(ptx.find("movmatrix.sync.aligned.m8n8.trans.b16"), std::string::npos);
}

} // namespace

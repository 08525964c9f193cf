//===- NumericsTest.cpp - Operations against plain loops ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace attn;
using namespace attn::rt::host;

namespace {

float bfloat(uint16_t h) {
  uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
float half(uint16_t h) {
  _Float16 f;
  std::memcpy(&f, &h, 2);
  return float(f);
}
template <class T> uint32_t bitsOf(T value) {
  uint32_t u = 0;
  std::memcpy(&u, &value, sizeof value);
  return u;
}

class Numerics : public testing::TestWithParam<bool> {
protected:
  void SetUp() override { program = test::Program::fromFile("numerics.mlir", GetParam()); }
  template <class... Args> void run(const char *name, Args... args) {
    Report report = launcher.run(program->kernel(name), {1}, {32}, 4096, args...);
    EXPECT_TRUE(report.clean()) << report.describe();
  }
  std::unique_ptr<test::Program> program;
  test::Launcher launcher;
  std::mt19937 random{7};
};
INSTANTIATE_TEST_SUITE_P(Modes, Numerics, testing::Bool(),
                         [](const auto &info) { return info.param ? "check" : "fast"; });

void mmaCase(test::Launcher &launcher, const HostKernel &kernel, std::mt19937 &random,
             float (*widen)(uint16_t), uint16_t mask) {
  std::vector<uint16_t> A(16 * 16), B(16 * 8);
  std::vector<float> C(16 * 8);
  for (auto &x : A)
    x = static_cast<uint16_t>(random()) & mask;
  for (auto &x : B)
    x = static_cast<uint16_t>(random()) & mask;
  for (auto &x : C)
    x = std::uniform_real_distribution<float>(-4, 4)(random);
  std::vector<uint32_t> a(128), b(64);
  std::vector<float> c(128);
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane / 4, q = lane % 4;
    for (int r = 0; r < 4; ++r) {
      int row = g + 8 * (r & 1), k = 2 * q + 8 * (r >> 1);
      a[4 * lane + r] = A[16 * row + k] | uint32_t(A[16 * row + k + 1]) << 16;
      c[4 * lane + r] = C[8 * (g + 8 * (r >> 1)) + 2 * q + (r & 1)];
    }
    for (int r = 0; r < 2; ++r) {
      int k = 2 * q + 8 * r;
      b[2 * lane + r] = B[8 * k + g] | uint32_t(B[8 * (k + 1) + g]) << 16;
    }
  }
  auto *pa = launcher.upload("a", a), *pb = launcher.upload("b", b);
  auto *pc = launcher.upload("c", c), *d = launcher.output<float>("d", 128),
       *e = launcher.output<float>("e", 128);
  Report report = launcher.run(kernel, {1}, {32}, 0, pa, pb, pc, d, e);
  ASSERT_TRUE(report.clean()) << report.describe();
  EXPECT_EQ(report.counters.flops, 2u * 4096);
  for (int row = 0; row < 16; ++row)
    for (int col = 0; col < 8; ++col) {
      float first = C[8 * row + col], second;
      for (int k = 0; k < 16; ++k)
        first += widen(A[16 * row + k]) * widen(B[8 * k + col]);
      second = first;
      for (int k = 0; k < 16; ++k)
        second += widen(A[16 * row + k]) * widen(B[8 * k + col]);
      int lane = 4 * (row % 8) + col / 2, i = 2 * (row / 8) + col % 2;
      EXPECT_EQ(d[4 * lane + i], first) << row << "," << col;
      EXPECT_EQ(e[4 * lane + i], second) << row << "," << col;
    }
}

TEST_P(Numerics, mmaF16) {
  // Without the top exponent bits: finite, some of them subnormal.
  for (uint16_t mask : {0xbfff, 0x87ff, 0x83ff})
    mmaCase(launcher, program->kernel("mma_f16"), random, half, mask);
}
TEST_P(Numerics, mmaBF16) { mmaCase(launcher, program->kernel("mma_bf16"), random, bfloat, 0xbfff); }

TEST_P(Numerics, ldmatrix) {
  std::vector<uint16_t> data(256);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<uint16_t>(1000 + i);
  auto *in = launcher.upload("in", data);
  for (int n : {1, 2, 4})
    for (bool transposed : {false, true}) {
      std::string name = "ldmatrix_x" + std::to_string(n) + (transposed ? "_trans" : "");
      auto *out = launcher.output<uint32_t>("out", 32u * n);
      run(name.c_str(), in, out);
      for (int lane = 0; lane < 32; ++lane)
        for (int j = 0; j < n; ++j)
          for (int h = 0; h < 2; ++h) {
            int g = lane / 4, c = 2 * (lane % 4) + h;
            int element = transposed ? 64 * j + 8 * c + g : 64 * j + 8 * g + c;
            EXPECT_EQ(out[n * lane + j] >> (16 * h) & 0xffff, data[element]) << name << " lane " << lane;
          }
    }
}

TEST_P(Numerics, stmatrixUndoesLdmatrix) {
  std::vector<uint32_t> fragments(128);
  for (size_t i = 0; i < fragments.size(); ++i)
    fragments[i] = static_cast<uint32_t>(2 * i + (2 * i + 1) * 65536);
  auto *in = launcher.upload("in", fragments);
  for (bool transposed : {false, true}) {
    auto *out = launcher.output<uint16_t>("out", 256);
    run(transposed ? "stmatrix_x4_trans" : "stmatrix_x4", in, out);
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < 4; ++j)
        for (int h = 0; h < 2; ++h) {
          int g = lane / 4, c = 2 * (lane % 4) + h;
          int element = transposed ? 64 * j + 8 * c + g : 64 * j + 8 * g + c;
          EXPECT_EQ(out[element], fragments[4 * lane + j] >> (16 * h) & 0xffff);
        }
  }
}

TEST_P(Numerics, movmatrixTransposes) {
  std::vector<uint16_t> matrix(64);
  for (size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = static_cast<uint16_t>(300 + i);
  auto *in = launcher.upload("in", matrix);
  auto *out = launcher.output<uint16_t>("out", 64);
  run("movmatrix", in, out);
  for (int row = 0; row < 8; ++row)
    for (int col = 0; col < 8; ++col)
      EXPECT_EQ(out[8 * row + col], matrix[8 * col + row]) << row << "," << col;
}

// A digit's fourth bit asks for the sign of the byte that the other bits select.
TEST_P(Numerics, permutesBytes) {
  std::vector<uint32_t> low(32), high(32), which(32);
  for (int i = 0; i < 32; ++i)
    low[i] = random(), high[i] = random(), which[i] = random();
  low[0] = 0x33221100, high[0] = 0x77665544, which[0] = 0x7052;
  low[1] = 0x00008000, high[1] = 0x7f000000, which[1] = 0xfd91;
  auto *a = launcher.upload("low", low), *b = launcher.upload("high", high),
       *w = launcher.upload("which", which);
  auto *out = launcher.output<uint32_t>("out", 32);
  run("permute", a, b, w, out);
  EXPECT_EQ(out[0], 0x77005522U);
  EXPECT_EQ(out[1], 0x0000ff80U);
  for (int i = 0; i < 32; ++i)
    for (int digit = 0; digit < 4; ++digit) {
      const uint32_t number = which[i] >> 4 * digit, word = number & 4 ? high[i] : low[i];
      const auto byte = static_cast<int8_t>(word >> 8 * (number & 3));
      const int expected = number & 8 ? byte < 0 ? 0xff : 0 : byte & 0xff;
      EXPECT_EQ(out[i] >> 8 * digit & 0xff, uint32_t(expected)) << i << "," << digit;
    }
}

TEST_P(Numerics, shuffles) {
  std::vector<uint32_t> values(32);
  for (uint32_t i = 0; i < 32; ++i)
    values[i] = 100 + i;
  auto *in = launcher.upload("in", values);
  for (int trial = 0; trial < 40; ++trial) {
    // Segments of 32, 16, 8 lanes; clamps as compilers use them, and odd ones.
    int b = random() % 32, segment = std::array{0, 16, 24}[random() % 3],
        clamp = trial % 2 ? 31 : random() % 32;
    int c = segment << 8 | clamp;
    for (std::string kind : {"bfly", "up", "down", "idx"}) {
      int clampHere = kind == "up" && trial % 4 == 1 ? 0 : clamp;
      c = segment << 8 | clampHere;
      auto *out = launcher.output<uint32_t>("out", 32), *valid = launcher.output<uint32_t>("valid", 32);
      run(("shfl_" + kind).c_str(), in, out, valid, b, c);
      for (int lane = 0; lane < 32; ++lane) {
        int high = (lane & segment) | (clampHere & ~segment & 31);
        int j = kind == "bfly"   ? lane ^ b
                : kind == "up"   ? lane - b
                : kind == "down" ? lane + b
                                 : (lane & segment) | (b & ~segment & 31);
        bool p = kind == "up" ? j >= high : j <= high;
        EXPECT_EQ(valid[lane], uint32_t(p)) << kind << " lane " << lane;
        EXPECT_EQ(out[lane], values[p ? j : lane]) << kind << " lane " << lane;
      }
    }
  }
}

TEST_P(Numerics, votes) {
  for (uint32_t bits : {0u, ~0u, 0x80000000u, 0x1234u}) {
    auto *out = launcher.output<uint32_t>("out", 32);
    auto vote = [&](const char *name) {
      run(name, out, bits);
      for (int i = 1; i < 32; ++i)
        EXPECT_EQ(out[i], out[0]);
      return out[0];
    };
    EXPECT_EQ(vote("vote_any"), uint32_t(bits != 0));
    EXPECT_EQ(vote("vote_all"), uint32_t(bits == ~0u));
    EXPECT_EQ(vote("vote_ballot"), bits);
    EXPECT_EQ(vote("vote_uni"), uint32_t(bits == 0 || bits == ~0u));
  }
}

TEST_P(Numerics, copiesFillWithZeros) {
  std::vector<uint8_t> data(512);
  for (auto &x : data)
    x = static_cast<uint8_t>(1 + random() % 255);
  auto *in = launcher.upload("in", data);
  for (int size : {4, 8, 16})
    for (int bytes = 0; bytes <= size; bytes += 2) {
      auto *out = launcher.output<uint8_t>("out", 512);
      run(("copy_" + std::to_string(size)).c_str(), in, out, bytes);
      for (int i = 0; i < 32 * size; ++i)
        EXPECT_EQ(out[i], i % size < bytes ? data[i] : 0);
    }
}

TEST_P(Numerics, approximationsFlushSubnormals) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {-infinity, infinity, 0.f,  -0.f,  1e-40f, -1e-40f, -127.f,
                          -126.f,    -149.f,   1.f,  2.f,   0.5f,   3.f,     1e38f,
                          3e38f,     1e-38f,   0.1f, -0.1f, 10.f,   127.f,   128.f};
  x.resize(32, 0.75f);
  auto *in = launcher.upload("in", x);
  auto *out = launcher.output<float>("out", 160);
  run("approximations", in, out);
  auto flush = [](float v) { return std::fabs(v) < 0x1p-126f ? std::copysign(0.f, v) : v; };
  for (int i = 0; i < 32; ++i) {
    float v = flush(x[i]);
    EXPECT_EQ(out[i], flush(std::exp2(v))) << v;
    if (v >= 0)
      EXPECT_EQ(out[32 + i], std::log2(v)) << v;
    EXPECT_EQ(bitsOf(out[64 + i]), bitsOf(flush(1 / v))) << v;
    if (v >= 0)
      EXPECT_EQ(out[96 + i], std::sqrt(v)) << v;
    // Within the instruction's error, and no more accurate than it: eleven bits.
    EXPECT_LE(std::abs(out[128 + i] - std::tanh(x[i])), std::abs(std::tanh(x[i])) * 0x1p-11f) << v;
    if (std::isnormal(x[i]))
      EXPECT_EQ(bitsOf(out[128 + i]) & 0x1fff, 0u) << v;
  }
  EXPECT_EQ(out[0], 0.f);        // ex2(-inf)
  EXPECT_EQ(out[34], -infinity); // lg2(0)
}

TEST_P(Numerics, conversionsRoundToNearestEven) {
  // Every 16-bit value, the midpoints between neighbours, and the values beside those.
  std::vector<float> x;
  for (uint32_t h = 0; h < 0x10000; h += 7)
    for (float base : {half(static_cast<uint16_t>(h)), bfloat(static_cast<uint16_t>(h))})
      for (int d : {-1, 0, 1}) {
        uint32_t u = bitsOf(base) + static_cast<uint32_t>(d) + (h % 3 ? 0x8000u : 0x1000u);
        float f;
        std::memcpy(&f, &u, 4);
        if (f == f)
          x.push_back(f);
      }
  x.resize(x.size() / 128 * 128);
  size_t n = x.size();
  auto *in = launcher.upload("in", x);
  auto *h = launcher.output<uint32_t>("h", n), *b = launcher.output<uint32_t>("b", n);
  auto *hx = launcher.output<float>("hx", n), *bx = launcher.output<float>("bx", n);
  Report report = launcher.run(program->kernel("convert"), {uint32_t(n / 128)}, {128}, 0, in, h, b, hx, bx);
  ASSERT_TRUE(report.clean()) << report.describe();
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(h[i], bitsOf(_Float16(x[i]))) << x[i];
    uint32_t u = bitsOf(x[i]), lower = u >> 16, rest = u & 0xffff;
    uint32_t expected = rest > 0x8000 || (rest == 0x8000 && (lower & 1)) ? lower + 1 : lower;
    ASSERT_EQ(b[i], expected) << x[i];
    ASSERT_EQ(bitsOf(hx[i]), bitsOf(half(static_cast<uint16_t>(h[i]))));
    ASSERT_EQ(bitsOf(bx[i]), expected << 16);
  }
}

TEST_P(Numerics, specialRegisters) {
  auto *out = launcher.output<uint32_t>("out", 3 * 2 * 2 * 4 * 3 * 5);
  Report report = launcher.run(program->kernel("registers"), {3, 2, 2}, {4, 3, 5}, 0, out);
  EXPECT_TRUE(report.clean()) << report.describe();
  for (uint32_t i = 0; i < 720; ++i)
    EXPECT_EQ(out[i], i % 60);
}

TEST_P(Numerics, floatAdditionsDoNotDependOnTheOrderOfBlocks) {
  uint32_t first = 0;
  for (unsigned threads : {1u, 2u, 5u})
    for (bool shuffle : {false, true}) {
      auto *out = launcher.upload("sum", std::vector<float>{0.f});
      launcher.options.threads = threads;
      launcher.options.shuffle = shuffle;
      Report report = launcher.run(program->kernel("add_everywhere"), {200}, {1}, 0, out);
      EXPECT_TRUE(report.clean()) << report.describe();
      if (!first)
        first = bitsOf(*out);
      EXPECT_EQ(bitsOf(*out), first);
    }
}

TEST(Launch, refusesWhatCannotRun) {
  auto program = test::Program::fromFile("numerics.mlir");
  test::Launcher launcher;
  auto *out = launcher.output<uint32_t>("out", 32);
  EXPECT_NE(launcher.run(program->kernel("registers"), {1}, {1025}, 0, out).error.find("1025 threads"),
            std::string::npos);
  EXPECT_NE(launcher.run(program->kernel("registers"), {0}, {32}, 0, out).error.find("empty grid"),
            std::string::npos);
  EXPECT_NE(launcher.run(program->kernel("registers"), {1}, {32}, 300000, out).error.find("300000 bytes"),
            std::string::npos);
}

} // namespace

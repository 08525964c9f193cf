//===- RunsTest.cpp - Matrix operations as programs of the warp -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include <gtest/gtest.h>
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

TEST(Runs, chainOfProductsIsExact) {
  std::mt19937 random(11);
  std::vector<uint16_t> tile(256);
  for (auto &x : tile)
    x = round(std::uniform_real_distribution<float>(-2, 2)(random));
  auto T = [&](int row, int col) { return widen(tile[16 * row + col]); };
  float S[16][8], O[16][8];
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      S[r][c] = 0;
      for (int k = 0; k < 16; ++k)
        S[r][c] += T(r, k) * T(k, c);
    }
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      O[r][c] = S[r][c];
      for (int k = 0; k < 16; ++k)
        O[r][c] += widen(round(0.5f * S[r][k % 8])) * T(k, 8 + c);
    }
  for (bool check : {true, false}) {
    auto program = test::Program::fromFile("runs.mlir", check);
    const HostKernel &kernel = program->kernel("chain");
    // The first product and all three loads are one program, the second product another.
    ASSERT_EQ(kernel.programs.size(), 2u);
    EXPECT_EQ(kernel.programs[0].steps.size(), 4u);
    EXPECT_EQ(kernel.programs[1].steps.size(), 1u);
    test::Launcher launcher;
    auto *in = launcher.upload("in", tile);
    auto *out = launcher.output<float>("out", 128), *sums = launcher.output<float>("sums", 32);
    Report report = launcher.run(kernel, {1}, {32}, 512, in, out, sums);
    ASSERT_TRUE(report.clean()) << report.describe();
    for (int lane = 0; lane < 32; ++lane) {
      int g = lane / 4, q = 2 * (lane % 4);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(out[4 * lane + i], O[g + 8 * (i / 2)][q + i % 2]);
      EXPECT_EQ(sums[lane], (S[g][q] + S[g][q + 1]) + (S[g + 8][q] + S[g + 8][q + 1]));
    }
  }
}

} // namespace

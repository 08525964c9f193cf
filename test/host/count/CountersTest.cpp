//===- CountersTest.cpp - Known patterns, exact numbers -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include <gtest/gtest.h>

using namespace attn;
using namespace attn::rt::host;

namespace {

class CountersOf : public testing::Test {
protected:
  std::unique_ptr<test::Program> program = test::Program::fromFile("counters.mlir");
  test::Launcher launcher;

  template <class... Args> Counters run(const char *name, Args... args) {
    Report report = launcher.run(program->kernel(name), {1}, {32}, 8192, args...);
    EXPECT_EQ(report.total(FindingKind::OutOfBounds), 0u) << report.describe();
    return report.counters;
  }
  void expectWavefronts(const char *kernel, int stride, uint64_t wavefronts, uint64_t needed) {
    Counters c = run(kernel, stride, 0);
    EXPECT_EQ(c.wavefronts, wavefronts) << kernel << " stride " << stride;
    EXPECT_EQ(c.wavefrontsNeeded, needed) << kernel << " stride " << stride;
  }
};

TEST_F(CountersOf, banksOfWords) {
  expectWavefronts("shared_stride_4", 4, 1, 1);    // one word each
  expectWavefronts("shared_stride_4", 0, 1, 1);    // broadcast
  expectWavefronts("shared_stride_4", 8, 2, 1);    // every other bank
  expectWavefronts("shared_stride_4", 128, 32, 1); // a column of 32 floats: all in one bank
  expectWavefronts("shared_stride_4", 132, 1, 1);  // padded by a word: no conflict
}

TEST_F(CountersOf, banksOfVectors) {
  expectWavefronts("shared_stride_8", 8, 2, 2);    // two phases of 16 lanes
  expectWavefronts("shared_stride_8", 128, 32, 2); // 16 lanes in the same two banks
  expectWavefronts("shared_stride_16", 16, 4, 4);  // four phases of 8 lanes
  expectWavefronts("shared_stride_16", 128, 32, 4);
  expectWavefronts("shared_stride_16", 144, 4, 4); // padded by 16 bytes
}

TEST_F(CountersOf, banksOfMatrices) {
  // Eight rows of 128 bytes, the four matrices side by side: the store has 4 phases, ldmatrix 4.
  Counters plain = run("rows_plain"), swizzled = run("rows_swizzled");
  EXPECT_EQ(plain.wavefrontsNeeded, 8u);
  EXPECT_EQ(plain.wavefronts, 4 * 8u + 4 * 8u);
  EXPECT_EQ(swizzled.wavefrontsNeeded, 8u);
  EXPECT_EQ(swizzled.wavefronts, 8u);
  EXPECT_EQ(swizzled.bankConflicts(), 0);
  EXPECT_EQ(plain.bankConflicts(), 7);
}

TEST_F(CountersOf, sectors) {
  auto *in = launcher.upload("in", std::vector<uint32_t>(4096));
  auto check = [&](const char *kernel, int stride, int base, uint64_t bytes, uint64_t spanned) {
    auto *out = launcher.output<uint32_t>("out", 128);
    Counters c = run(kernel, in, out, stride, base);
    EXPECT_EQ(c.bytesRead, bytes) << kernel << " stride " << stride << " base " << base;
    EXPECT_EQ(c.sectorBytesSpanned - c.bytesWritten, spanned)
        << kernel << " stride " << stride << " base " << base;
    EXPECT_EQ(c.requests, 2u);
  };
  check("global_stride_4", 4, 0, 128, 128);
  check("global_stride_4", 4, 4, 128, 160);   // one more sector
  check("global_stride_4", 32, 0, 128, 1024); // an eighth of each sector
  check("global_stride_4", 0, 0, 4, 32);      // all lanes the same word: read once
  check("global_stride_4", 2048 / 64, 8, 128, 1024);
  check("global_stride_16", 16, 0, 512, 512);
  check("global_stride_16", 256, 0, 512, 1024);      // half of each sector
  check("global_stride_16", 4, 0, 31 * 4 + 16, 160); // overlapping: each byte once
  check("global_stride_8", 4, 0, 31 * 4 + 8, 160);
}

TEST_F(CountersOf, lanesOfUnevenLoops) {
  // Lane l makes l + 1 trips; trip i is a request of the lanes i..31.
  std::vector<uint32_t> ones(1024, 1);
  auto *in = launcher.upload("in", ones);
  for (bool shuffle : {false, true}) {
    launcher.options.shuffle = shuffle;
    auto *out = launcher.output<uint32_t>("out", 32);
    Counters c = run("uneven", in, out);
    EXPECT_EQ(c.bytesRead, 4u * 32 * 33 / 2);
    EXPECT_EQ(c.requests, 32u + 1);
    EXPECT_EQ(out[31], 32u);
  }
}

TEST_F(CountersOf, lanesFarAheadOfTheirWarp) {
  // No lane waits for another here; buffers stay bounded even so.
  auto *in = launcher.upload("in", std::vector<uint32_t>(32, 1));
  auto *out = launcher.output<uint32_t>("out", 32);
  int trips = 20000;
  Counters c = run("far_ahead", in, out, trips);
  EXPECT_EQ(c.requests, 20001u);
  EXPECT_EQ(c.bytesRead, 20000u * 128);
}

TEST_F(CountersOf, asynchronousCopies) {
  auto *in = launcher.upload("in", std::vector<uint8_t>(512, 1));
  auto *out = launcher.output<uint8_t>("out", 512);
  int bytes = 16;
  Counters c = run("copy_16", in, out, bytes);
  EXPECT_EQ(c.bytesRead, 512u);
  EXPECT_EQ(c.bytesWritten, 512u);
  EXPECT_EQ(c.wavefrontsNeeded, 8u); // the copy's writes and the load
  EXPECT_EQ(c.bankConflicts(), 0);
  bytes = 8; // the second half is zero-filled: only the source size is read
  c = run("copy_16", in, out, bytes);
  EXPECT_EQ(c.bytesRead, 256u);
  EXPECT_EQ(c.sectorEfficiency(), (256.0 + 512) / (512 + 512));
}

TEST_F(CountersOf, partials) {
  auto *in = launcher.upload("in", std::vector<uint32_t>(32));
  auto *out = launcher.output<uint32_t>("partial.o", 32);
  launcher.memory.setTag(out, Tag::Partials);
  Counters c = run("global_stride_4", in, out, 4, 0);
  EXPECT_EQ(c.bytesPartials, 128u);
  launcher.memory.setTag(in, Tag::Partials);
  c = run("global_stride_4", in, out, 4, 0);
  EXPECT_EQ(c.bytesPartials, 256u);
}

} // namespace

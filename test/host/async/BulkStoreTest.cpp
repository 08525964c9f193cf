//===- BulkStoreTest.cpp - Boxes of tensors from shared memory ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The wrong uses are in planted/04_store_fence.mlir and planted/14_store_*.mlir.
//
//===----------------------------------------------------------------------===//
#include "BulkBoxes.h"
#include "Fixture.h"
#include "attn_rt/host/Abi.h"
#include <gtest/gtest.h>
#include <random>

using namespace attn;
using namespace attn::rt::host;
using test::BulkCase;
using test::kTile;

namespace {

constexpr uint32_t kShared = 65536;

/// A kernel that fills the tile from `in`, and stores it by a copy of `rank` coordinates, or adds it.
std::string kernelText(unsigned rank, bool adds = false) {
  const std::string box = "box[" + test::coordinateNames(rank) + "]";
  const std::string store =
      adds ? "nvvm.cp.async.bulk.tensor.reduce %map, %tile, " + box + " {redKind = #nvvm.tma_redux_kind<add>}"
           : "nvvm.cp.async.bulk.tensor.global.shared.cta %map, %tile, " + box;
  return R"(
gpu.module @m {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
  llvm.func @store(%map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                   %in: !llvm.ptr<1>, %at: i32, %bytes: i32, %c0: i32, %c1: i32, %c2: i32, %c3: i32, %c4: i32)
      attributes {nvvm.kernel} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %four = llvm.mlir.constant(4 : i32) : i32
    %step = llvm.mlir.constant(32 : i32) : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %tile = llvm.getelementptr %smem[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %first = llvm.icmp "eq" %tid, %zero : i32
    llvm.br ^loop(%tid : i32)
  ^loop(%i: i32):
    %o = llvm.mul %i, %four : i32
    %more = llvm.icmp "ult" %o, %bytes : i32
    llvm.cond_br %more, ^body, ^filled
  ^body:
    %from = llvm.getelementptr %in[%o] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    %v = llvm.load %from : !llvm.ptr<1> -> i32
    %to = llvm.getelementptr %tile[%o] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    llvm.store %v, %to : i32, !llvm.ptr<3>
    %next = llvm.add %i, %step : i32
    llvm.br ^loop(%next : i32)
  ^filled:
    nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
    nvvm.barrier
    llvm.cond_br %first, ^issue, ^done
  ^issue:
    )" + store +
         R"( : !llvm.ptr, !llvm.ptr<3>
    nvvm.cp.async.bulk.commit.group
    nvvm.cp.async.bulk.wait_group 0 {read}
    llvm.br ^done
  ^done:
    llvm.return
  }
})";
}

/// The expected contents of the tensor's memory: an element at a time, straight from the rule.
void applyStore(const BulkCase &c, const std::vector<uint8_t> &tile, std::vector<uint8_t> &memory) {
  c.forElements([&](uint32_t from, int64_t to, bool inside) {
    for (uint32_t b = 0; inside && b < c.elementBytes(); ++b)
      memory[static_cast<size_t>(to) + b] = tile[from + b];
  });
}

class BulkStore : public testing::TestWithParam<bool> {
protected:
  Report run(const rt::EncodedMap &map, unsigned rank, const std::vector<uint8_t> &tile, uint32_t to,
             std::vector<int32_t> at) {
    if (!programs[rank])
      programs[rank] = test::Program::fromText(kernelText(rank), GetParam());
    at.resize(5);
    uint8_t *in = launcher.upload("in", tile);
    Report report = launcher.run(programs[rank]->kernel("store"), {1}, {32}, kShared, map, in, to,
                                 static_cast<uint32_t>(tile.size()), at[0], at[1], at[2], at[3], at[4]);
    EXPECT_TRUE(launcher.memory.free(in));
    return report;
  }
  Report run(const BulkCase &c, const std::vector<uint8_t> &tile) {
    return run(encodeTensorMap(c.tensor), static_cast<unsigned>(c.at.size()), tile, c.tile, c.at);
  }
  std::vector<uint8_t> randomBytes(size_t n) {
    std::vector<uint8_t> data(n);
    for (uint8_t &byte : data)
      byte = static_cast<uint8_t>(random());
    return data;
  }
  std::unique_ptr<test::Program> programs[6];
  test::Launcher launcher;
  std::mt19937 random{23};
};
INSTANTIATE_TEST_SUITE_P(Modes, BulkStore, testing::Bool(),
                         [](const auto &info) { return info.param ? "check" : "fast"; });

// Boxes within the tensor and past its end, in every rank, for every size of element and every swizzle,
// whenever they are read and written.
TEST_P(BulkStore, everyRankSizeAndSwizzle) {
  for (unsigned rank = 1; rank <= 5; ++rank)
    for (rt::DType dtype : {rt::DType::I8, rt::DType::BF16, rt::DType::F32})
      for (int swizzle : {0, 32, 64, 128})
        for (AsyncEffects effects : {AsyncEffects::Eager, AsyncEffects::Random, AsyncEffects::Delayed}) {
          launcher.options.asyncEffects = effects;
          const auto size = static_cast<int32_t>(dtypeSize(dtype));
          auto draw = [&](int32_t low, int32_t high) {
            return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
          };
          std::vector<uint8_t> before = randomBytes(1 << 16);
          uint8_t *memory = launcher.upload("out", before);
          BulkCase c;
          c.tensor = {"map", reinterpret_cast<uint64_t>(memory), dtype, {}, {}, {}, swizzle};
          int64_t stride = 0;
          for (unsigned d = 0; d < rank; ++d) {
            c.tensor.box.push_back(d == 0 ? (swizzle ? swizzle : 16 * draw(1, 4)) / size : draw(1, 4));
            const int32_t extent = d == 0 ? draw(1, 256 / size) : draw(1, 5);
            c.tensor.extents.push_back(extent);
            c.at.push_back(draw(0, extent + 1));
            if (d)
              c.tensor.strides.push_back(stride);
            stride = d == 0 ? (extent * size + 15) / 16 * 16 + 16 * draw(0, 1) : stride * extent;
          }
          c.tile = kTile + 128 * (random() % 9);
          if (swizzle && c.boxBytes() % 128)
            c.tensor.box[rank - 1 ? 1 : 0] = rank == 1 ? c.tensor.box[0] : 4;
          const std::vector<uint8_t> tile = randomBytes(c.boxBytes());
          Report report = run(c, tile);
          EXPECT_TRUE(report.clean()) << report.describe();
          applyStore(c, tile, before);
          EXPECT_EQ(std::vector<uint8_t>(memory, memory + before.size()), before);
          ASSERT_TRUE(launcher.memory.free(memory));
          if (HasFailure())
            return;
        }
}

class BulkStoreFindings : public BulkStore {
protected:
  /// 64 rows of 128 bytes; boxes of 8.
  rt::BulkTensor rows(const uint8_t *memory, int64_t count = 64) {
    return {"map", reinterpret_cast<uint64_t>(memory), rt::DType::BF16, {64, count}, {128}, {64, 8}, 128};
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, BulkStoreFindings, testing::Values(true),
                         [](const auto &) { return "check"; });

bool blames(const Report &report, FindingKind kind, const std::string &message,
            const std::string &address = {}) {
  for (const Finding &f : report.findings)
    if (f.kind == kind && f.op.find("cp.async.bulk.tensor") != std::string::npos &&
        f.message.find(message) != std::string::npos && f.address.find(address) != std::string::npos)
      return true;
  return false;
}

// Bytes in range are the traffic, and only they count as written afterwards.
TEST_P(BulkStoreFindings, counters) {
  auto *out = launcher.output<uint8_t>("out", 8192);
  const std::vector<uint8_t> tile(1024, 1);
  Counters c = run({rows(out), {0, 3}}, tile).counters;
  EXPECT_EQ(c.bytesWritten, 1024u);
  EXPECT_EQ(c.bytesRead, 1024u); // filling the tile
  EXPECT_EQ(c.requests, 1u + 8u);
  EXPECT_EQ(c.sectorEfficiency(), 1);
  c = run({rows(out), {0, 60}}, tile).counters; // half of the box
  EXPECT_EQ(c.bytesWritten, 512u);
  const Allocation *a = launcher.memory.find(out);
  EXPECT_TRUE(a->isWritten(3 * 128, 1024));
  EXPECT_TRUE(a->isWritten(60 * 128, 512));
  EXPECT_FALSE(a->isWritten(11 * 128, 1));
  EXPECT_FALSE(a->isWritten(60 * 128 - 1, 1));
  launcher.memory.setTag(out, Tag::Partials);
  EXPECT_EQ(run({rows(out), {0, 0}}, tile).counters.bytesPartials, 1024u);
}

// The rest of a tile that was filled in part stays unwritten.
TEST_P(BulkStoreFindings, unwrittenBytesTravel) {
  auto *out = launcher.output<uint8_t>("out", 8192);
  Report report = run({rows(out), {0, 0}}, std::vector<uint8_t>(512, 1));
  EXPECT_TRUE(report.clean()) << report.describe();
  const Allocation *a = launcher.memory.find(out);
  EXPECT_TRUE(a->isWritten(0, 512));
  EXPECT_FALSE(a->isWritten(512, 1));
}

TEST_P(BulkStoreFindings, whatMustNotBeWritten) {
  auto *out = launcher.upload("out", std::vector<uint8_t>(1024, 7));
  const std::vector<uint8_t> tile(1024, 1);
  EXPECT_TRUE(run({rows(out, 8), {0, 0}}, tile).clean());
  Report report = run({rows(out, 9), {0, 1}}, tile);
  EXPECT_TRUE(
      blames(report, FindingKind::OutOfBounds, "outside of every allocation", "out + 1024 (128 bytes)"))
      << report.describe();
  // A tensor that extends into memory that does not belong to the kernel.
  auto *other = launcher.upload("other", std::vector<uint8_t>(1024, 7));
  const int64_t row = (std::max(out, other) - std::min(out, other)) / 128;
  report = run({rows(std::min(out, other), row + 8), {0, static_cast<int32_t>(row)}}, tile);
  EXPECT_TRUE(blames(report, FindingKind::OutOfBounds, "none of its tensor maps are of"))
      << report.describe();
  EXPECT_EQ(std::max(out, other)[0], out < other ? 7 : 1);
  report = run({rows(out, 8), {0, -1}}, tile);
  EXPECT_TRUE(blames(report, FindingKind::Sync, "begins before the tensor")) << report.describe();
}

TEST_P(BulkStoreFindings, whatIsNoStore) {
  auto *out = launcher.output<uint8_t>("out", 8192);
  const std::vector<uint8_t> tile(1024, 1);
  const rt::EncodedMap map = encodeTensorMap(rows(out));
  Report report = run(map, 3, tile, kTile, {0, 0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Sync, "gives 3 coordinates of a tensor with 2 dimensions"));
  report = run({}, 2, tile, kTile, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Sync, "no tensor map"));
  report = run(map, 2, tile, kTile + 64, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Misaligned, "multiple of 128")) << report.describe();
  report = run(map, 2, std::vector<uint8_t>(512, 1), kShared - 512, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::OutOfBounds, "outside of the block's shared memory"))
      << report.describe();
  EXPECT_FALSE(launcher.memory.find(out)->isWritten(0, 1));
}

// Sums have no order: blocks that add to the same rows do not race. But the memory that they add to must be
// written, and no other access may write it.
TEST_P(BulkStoreFindings, blocksAdd) {
  const std::vector<float> ones(256, 1);
  auto *in = launcher.upload("in", ones);
  auto program = test::Program::fromText(kernelText(2, /*adds=*/true));
  const auto add = [&](float *out) {
    const rt::BulkTensor rows{
        "map", reinterpret_cast<uint64_t>(out), rt::DType::F32, {32, 64}, {128}, {32, 8}, 128};
    return launcher.run(program->kernel("store"), {2}, {32}, kShared, encodeTensorMap(rows), in, kTile, 1024u,
                        0, 3, 0, 0, 0);
  };
  for (AsyncEffects effects : {AsyncEffects::Eager, AsyncEffects::Random, AsyncEffects::Delayed}) {
    launcher.options.asyncEffects = effects;
    auto *out = launcher.upload("out", std::vector<float>(2048, 5));
    Report report = add(out);
    EXPECT_TRUE(report.clean()) << report.describe();
    EXPECT_EQ(out[3 * 32 - 1], 5);
    EXPECT_EQ(out[3 * 32], 7);
    EXPECT_EQ(out[11 * 32 - 1], 7);
    EXPECT_EQ(out[11 * 32], 5);
    ASSERT_TRUE(launcher.memory.free(out));
  }
  Report report = add(launcher.output<float>("fresh", 2048));
  EXPECT_TRUE(blames(report, FindingKind::Uninitialized, "adds to unwritten bytes")) << report.describe();
}

// Two blocks that store the same rows race, although both write through maps.
TEST_P(BulkStoreFindings, blocksRace) {
  auto *out = launcher.output<uint8_t>("out", 8192);
  auto program = test::Program::fromText(kernelText(2));
  uint8_t *in = launcher.upload("in", std::vector<uint8_t>(1024, 1));
  Report report = launcher.run(program->kernel("store"), {2}, {32}, kShared, encodeTensorMap(rows(out)), in,
                               kTile, 1024u, 0, 3, 0, 0, 0);
  EXPECT_TRUE(blames(report, FindingKind::Race, "written without order against block")) << report.describe();
}

} // namespace

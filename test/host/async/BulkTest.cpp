//===- BulkTest.cpp - Bulk tensor copies against plain loops --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

constexpr uint32_t kShared = 1024 + 65536;

/// A kernel that copies `rank` coordinates to the tile, and the tile to the output.
std::string kernelText(unsigned rank) {
  return R"(
gpu.module @m {
  llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
  llvm.func @load(%map: !llvm.ptr {llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64, nvvm.grid_constant},
                  %out: !llvm.ptr<1>, %at: i32, %bytes: i32, %c0: i32, %c1: i32, %c2: i32, %c3: i32, %c4: i32)
      attributes {nvvm.kernel} {
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %four = llvm.mlir.constant(4 : i32) : i32
    %step = llvm.mlir.constant(32 : i32) : i32
    %ticks = llvm.mlir.constant(1000 : i32) : i32
    %smem = llvm.mlir.addressof @smem : !llvm.ptr<3>
    %tile = llvm.getelementptr %smem[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %first = llvm.icmp "eq" %tid, %zero : i32
    nvvm.prefetch tensormap, %map : !llvm.ptr
    llvm.cond_br %first, ^issue, ^wait
  ^issue:
    nvvm.mbarrier.init %smem, %one : !llvm.ptr<3>, i32
    nvvm.fence.mbarrier.init
    nvvm.mbarrier.arrive.expect_tx %smem, %bytes : !llvm.ptr<3>, i32
    %cluster = llvm.addrspacecast %tile : !llvm.ptr<3> to !llvm.ptr<7>
    nvvm.cp.async.bulk.tensor.shared.cluster.global %cluster, %map, %smem, box[)" +
         test::coordinateNames(rank) + R"(] : !llvm.ptr<7>, !llvm.ptr
    llvm.br ^wait
  ^wait:
    nvvm.barrier
    nvvm.mbarrier.try_wait.parity %smem, %zero, %ticks : !llvm.ptr<3>, i32, i32
    llvm.br ^loop(%tid : i32)
  ^loop(%i: i32):
    %o = llvm.mul %i, %four : i32
    %more = llvm.icmp "ult" %o, %bytes : i32
    llvm.cond_br %more, ^body, ^done
  ^body:
    %from = llvm.getelementptr %tile[%o] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
    %v = llvm.load %from : !llvm.ptr<3> -> i32
    %to = llvm.getelementptr %out[%o] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
    llvm.store %v, %to : i32, !llvm.ptr<1>
    %next = llvm.add %i, %step : i32
    llvm.br ^loop(%next : i32)
  ^done:
    llvm.return
  }
})";
}

/// The expected contents of the tile: an element at a time, straight from the rule.
std::vector<uint8_t> expectedTile(const BulkCase &c, const uint8_t *memory) {
  std::vector<uint8_t> tile(c.boxBytes());
  c.forElements([&](uint32_t to, int64_t from, bool inside) {
    for (uint32_t b = 0; b < c.elementBytes(); ++b)
      tile[to + b] = inside ? memory[from + b] : 0;
  });
  return tile;
}

class Bulk : public testing::TestWithParam<bool> {
protected:
  Report run(unsigned rank, rt::EncodedMap map, uint8_t *out, uint32_t tile, uint32_t bytes,
             std::vector<int32_t> at) {
    if (!programs[rank])
      programs[rank] = test::Program::fromText(kernelText(rank), GetParam());
    at.resize(5);
    return launcher.run(programs[rank]->kernel("load"), {1}, {32}, kShared, map, out, tile, bytes, at[0],
                        at[1], at[2], at[3], at[4]);
  }
  void check(const BulkCase &c, const uint8_t *memory) {
    ASSERT_TRUE(rt::checkBulkTensor(c.tensor)) << rt::checkBulkTensor(c.tensor).error().message;
    auto *out = launcher.output<uint8_t>("out", c.boxBytes());
    Report report =
        run(static_cast<unsigned>(c.at.size()), encodeTensorMap(c.tensor), out, c.tile, c.boxBytes(), c.at);
    EXPECT_TRUE(report.clean()) << report.describe();
    EXPECT_EQ(std::vector<uint8_t>(out, out + c.boxBytes()), expectedTile(c, memory));
    ASSERT_TRUE(launcher.memory.free(out));
  }
  uint8_t *randomBytes(size_t n) {
    std::vector<uint8_t> data(n);
    for (uint8_t &byte : data)
      byte = static_cast<uint8_t>(random());
    return launcher.upload("in", data);
  }
  std::unique_ptr<test::Program> programs[6];
  test::Launcher launcher;
  std::mt19937 random{11};
};
INSTANTIATE_TEST_SUITE_P(Modes, Bulk, testing::Bool(),
                         [](const auto &info) { return info.param ? "check" : "fast"; });

// Boxes that begin before the tensor, boxes within it, and boxes that extend past its end, in every rank, for
// every size of element and every swizzle.
TEST_P(Bulk, everyRankSizeAndSwizzle) {
  constexpr size_t bytes = 1 << 17;
  uint8_t *memory = randomBytes(bytes);
  for (unsigned rank = 1; rank <= 5; ++rank)
    for (rt::DType dtype : {rt::DType::I8, rt::DType::BF16, rt::DType::F32})
      for (int swizzle : {0, 32, 64, 128})
        for (int trial = 0; trial < 6; ++trial) {
          const auto size = static_cast<int32_t>(dtypeSize(dtype));
          auto draw = [&](int32_t low, int32_t high) {
            return low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low + 1));
          };
          BulkCase c;
          c.tensor = {"map",  reinterpret_cast<uint64_t>(memory) + 16 * (random() % 4), dtype, {}, {}, {},
                      swizzle};
          int64_t stride = 0;
          for (unsigned d = 0; d < rank; ++d) {
            c.tensor.box.push_back(d == 0 ? (swizzle ? swizzle : 16 * draw(1, 4)) / size : draw(1, 4));
            // Odd extents end in the middle of a chunk.
            const int32_t extent = d == 0 ? draw(1, 256 / size) : draw(1, 5);
            c.tensor.extents.push_back(extent);
            c.at.push_back(trial == 0 ? 0 : draw(-c.tensor.box[d] - 1, extent + 1));
            if (d)
              c.tensor.strides.push_back(stride);
            stride = d == 0 ? (extent * size + 15) / 16 * 16 + 16 * draw(0, 1) : stride * extent;
          }
          c.tile = kTile + 128 * (random() % 9);
          // A tile whose last line is not full: a swizzle would leave it.
          if (swizzle && c.boxBytes() % 128)
            c.tensor.box[rank - 1 ? 1 : 0] = rank == 1 ? c.tensor.box[0] : 4;
          check(c, reinterpret_cast<const uint8_t *>(c.tensor.base));
          if (HasFailure())
            return;
        }
}

TEST_P(Bulk, coordinatesFarOut) {
  uint8_t *memory = randomBytes(4096);
  BulkCase c{
      {"map", reinterpret_cast<uint64_t>(memory), rt::DType::BF16, {64, 32}, {128}, {64, 8}, 128}, {}, kTile};
  for (int32_t far : {INT32_MIN, -9, INT32_MAX - 7, INT32_MAX})
    for (int32_t near : {0, 3, far}) {
      c.at = {near, far};
      check(c, memory);
      c.at = {far, near};
      check(c, memory);
    }
}

// The largest tensor: 2^32 rows; coordinates reach the first half.
TEST_P(Bulk, extentsOf2To32) {
  uint8_t *memory = randomBytes(4096);
  BulkCase c{
      {"map", reinterpret_cast<uint64_t>(memory), rt::DType::F32, {32, int64_t{1} << 32}, {128}, {32, 8}, 0},
      {0, -3},
      kTile};
  check(c, memory);
}

class BulkFindings : public Bulk {};
INSTANTIATE_TEST_SUITE_P(Modes, BulkFindings, testing::Values(true), [](const auto &) { return "check"; });

bool blames(const Report &report, FindingKind kind, const std::string &message,
            const std::string &address = {}) {
  for (const Finding &f : report.findings)
    if (f.kind == kind && f.op.find("cp.async.bulk.tensor") != std::string::npos &&
        f.message.find(message) != std::string::npos && f.address.find(address) != std::string::npos)
      return true;
  return false;
}

// Bytes in range are the traffic; rows that follow each other are one run.
TEST_P(BulkFindings, counters) {
  auto *memory = launcher.upload("in", std::vector<uint8_t>(8192));
  auto *out = launcher.output<uint8_t>("out", 1024);
  const auto base = reinterpret_cast<uint64_t>(memory);
  const auto count = [&](const rt::BulkTensor &tensor, std::vector<int32_t> at) {
    Report report = run(2, encodeTensorMap(tensor), out, kTile, 1024, std::move(at));
    EXPECT_TRUE(report.clean()) << report.describe();
    return report.counters;
  };
  Counters c = count({"map", base, rt::DType::BF16, {64, 64}, {128}, {64, 8}, 128}, {0, 3});
  EXPECT_EQ(c.bytesRead, 1024u);
  EXPECT_EQ(c.requests, 1u + 8u); // and the stores
  EXPECT_EQ(c.sectorEfficiency(), 1);
  c = count({"map", base, rt::DType::BF16, {64, 64}, {128}, {64, 8}, 128}, {0, 60}); // half of the box
  EXPECT_EQ(c.bytesRead, 512u);
  c = count({"map", base + 16, rt::DType::BF16, {24, 16}, {128}, {64, 8}, 128}, {0, 0}); // 48 bytes of 64
  EXPECT_EQ(c.bytesRead, 8u * 48);
  EXPECT_EQ(c.sectorBytesUsed - 1024, 8u * 48);
  EXPECT_EQ(c.sectorBytesSpanned - 1024, 8u * 64);
  c = count({"map", base, rt::DType::BF16, {64, 64}, {128}, {64, 8}, 128}, {0, 64}); // nothing
  EXPECT_EQ(c.bytesRead, 0u);
  launcher.memory.setTag(memory, Tag::Partials);
  c = count({"map", base, rt::DType::BF16, {64, 64}, {128}, {64, 8}, 128}, {0, 0});
  EXPECT_EQ(c.bytesPartials, 1024u);
}

TEST_P(BulkFindings, tensorBeyondItsMemory) {
  auto *memory = launcher.upload("in", std::vector<uint8_t>(1024, 1));
  auto *out = launcher.output<uint8_t>("out", 1024);
  const rt::BulkTensor tensor{
      "map", reinterpret_cast<uint64_t>(memory), rt::DType::BF16, {64, 9}, {128}, {64, 8}, 128};
  EXPECT_TRUE(run(2, encodeTensorMap(tensor), out, kTile, 1024, {0, 0}).clean());
  Report report = run(2, encodeTensorMap(tensor), out, kTile, 1024, {0, 1});
  EXPECT_TRUE(
      blames(report, FindingKind::OutOfBounds, "outside of every allocation", "in + 1024 (128 bytes)"))
      << report.describe();
  EXPECT_EQ(report.counters.bytesRead, 0u);
}

TEST_P(BulkFindings, unwrittenBytesTravel) {
  auto *memory = launcher.output<uint8_t>("in", 2048);
  std::memset(memory, 0, 2048);
  launcher.memory.markWritten(memory, 1024 + 4 * 128 + 2);
  auto *out = launcher.output<uint8_t>("out", 1024);
  const rt::BulkTensor tensor{
      "map", reinterpret_cast<uint64_t>(memory), rt::DType::BF16, {64, 16}, {128}, {64, 8}, 128};
  EXPECT_TRUE(run(2, encodeTensorMap(tensor), out, kTile, 1024, {0, 4}).clean());
  Report report = run(2, encodeTensorMap(tensor), out, kTile, 1024, {0, 5});
  EXPECT_EQ(report.total(FindingKind::Uninitialized), 32u); // of 32 words, one has two written bytes
  EXPECT_NE(report.findings[0].op.find("llvm.load"), std::string::npos) << report.describe();
}

TEST_P(BulkFindings, whatIsNoCopy) {
  auto *memory = launcher.upload("in", std::vector<uint8_t>(2048));
  auto *out = launcher.output<uint8_t>("out", 1024);
  const rt::BulkTensor tensor{
      "map", reinterpret_cast<uint64_t>(memory), rt::DType::BF16, {64, 16}, {128}, {64, 8}, 128};
  const rt::EncodedMap map = encodeTensorMap(tensor);
  Report report = run(3, map, out, kTile, 1024, {0, 0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Sync, "gives 3 coordinates of a tensor with 2 dimensions"));
  report = run(2, {}, out, kTile, 1024, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Sync, "no tensor map"));
  report = run(2, map, out, kTile + 64, 1024, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::Misaligned, "multiple of 128")) << report.describe();
  report = run(2, map, out, kShared - 512, 1024, {0, 0});
  EXPECT_TRUE(blames(report, FindingKind::OutOfBounds, "outside of the block's shared memory"))
      << report.describe();
  report = run(2, map, out, kTile, 1 << 20, {0, 0});
  EXPECT_GT(report.total(FindingKind::Sync), 0u);
}

} // namespace

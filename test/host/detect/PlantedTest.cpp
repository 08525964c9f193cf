//===- PlantedTest.cpp - Each bug is found, its twin passes ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every file of planted/ holds a kernel @right, and changes of it that are wrong: a
// line marked `//- wrong1` is left out of @wrong1, and a line `//+ wrong1: LINE` is in
// @wrong1 alone (Fixture.cpp). Right kernels must be clean, with the same bits, whenever
// copies take effect, in any order of lanes and blocks and on any number of cores; wrong
// kernels must be found in all of these cases.
//
//===----------------------------------------------------------------------===//
#include "Fixture.h"
#include "attn_rt/host/TensorMap.h"
#include <gtest/gtest.h>

using namespace attn;
using namespace attn::rt::host;

namespace {

struct Planted {
  const char *file;
  const char *kernel;
  FindingKind kind;
  const char *op;      ///< part of the text of the blamed operation
  const char *message; ///< part of the finding's message
  uint32_t threads = 64, shared = 4096;
};

void PrintTo(const Planted &p, std::ostream *os) { *os << p.file << " @" << p.kernel; }

constexpr FindingKind kRace = FindingKind::Race, kUninitialized = FindingKind::Uninitialized,
                      kBounds = FindingKind::OutOfBounds, kAlign = FindingKind::Misaligned,
                      kSync = FindingKind::Sync, kDeadlock = FindingKind::Deadlock;
/// The result of passing a barrier too early depends on the order of execution.
constexpr auto kAny = static_cast<FindingKind>(-1);

const Planted kBugs[] = {
    {"01_block_barrier", "wrong", kRace, "llvm.", "shared bytes without order"},
    {"01_warp_barrier", "wrong", kRace, "llvm.", "shared bytes without order"},
    {"01_ldmatrix_warp_barrier", "wrong", kRace, "nvvm.ldmatrix", "shared bytes without order"},
    {"02_barrier_count", "wrong1", kDeadlock, "nvvm.barrier", "64 threads of 96 arrived"},
    {"02_barrier_count", "wrong2", kRace, "llvm.", "shared bytes without order"},
    {"02_barrier_count", "wrong3", kSync, "nvvm.barrier", "an earlier arrival expects"},
    {"02_barrier_id", "wrong", kDeadlock, "nvvm.barrier", "32 threads of 64 arrived"},
    {"02_barrier_left", "wrong", kSync, "nvvm.barrier.arrive", "ends with 32 threads of 64 at barrier 2"},
    {"03_wait_count", "wrong", kRace, "llvm.load", "not waited for"},
    {"03_wait_missing", "wrong1", kRace, "llvm.load", "not waited for"},
    {"03_wait_missing", "wrong2", kRace, "llvm.load", ""},
    {"03_wait_missing", "wrong3", kRace, "llvm.load", "not waited for"},
    {"03_wait_elsewhere", "wrong", kRace, "llvm.load", "cp.async"},
    {"03_ring_overwrite", "wrong", kRace, "", "shared bytes"},
    {"03_exit_pending", "wrong", kSync, "nvvm.cp.async", "exits with copies"},
    {"03_exit_arrival", "wrong1", kSync, "nvvm.cp.async", "only an mbarrier waits for"},
    {"03_exit_arrival", "wrong2", kSync, "nvvm.cp.async", "only an mbarrier waits for"},
    {"04_proxy_fence", "wrong1", kRace, "tile.wgmma", "without fence.proxy.async", 128, 16384},
    {"04_proxy_fence", "wrong2", kRace, "tile.wgmma", "without fence.proxy.async", 128, 16384},
    {"04_proxy_fence", "wrong3", kRace, "tile.wgmma", "without fence.proxy.async", 128, 16384},
    {"04_proxy_fence_reader", "wrong", kRace, "tile.wgmma", "without fence.proxy.async", 128, 16384},
    {"04_bulk_fence", "wrong1", kRace, "cp.async.bulk", "without fence.proxy.async"},
    {"04_bulk_fence", "wrong2", kRace, "cp.async.bulk", "without fence.proxy.async"},
    {"04_bulk_fence", "wrong3", kRace, "", "shared bytes"},
    {"04_mbarrier_fence", "wrong1", kRace, "cp.async.bulk", "without fence.mbarrier_init"},
    {"04_mbarrier_fence", "wrong2", kRace, "cp.async.bulk", "without fence.mbarrier_init"},
    {"04_mbarrier_fence", "wrong3", kRace, "cp.async.bulk", "without fence.mbarrier_init"},
    {"04_mbarrier_fence", "wrong4", kRace, "cp.async.bulk", "without fence.mbarrier_init"},
    {"04_mbarrier_fence_issuer", "wrong", kRace, "cp.async.bulk", "without fence.mbarrier_init"},
    {"04_store_fence", "wrong1", kRace, "cp.async.bulk", "without fence.proxy.async"},
    {"04_store_fence", "wrong2", kRace, "cp.async.bulk", "without fence.proxy.async"},
    {"04_store_fence", "wrong3", kRace, "", "shared bytes"},
    {"05_wgmma_registers", "wrong1", kSync, "tile.wgmma_wait", "leaves the wgmma", 128, 16384},
    {"05_wgmma_registers", "wrong2", kSync, "tile.wgmma", "before wgmma.wait_group", 128, 16384},
    {"05_wgmma_registers", "wrong3", kSync, "tile.wgmma", "no wgmma.fence", 128, 16384},
    {"05_wgmma_registers", "wrong4", kSync, "tile.wgmma", "written after the wgmma.fence", 128, 16384},
    {"05_wgmma_registers", "wrong5", kSync, "tile.wgmma", "written after the wgmma.fence", 128, 16384},
    {"06_expect_bytes", "wrong1", kDeadlock, "nvvm.mbarrier.try_wait", "-16 bytes are outstanding"},
    {"06_expect_bytes", "wrong2", kDeadlock, "nvvm.mbarrier.try_wait", ", 16 bytes are outstanding"},
    {"06_expect_bytes", "wrong3", kRace, "", "shared bytes"},
    {"06_expect_bytes", "wrong4", kAny, "", ""},
    {"06_bulk_wait", "wrong1", kRace, "llvm.load", "mbarrier was not waited for"},
    {"06_bulk_wait", "wrong2", kRace, "", "shared bytes"},
    {"06_bulk_wait", "wrong3", kSync, "cp.async.bulk", "the block ends with a bulk copy"},
    {"06_bulk_wait", "wrong4", kRace, "llvm.store", "mbarrier was not waited for"},
    {"06_bulk_wait", "wrong5", kAny, "", ""},
    {"07_bulk_ring", "wrong1", kAny, "", ""},
    {"07_bulk_ring", "wrong2", kRace, "cp.async.bulk", "mbarrier was not waited for"},
    {"07_bulk_ring", "wrong3", kRace, "", "shared bytes"},
    {"07_bulk_ring", "wrong4", kRace, "", "shared bytes"},
    {"07_ring_parity", "wrong1", kAny, "", ""},
    {"07_ring_parity", "wrong2", kRace, "nvvm.cp.async", "shared bytes"},
    {"08_release_before_wait", "wrong", kRace, "nvvm.cp.async", "still reads", 160, 16384},
    {"08_bulk_release", "wrong1", kRace, "tile.wgmma", "mbarrier was not waited for", 160, 16384},
    {"08_bulk_release", "wrong2", kRace, "cp.async.bulk", "still reads", 160, 16384},
    {"09_bulk_mbarrier", "wrong1", kSync, "cp.async.bulk", "no mbarrier was initialized"},
    {"09_bulk_mbarrier", "wrong2", kRace, "cp.async.bulk", "overwrites a live mbarrier"},
    {"09_bulk_mbarrier", "wrong3", kDeadlock, "nvvm.mbarrier.try_wait", "1 of 2 arrivals"},
    {"09_mbarrier_life", "wrong1", kSync, "nvvm.mbarrier", "no mbarrier was initialized"},
    {"09_mbarrier_life", "wrong2", kSync, "nvvm.mbarrier.init", "initializes a live mbarrier"},
    {"09_mbarrier_life", "wrong3", kRace, "llvm.store", "overwrites a live mbarrier"},
    {"09_mbarrier_life", "wrong4", kDeadlock, "nvvm.mbarrier.try_wait", "1 of 2 arrivals"},
    {"09_mbarrier_life", "wrong5", kRace, "llvm.load", "not waited for"},
    {"10_noinc", "wrong1", kAny, "", ""},
    {"10_noinc", "wrong2", kDeadlock, "nvvm.mbarrier.try_wait", "arrivals came"},
    {"10_default_form", "wrong", kAny, "", ""},
    {"11_ldmatrix_alignment", "wrong", kAlign, "nvvm.ldmatrix", "multiple of 16"},
    {"11_ldmatrix_alignment_declared", "wrong", kAlign, "nvvm.ldmatrix", "multiple of 16"},
    {"11_vector_alignment", "wrong", kAlign, "llvm.load", "multiple of 16"},
    {"11_ldmatrix_row", "wrong", kUninitialized, "nvvm.ldmatrix", "unwritten"},
    {"12_descriptor_distances", "wrong", kUninitialized, "tile.wgmma", "unwritten", 128, 16384},
    {"12_descriptor_swizzle", "wrong1", kUninitialized, "tile.wgmma", "unwritten", 128, 16384},
    {"12_descriptor_swizzle", "wrong2", kAlign, "tile.wgmma", "128 bytes past a multiple of 1024", 128,
     16384},
    {"12_descriptor_swizzle", "wrong3", kSync, "tile.wgmma", "base offset", 128, 16384},
    {"12_descriptor_swizzle", "wrong4", kSync, "tile.wgmma", "different descriptors", 128, 16384},
    {"13_bulk_tail", "wrong", kDeadlock, "nvvm.mbarrier.try_wait", "-768 bytes are outstanding"},
    {"14_store_reuse", "wrong1", kRace, "llvm.store", "a bulk store of thread 0 still reads"},
    {"14_store_reuse", "wrong2", kRace, "llvm.store", "a bulk store of thread 0 still reads"},
    {"14_store_reuse", "wrong3", kRace, "llvm.store", "a bulk store of thread 0 still reads"},
    {"14_store_reuse", "wrong4", kRace, "", "shared bytes"},
    {"14_store_result", "wrong1", kRace, "llvm.load", "reads without order against a bulk copy"},
    {"14_store_result", "wrong2", kRace, "", "without order against"},
    {"14_store_exit", "wrong1", kSync, "cp.async.bulk", "exits with a bulk store"},
    {"14_store_exit", "wrong2", kSync, "cp.async.bulk", "exits with a bulk store"},
    {"15_plain_against_atomic", "wrong", kRace, "", "written without order against block"},
    {"15_two_blocks_one_byte", "wrong", kRace, "llvm.store", "written without order against block"},
    {"15_noncoherent", "wrong", kRace, "llvm.store", "non-coherent"},
    {"15_global_in_block", "wrong", kRace, "llvm.", "without order against thread"},
    {"18_shuffle_mask", "wrong1", kSync, "nvvm.shfl", "shuffle reads lane 16"},
    {"18_shuffle_mask", "wrong2", kDeadlock, "nvvm.shfl", "never come"},
    {"18_shuffle_mask", "wrong3", kSync, "nvvm.shfl", "does not name it"},
    {"18_movmatrix_exited", "wrong", kSync, "tile.move_matrix", "needs all 32 lanes"},
    {"18_shuffle_exited", "wrong", kSync, "nvvm.shfl", "has exited"},
    {"19_setmaxnreg", "wrong1", kDeadlock, "nvvm.setmaxregister", "registers", 384},
    {"19_setmaxnreg", "wrong2", kSync, "nvvm.setmaxregister", "a decrease from 168 to 176", 384},
    {"19_setmaxnreg", "wrong3", kSync, "nvvm.setmaxregister", "not executed alike", 384},
    {"20_global_end", "wrong", kBounds, "llvm.load", "outside of every allocation"},
    {"20_shared_unwritten", "wrong1", kUninitialized, "llvm.load", "unwritten"},
    {"20_shared_unwritten", "wrong2", kBounds, "llvm.load", "outside of the block's shared memory"},
    {"20_global_unwritten", "wrong", kUninitialized, "llvm.load", "unwritten"},
    {"21_page_index", "wrong2", kBounds, "llvm.load", "outside of every allocation"},
    {"22_divergent_barrier", "wrong1", kDeadlock, "nvvm.barrier", "never come"},
    {"22_divergent_barrier", "wrong2", kDeadlock, "nvvm.barrier", "the rest never comes"},
    {"23_elected_arrival", "wrong", kRace, "llvm.load", "without order"},
    {"23_elected_wait", "wrong", kRace, "llvm.", "without order"},
    {"23_late_lane", "wrong", kSync, "nvvm.mbarrier.try_wait", "phase"},
    {"24_shared_code", "wrong", kRace, "llvm.store", "written without order against block"},
};

constexpr uint32_t kBlocks = 2, kPoolWords = 1024, kTilePoolWords = 4096;

struct Result {
  Report report;
  std::vector<uint32_t> bits;
};

Result runOnce(const HostKernel &kernel, const LaunchOptions &options, uint32_t threads = 64,
               uint32_t shared = 4096) {
  test::Launcher launcher;
  launcher.options = options;
  // A pool of 64 pages of 16 floats; all but four pages hold NaN.
  std::vector<uint32_t> pool(kPoolWords);
  std::vector<int32_t> table = {3, 5, 1, 60};
  for (uint32_t i = 0; i < kPoolWords; ++i) {
    bool owned = std::find(table.begin(), table.end(), int32_t(i / 16)) != table.end();
    pool[i] = owned ? 0x3f800000 + (i << 8) : 0x7fc00000;
  }
  if (shared > 4096) { // tiles of bf16 from 1 to 1.5 instead
    pool.resize(kTilePoolWords);
    for (uint32_t i = 0; i < kTilePoolWords; ++i)
      pool[i] = (0x3f80 + i * 37 % 64) | (0x3f80 + i * 11 % 61) << 16;
  }
  uint32_t *in = launcher.upload("in", pool);
  // Rows of 128 bytes; boxes of 8 rows, or of as many as both operands of a product have, swizzled.
  rt::BulkTensor tensor{
      "map", reinterpret_cast<uint64_t>(in), rt::DType::I32, {32, kPoolWords / 32}, {128}, {32, 8}, 0};
  if (shared > 4096)
    tensor = {"map", tensor.base, rt::DType::BF16, {64, kTilePoolWords / 32}, {128}, {64, 72}, 128};
  const rt::EncodedMap map = encodeTensorMap(tensor);
  int32_t *tablePtr = launcher.upload("table", table);
  uint32_t *out = launcher.output<uint32_t>("out", kBlocks * threads);
  const auto rows = static_cast<int32_t>(threads / 32);
  const rt::EncodedMap outMap = encodeTensorMap({"out",
                                                 reinterpret_cast<uint64_t>(out),
                                                 rt::DType::I32,
                                                 {32, int64_t{kBlocks} * rows},
                                                 {128},
                                                 {32, rows},
                                                 0});
  int32_t n = kPoolWords;
  Result result;
  result.report = launcher.run(kernel, {kBlocks}, {threads}, shared, in, out, tablePtr, n, map, outMap);
  result.bits.assign(out, out + kBlocks * threads);
  return result;
}

/// All ways of running that must make no difference.
std::vector<LaunchOptions> allWays() {
  std::vector<LaunchOptions> ways;
  for (AsyncEffects effects : {AsyncEffects::Eager, AsyncEffects::Delayed, AsyncEffects::Random})
    for (bool shuffle : {false, true})
      for (unsigned threads : {1u, 2u})
        for (uint64_t seed = 0; seed < (shuffle || effects == AsyncEffects::Random ? 4u : 1u); ++seed) {
          LaunchOptions o;
          o.asyncEffects = effects;
          o.shuffle = shuffle;
          o.threads = threads;
          o.seed = seed;
          ways.push_back(o);
        }
  return ways;
}

std::string path(const char *file) { return std::string("planted/") + file + ".mlir"; }

class PlantedBug : public testing::TestWithParam<Planted> {};

TEST_P(PlantedBug, twinPasses) {
  auto program = test::Program::fromFile(path(GetParam().file));
  std::vector<uint32_t> first;
  Counters counters;
  for (const LaunchOptions &way : allWays()) {
    Result result = runOnce(program->kernel("right"), way, GetParam().threads, GetParam().shared);
    ASSERT_TRUE(result.report.clean()) << result.report.describe();
    if (first.empty()) {
      first = result.bits;
      counters = result.report.counters;
    }
    ASSERT_EQ(result.bits, first);
    ASSERT_EQ(result.report.counters, counters);
  }
}

TEST_P(PlantedBug, twinGivesTheSameBitsUnchecked) {
  const Planted &bug = GetParam();
  auto checked = test::Program::fromFile(path(bug.file)),
       fast = test::Program::fromFile(path(bug.file), false);
  LaunchOptions options;
  Result first = runOnce(checked->kernel("right"), options, bug.threads, bug.shared);
  for (AsyncEffects effects : {AsyncEffects::Eager, AsyncEffects::Delayed}) {
    options.asyncEffects = effects;
    EXPECT_EQ(runOnce(fast->kernel("right"), options, bug.threads, bug.shared).bits, first.bits);
  }
}

TEST_P(PlantedBug, isFound) {
  const Planted &bug = GetParam();
  auto program = test::Program::fromFile(path(bug.file));
  for (const LaunchOptions &way : allWays()) {
    Result result = runOnce(program->kernel(bug.kernel), way, bug.threads, bug.shared);
    if (bug.kind == kAny) {
      ASSERT_FALSE(result.report.clean());
      continue;
    }
    EXPECT_GT(result.report.total(bug.kind), 0u) << result.report.describe();
    bool blamed = false;
    for (const Finding &f : result.report.findings)
      blamed |= f.kind == bug.kind && f.op.find(bug.op) != std::string::npos &&
                f.message.find(bug.message) != std::string::npos;
    ASSERT_TRUE(blamed) << "effects " << int(way.asyncEffects) << " shuffle " << way.shuffle << " seed "
                        << way.seed << "\n"
                        << result.report.describe();
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug, testing::ValuesIn(kBugs), [](const auto &info) {
  return std::string(info.param.file) + "_" + info.param.kernel;
});

TEST(PlantedNumbers, pageIndexOffByOneGivesNaN) {
  auto program = test::Program::fromFile(path("21_page_index"));
  Result right = runOnce(program->kernel("right"), {}), wrong = runOnce(program->kernel("wrong1"), {});
  EXPECT_TRUE(wrong.report.clean()) << wrong.report.describe();
  for (uint32_t bits : right.bits)
    EXPECT_NE(bits, 0x7fc00000u);
  for (uint32_t bits : wrong.bits)
    EXPECT_EQ(bits, 0x7fc00000u);
}

TEST(PlantedNumbers, delayedProductsShowTheNextRound) {
  auto program = test::Program::fromFile(path("08_release_before_wait"));
  LaunchOptions eager, delayed;
  eager.asyncEffects = AsyncEffects::Eager;
  delayed.asyncEffects = AsyncEffects::Delayed;
  Result right = runOnce(program->kernel("right"), delayed, 160, 16384);
  EXPECT_EQ(runOnce(program->kernel("wrong"), eager, 160, 16384).bits, right.bits);
  EXPECT_NE(runOnce(program->kernel("wrong"), delayed, 160, 16384).bits, right.bits);
}

TEST(PlantedNumbers, delayedCopiesShowOldBytes) {
  for (auto [file, kernel] : {std::pair("03_wait_count", "wrong"), std::pair("06_bulk_wait", "wrong1"),
                              std::pair("14_store_reuse", "wrong1"), std::pair("14_store_result", "wrong1"),
                              std::pair("14_store_exit", "wrong1")}) {
    auto program = test::Program::fromFile(path(file));
    LaunchOptions eager, delayed;
    eager.asyncEffects = AsyncEffects::Eager;
    delayed.asyncEffects = AsyncEffects::Delayed;
    Result right = runOnce(program->kernel("right"), delayed);
    EXPECT_EQ(runOnce(program->kernel(kernel), eager).bits, right.bits);
    EXPECT_NE(runOnce(program->kernel(kernel), delayed).bits, right.bits);
  }
}

// The seed decides which lane is late.
TEST(PlantedTime, aLaneThatComesLateMissesAPhase) {
  auto program = test::Program::fromFile(path("23_late_lane"));
  unsigned found = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    LaunchOptions options;
    options.shuffle = true;
    options.seed = seed;
    Report right = runOnce(program->kernel("right"), options).report;
    EXPECT_TRUE(right.clean()) << right.describe();
    Report wrong = runOnce(program->kernel("wrong"), options).report;
    found += !wrong.clean();
    EXPECT_EQ(wrong.total(FindingKind::Race), 0u) << wrong.describe();
  }
  EXPECT_EQ(found, 8u);
}

// Unexpected bytes hang the block if they come early; if they come late, the phase completes without them.
TEST(PlantedNumbers, bytesThatNobodyExpected) {
  auto program = test::Program::fromFile(path("06_expect_bytes"));
  LaunchOptions eager, delayed;
  eager.asyncEffects = AsyncEffects::Eager;
  delayed.asyncEffects = AsyncEffects::Delayed;
  EXPECT_GT(runOnce(program->kernel("wrong4"), eager).report.total(FindingKind::Deadlock), 0u);
  Report report = runOnce(program->kernel("wrong4"), delayed).report;
  EXPECT_EQ(report.total(FindingKind::Deadlock), 0u);
  EXPECT_NE(report.describe().find("completes without the 1024 bytes of this copy"), std::string::npos)
      << report.describe();
}

} // namespace

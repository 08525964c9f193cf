//===- CostTest.cpp - The cost model against an H200 ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares the cost model with measurements on an H200, and with itself.
#include "PlanChecks.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Constants of Cost.cpp that the measurements below do not include.
constexpr double launchSeconds = 3.6e-6, mergeBehindSeconds = 5.0e-6;

Manifest manifestOf(int qHeads, int dim, Argument::Store store, const char *schedule, int rows, int keys) {
  SampleOptions options;
  options.qHeads = qHeads;
  options.kvHeads = 8;
  options.dim = dim;
  options.store = store;
  options.bigRows = rows;
  Manifest m = sampleManifest(options);
  m.schedule = schedule;
  m.kernels[0].sharedBytes = 102400;
  m.kernels[1].keys = keys;
  m.kernels[1].schedule =
      schedule == std::string_view("wgmma") ? KernelInfo::Schedule::Wgmma : KernelInfo::Schedule::Mma;
  m.kernels[1].sharedBytes = 200 << 10;
  m.launches[1].overlapsPrevious = false;
  return m;
}

Plan planOf(const Manifest &m, const Batch &batch, const PlanOptions &options = {}) {
  Result<Plan> plan = makePlan(m, batch, options);
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

// Attend kernels on one H200, 2026-11-20, bf16, L2 flushed.
TEST(Cost, DecodeIsPredicted) {
  const struct {
    int32_t tokens;
    double seconds; ///< of the attend kernel alone
  } anchors[] = {{4096, 9.8e-6}, {32768, 38e-6}, {65536, 69e-6}, {131072, 130e-6}};
  const Manifest m = manifestOf(32, 128, Argument::Store::Paged, "mma", 128, 64);
  for (const auto &anchor : anchors) {
    const Plan plan = planOf(m, simpleBatch({anchor.tokens}, {1}));
    ASSERT_FALSE(plan.mergeRows.empty());
    const double predicted = plan.stats.estimatedSeconds - launchSeconds - mergeBehindSeconds;
    EXPECT_NEAR(predicted / anchor.seconds, 1, 0.1)
        << anchor.tokens << " tokens: " << predicted * 1e6 << " us";
  }
}

// With 32 tasks on 264 blocks, each is cut in eight, though eight more shares would be 3 % shorter: the wait
// of a task when all blocks read costs more (128 tasks that were cut once took an H200 125.2 us, and 129.1 on
// all its blocks, 2026-11-23).
TEST(Cost, TasksWaitForABusyMemory) {
  const Manifest m = manifestOf(32, 128, Argument::Store::Paged, "mma", 128, 64);
  PlanOptions options;
  options.blocks = 264;
  const std::vector<int32_t> lengths(4, 8192), rows(4, 1);
  const Plan plan = *makePlan(m, simpleBatch(lengths, rows), options);
  EXPECT_EQ(plan.stats.usedBlocks, 256);
  EXPECT_EQ(plan.stats.cuts, 224);
  // Tasks that many rows read at once are not affected (few-shot trees took 9.3 ms with this cost, and 8.5
  // without).
  const Manifest trees = manifestOf(32, 128, Argument::Store::Paged, "wgmma", 128, 64);
  const Plan node = planOf(trees, simpleBatch({200000}, {20}));
  ASSERT_GT(trees.kernels[static_cast<size_t>(node.kernel)].rows, 16);
  EXPECT_LT(node.stats.fixedCost,
            5 * node.stats.tileCost); // 3.5, most of it for its partial results; 7.6 with the cost
}

// Steps of decoding whose tasks are assigned whole leave blocks without work, and the other blocks use their
// bandwidth. Cut and whole on an H100, in us (2026-11-25): 16 x 4,096 94.5 and 90.8, 12 x 4,096 74.8
// and 70.8, 16 x 1,024 29.7 and 27.1, 40 x 2,048 128.3 and 116.3; 4 x 8,192 51.7 and 66.4, 20 x 4,096 118.8
// and 122.1.
TEST(Cost, FewBlocksDrawWhatAllWould) {
  const Manifest m = manifestOf(32, 128, Argument::Store::Packed, "mma", 128, 64);
  const auto cuts = [&](const Manifest &of, std::vector<int32_t> lengths) {
    const std::vector<int32_t> rows(lengths.size(), 1);
    return planOf(of, simpleBatch(std::move(lengths), rows), {.blocks = 264}).stats.cuts;
  };
  const auto times = [](size_t count, int32_t tokens) { return std::vector<int32_t>(count, tokens); };
  for (const auto &lengths : {times(16, 4096), times(12, 4096), times(16, 1024), times(40, 2048)})
    EXPECT_EQ(cuts(m, lengths), 0) << lengths.size() << " x " << lengths.front();
  for (const auto &lengths : {times(4, 8192), times(20, 4096), times(1, 131072)})
    EXPECT_GT(cuts(m, lengths), 0) << lengths.size() << " x " << lengths.front();
  // 64 tasks of 16,384 tokens on as many blocks took an H200 166 us, 50 GB/s for each; cut 133. Eight of
  // 1,024 took 15 us and are as little work as fills 32 shares (2026-11-29).
  EXPECT_GT(cuts(m, times(8, 16384)), 0);
  // A block alone at the end has only its own bandwidth.
  std::vector<int32_t> mixed = times(15, 2048);
  EXPECT_EQ(cuts(m, mixed), 0);
  mixed.push_back(65536);
  EXPECT_GT(cuts(m, mixed), 0);
  // Kernels that convert elements were not measured.
  Manifest converted = m;
  converted.arguments[1].keyFormat = converted.arguments[1].valueFormat = Format::integers(8, 128);
  EXPECT_GT(cuts(converted, times(16, 8192)), 0);
}

// A chunk after a context that the L2 does not hold: 1,024 tasks of 32 heads for 132 blocks. Shares that
// begin anywhere would read 64 MiB of memory for each task (15.4 ms on an H200, 2026-11-23); whole tasks of a
// head begin together and share their reads (13.5 ms).
TEST(Cost, LongContextsAreNotCutForBalance) {
  Manifest m = manifestOf(32, 128, Argument::Store::Paged, "wgmma", 128, 128);
  m.kvHeads = 32;
  for (Argument &argument : m.arguments)
    argument.kvHeads = argument.role == Argument::Role::KV ? 32 : argument.kvHeads;
  m.kernels[1].blocksPerSM = 1;
  const Plan chunk = planOf(m, simpleBatch({131072}, {4096}));
  EXPECT_EQ(chunk.kernel, 1);
  EXPECT_EQ(chunk.stats.cuts, 0);
  EXPECT_EQ(chunk.tasks.size(), 1024u);
  // Cuts are still worth their bytes if whole tasks would leave three quarters of the blocks without work.
  EXPECT_GT(planOf(m, simpleBatch({131072}, {128})).stats.cuts, 0);
  // 480 tasks: whole, four for some blocks and three for others (6.43 ms there). The last 96 of the heads are
  // split at three quarters, so that 36 blocks do the last quarters (6.25 ms). With an L2 of unknown size,
  // shares begin anywhere.
  GpuModel unknown = defaultGpu();
  unknown.l2Bytes = 0;
  PlanOptions options;
  const PlanStats rounds = planOf(m, simpleBatch({131072}, {1920}), options).stats;
  EXPECT_EQ(rounds.cuts, 96);
  options.gpu = &unknown;
  const PlanStats shares = planOf(m, simpleBatch({131072}, {1920}), options).stats;
  EXPECT_GT(shares.cuts, 0);
  EXPECT_LT(shares.balance, rounds.balance);
}

TEST(Cost, MergesBesideTheAttentionCostLess) {
  Manifest m = manifestOf(32, 128, Argument::Store::Paged, "mma", 128, 64);
  const Batch batch = simpleBatch({4096}, {1});
  ASSERT_EQ(m.kernels[2].role, KernelInfo::Role::Merge);
  const double behind = planOf(m, batch).stats.estimatedSeconds;
  m.launches[1].overlapsPrevious = true;
  const double beside = planOf(m, batch).stats.estimatedSeconds;
  EXPECT_NEAR(beside / 13e-6, 1, 0.1) << beside * 1e6 << " us"; // measured with the attend kernels above
  EXPECT_GT(behind, beside + 4e-6);
}

TEST(Cost, PrefillIsPredicted) {
  const struct {
    const char *schedule;
    int dim, rows, keys;
    double flopsPerSecond; ///< of whole tiles
  } anchors[] = {{"wgmma", 64, 192, 128, 590e12}, {"wgmma", 128, 128, 128, 725e12},
                 {"wgmma", 256, 128, 64, 770e12}, {"mma", 64, 128, 64, 230e12},
                 {"mma", 128, 128, 64, 290e12},   {"mma", 256, 64, 32, 275e12}};
  for (const auto &anchor : anchors) {
    const Manifest m =
        manifestOf(64, anchor.dim, Argument::Store::Dense, anchor.schedule, anchor.rows, anchor.keys);
    const Plan plan = planOf(m, simpleBatch({16384}, {16384}));
    const double predicted = plan.stats.flops / plan.stats.estimatedSeconds;
    EXPECT_NEAR(predicted / anchor.flopsPerSecond, 1, 0.15)
        << anchor.schedule << " " << anchor.dim << ": " << predicted / 1e12 << " TFLOP/s";
  }
}

TEST(Cost, KeysReadAgainCostNoBandwidth) {
  // Rows of a prompt read its keys many times over; the same keys for one row are bound by memory.
  const Manifest m = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128);
  const Plan prefill = planOf(m, simpleBatch({16384}, {16384}));
  const double bytes = static_cast<double>(prefill.stats.kvBytes);
  EXPECT_GT(bytes / prefill.stats.estimatedSeconds, defaultGpu().memoryBytesPerSecond);
  const Plan decode = planOf(m, simpleBatch({1 << 20}, {1}));
  EXPECT_LT(static_cast<double>(decode.stats.kvBytes) / decode.stats.estimatedSeconds,
            defaultGpu().memoryBytesPerSecond);
}

/// A prompt that `rows` sequences of one row share, and a few tokens of each.
Batch sharedBatch(int32_t rows, int32_t promptTokens, int32_t tokens) {
  Batch batch = simpleBatch(std::vector<int32_t>(static_cast<size_t>(rows), tokens),
                            std::vector<int32_t>(static_cast<size_t>(rows), 1));
  OperandBatch &operand = batch.operands[0];
  operand.lengths.push_back(promptTokens);
  operand.pos0.assign(static_cast<size_t>(rows), promptTokens);
  operand.pos0.push_back(0);
  operand.rowFirst.push_back(0);
  operand.rowLast.push_back(rows);
  operand.tokens = std::max(operand.tokens, int64_t{promptTokens});
  std::fill(batch.qPos.begin(), batch.qPos.end(), promptTokens + tokens - 1);
  return batch;
}

TEST(Cost, WhatEveryRowReadsAgainComesFromTheL2) {
  const Manifest m = manifestOf(32, 128, Argument::Store::Dense, "mma", 128, 64);
  PlanOptions options;
  options.strategy = Strategy::ByQuery;
  const PlanStats stats = planOf(m, sharedBatch(256, 4096, 16), options).stats;
  const double l2Seconds = static_cast<double>(stats.kvBytes) / defaultGpu().l2BytesPerSecond;
  EXPECT_GT(stats.estimatedSeconds, l2Seconds);
  EXPECT_LT(stats.estimatedSeconds, l2Seconds + 20e-6);
  EXPECT_GT(stats.estimatedSeconds, 3 * planOf(m, sharedBatch(256, 4096, 16)).stats.estimatedSeconds);
}

TEST(Cost, PartsCostByTheirRows) {
  // 2,048 parts of 4 packed rows, and 64 of 128: charged as 128 rows, the small ones would outweigh all else.
  const Manifest m = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128);
  const Plan plan = planOf(m, sharedBatch(256, 4096, 16));
  ASSERT_EQ(plan.stats.partialBytes, 2 * 2 * 256 * 32 * (128 + 1) * 4);
  EXPECT_LT(plan.stats.estimatedSeconds, 100e-6) << plan.stats.estimatedSeconds;
}

// Few-shot prompting with 50 branches on one H200, 2026-11-20, at three steps (benchmarks/results): prompts
// of 4,000 tokens, and `tokens` tokens of each branch after them, read once by wgmma, and row by row.
TEST(Cost, SharedPromptsArePredicted) {
  const struct {
    int32_t tokens;
    double flatten, byQuery; ///< seconds
  } anchors[] = {{67, 29.3e-6, 106.5e-6}, {200, 34.1e-6, 106.9e-6}, {334, 40.5e-6, 115.4e-6}};
  Manifest m = manifestOf(32, 128, Argument::Store::Paged, "wgmma", 128, 128);
  m.launches[1].overlapsPrevious = true;
  for (const auto &anchor : anchors) {
    const Batch batch = sharedBatch(50, 4000, anchor.tokens);
    PlanOptions options;
    const double flatten = planOf(m, batch, options).stats.estimatedSeconds;
    options.strategy = Strategy::ByQuery;
    const double byQuery = planOf(m, batch, options).stats.estimatedSeconds;
    EXPECT_NEAR(flatten / anchor.flatten, 1, 0.1) << flatten * 1e6 << " us";
    EXPECT_NEAR(byQuery / anchor.byQuery, 1, 0.1) << byQuery * 1e6 << " us";
  }
}

// Merging 8 branches of reasoning on one H200 took 15.9 us by query, 19.8 us flattened; flattening the
// prompts above takes a third of the time.
TEST(Cost, TheQuickerStrategyIsTaken) {
  Manifest m = manifestOf(32, 128, Argument::Store::Paged, "wgmma", 128, 128);
  m.launches[1].overlapsPrevious = true;
  PlanOptions options;
  options.quickest = true;
  const Batch few = sharedBatch(8, 1100, 518), many = sharedBatch(50, 4000, 200);
  const Plan byQuery = planOf(m, few, options), flat = planOf(m, many, options);
  EXPECT_EQ(byQuery.strategy, Strategy::ByQuery);
  EXPECT_EQ(flat.strategy, Strategy::Flatten);
  EXPECT_TRUE(same(flat, planOf(m, many)));
  EXPECT_LT(byQuery.stats.estimatedSeconds, planOf(m, few).stats.estimatedSeconds);
  options.strategy = Strategy::ByNode; // other options are obeyed
  EXPECT_EQ(planOf(m, few, options).strategy, Strategy::ByNode);
  options.strategy = Strategy::Flatten;
  options.fixedSplit = 256;
  EXPECT_EQ(planOf(m, few, options).strategy, Strategy::Flatten);
}

// 8,192 rows do not fit the multiprocessors at once; 2,048 do.
TEST(Cost, MergesOfManyRowsPingPong) {
  Manifest m = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128), wide = m;
  ASSERT_EQ(m.kernels[2].role, KernelInfo::Role::Merge);
  wide.kernels[2].blocksPerSM = 64;
  for (const auto &[rows, seconds] : {std::pair(256, 8.8e-6), std::pair(64, 0.0)}) {
    const Batch batch = sharedBatch(rows, 4096, 16);
    const Plan plan = planOf(m, batch);
    ASSERT_EQ(plan.mergeRows.size(), static_cast<size_t>(rows * 32));
    EXPECT_NEAR(plan.stats.estimatedSeconds - planOf(wide, batch).stats.estimatedSeconds, seconds, 0.1e-6);
  }
}

TEST(Cost, APromptThatFewTilesReadIsCut) {
  // 8 tasks of 32 key tiles beside 240 short ones: whole, each would take four times a block's share.
  const Manifest m = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128);
  for (int32_t rows : {30, 64, 120}) {
    const PlanStats stats = planOf(m, sharedBatch(rows, 4000, 200)).stats;
    EXPECT_GT(stats.cuts, 0) << rows;
    EXPECT_LE(stats.maxCost - stats.meanCost, stats.tileCost + stats.fixedCost) << rows;
  }
}

TEST(Cost, FewBlocksTakeLonger) {
  const Manifest decode = manifestOf(32, 128, Argument::Store::Paged, "mma", 128, 64);
  const Manifest prefill = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128);
  for (const auto &[m, batch] :
       {std::pair(&decode, simpleBatch({131072}, {1})), std::pair(&prefill, simpleBatch({8192}, {8192}))}) {
    double previous = 0;
    for (int blocks : {132, 8, 1}) {
      PlanOptions options;
      options.blocks = blocks;
      const double seconds = planOf(*m, batch, options).stats.estimatedSeconds;
      EXPECT_GT(seconds, 2 * previous) << blocks << " blocks";
      previous = seconds;
    }
  }
}

TEST(Cost, PeaksStandInForWhatNobodyMeasured) {
  const Manifest m = manifestOf(32, 128, Argument::Store::Dense, "wgmma", 128, 128);
  PlanOptions options;
  options.gpu = findGpu("H100");
  ASSERT_EQ(options.gpu->wgmma.flopsPerSecond, 0);
  const Plan plan = planOf(m, simpleBatch({32768}, {32768}), options);
  const double flopsPerSecond = plan.stats.flops / plan.stats.estimatedSeconds;
  EXPECT_LT(flopsPerSecond, options.gpu->flopsPerSecond);
  EXPECT_GT(flopsPerSecond, 0.9 * options.gpu->flopsPerSecond);
}

TEST(Cost, PredictionsAreForMeasuredDevices) {
  EXPECT_EQ(findGpuOfDevice("NVIDIA H200"), &defaultGpu());
  EXPECT_EQ(findGpuOfDevice("NVIDIA H200 MIG 1g.18gb"), nullptr);
  EXPECT_EQ(findGpuOfDevice("NVIDIA H100 PCIe"), nullptr);
  EXPECT_EQ(findGpuOfDevice(""), nullptr);
}

} // namespace

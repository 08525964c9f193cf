//===- BalanceTest.cpp - How work is cut and assigned ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"
#include "attn_rt/plan/Plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

TEST(Balance, LongSequenceIsCutIntoEqualShares) {
  const Manifest m = sampleManifest();
  PlanOptions options;
  options.blocks = 16;
  const Plan plan = *makePlan(m, simpleBatch({64 * 1024}, {1}), options);
  EXPECT_EQ(plan.stats.usedBlocks, 16);
  EXPECT_EQ(plan.stats.cuts, 14); // two heads on sixteen blocks
  EXPECT_LT(plan.stats.balance, 1.01);
  for (const PlanTask &task : plan.tasks)
    EXPECT_GE(task.partial, 0);
}

TEST(Balance, HeadsThatShareRowsOfMemoryGoInLockstep) {
  SampleOptions sizes;
  sizes.qHeads = 32;
  sizes.kvHeads = 8;
  sizes.dim = 128;
  Manifest m = sampleManifest(sizes);
  PlanOptions options;
  options.blocks = 264;
  const Batch batch = simpleBatch(std::vector<int32_t>(20, 16384), std::vector<int32_t>(20, 1));
  EXPECT_FALSE(goesInLockstep(*makePlan(m, batch, options), 8)); // lines of 256 bytes
  for (auto [keys, values] : {std::pair(8, 8), std::pair(8, 4), std::pair(4, 2)}) {
    m.arguments[1].keyFormat = Format::integers(keys, 128);
    m.arguments[1].valueFormat = Format::integers(values, 128);
    const Plan plan = *makePlan(m, batch, options);
    EXPECT_TRUE(checkPlan(m, batch, options));
    EXPECT_LT(plan.stats.balance, 1.02);
    EXPECT_GT(plan.stats.cuts, 0);
    EXPECT_TRUE(goesInLockstep(plan, 8));
  }
  // Tiles of many rows are limited by arithmetic, not by memory.
  const Batch rows = simpleBatch({40000}, {200});
  const Plan prefill = *makePlan(m, rows, options);
  EXPECT_GT(m.kernels[static_cast<size_t>(prefill.kernel)].rows, 16);
  EXPECT_GT(prefill.stats.cuts, 0);
  EXPECT_FALSE(goesInLockstep(prefill, 8));
}

/// For each block, the number of its tasks that read all of `tokens` tokens.
std::vector<int> tasksOf(const Plan &plan, int32_t tokens) {
  std::vector<int> found(static_cast<size_t>(plan.blocks), 0);
  for (size_t b = 0; b < found.size(); ++b)
    for (int32_t t = plan.blockTasks[b]; t < plan.blockTasks[b + 1]; ++t) {
      const PlanTask &task = plan.tasks[static_cast<size_t>(t)];
      const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
      found[b] += segment.kvBegin == 0 && segment.kvEnd == tokens;
    }
  return found;
}

TEST(Balance, ShortSequencesBesideALongOneAreSpread) {
  SampleOptions sizes;
  sizes.dim = 128; // lines of memory that no two heads share
  const Manifest m = sampleManifest(sizes);
  PlanOptions options;
  options.blocks = 64;
  const auto tasks = [&](int count) { // of 320 tokens, two heads each
    std::vector<int32_t> lengths{256 * 1024};
    lengths.resize(static_cast<size_t>(count) + 1, 320);
    const Batch batch = simpleBatch(lengths, std::vector<int32_t>(lengths.size(), 1));
    EXPECT_TRUE(checkPlan(m, batch, options));
    const Plan plan = *makePlan(m, batch, options);
    EXPECT_LT(plan.stats.balance, 1.02);
    return tasksOf(plan, 320);
  };
  const std::vector<int> few = tasks(8); // less than a share: they leave the long tasks in step
  EXPECT_GE(*std::max_element(few.begin(), few.end()), 15);
  for (int count : {50, 100, 160}) {
    const std::vector<int> many = tasks(count);
    EXPECT_EQ(std::accumulate(many.begin(), many.end(), 0), 2 * count);
    EXPECT_LE(*std::max_element(many.begin(), many.end()), 2 * count / options.blocks + 1) << count;
  }
  // If short tasks are most of the work, they are not hidden among long ones.
  const std::vector<int> most = tasks(3000);
  EXPECT_EQ(std::accumulate(most.begin(), most.end(), 0), 6000);
}

// Covers long tasks that fill all shares, and long tasks that end before, so that some shares hold only short
// ones.
TEST(Balance, SpreadTasksAreAllThere) {
  SampleOptions sizes;
  sizes.dim = 128;
  const Manifest m = sampleManifest(sizes);
  PlanOptions options;
  int cut = 0;
  for (int blocks : {6, 16, 33, 64})
    for (int32_t longest : {1500, 5000, 20000, 65536})
      for (int count : {1, 2, 3, 7, 20})
        for (int shorts : {3, 10, 40, 150}) {
          options.blocks = blocks;
          std::vector<int32_t> lengths(static_cast<size_t>(count), longest);
          lengths.resize(lengths.size() + static_cast<size_t>(shorts), 70);
          const Batch batch = simpleBatch(lengths, std::vector<int32_t>(lengths.size(), 1));
          cut += checkPlan(m, batch, options);
        }
  EXPECT_GT(cut, 100);
}

TEST(Balance, NoShareIsShorterThan256Tokens) {
  Manifest m = sampleManifest();
  m.launches[1].overlapsPrevious = false; // otherwise a merge costs so little that shorter shares pay
  for (int32_t length : {1, 200, 511, 512, 1000, 3000}) {
    const Plan plan = *makePlan(m, simpleBatch({length}, {1}));
    for (int b = 0; b < plan.blocks && plan.stats.cuts > 0; ++b) {
      int64_t tokens = 0;
      for (int32_t t = plan.blockTasks[static_cast<size_t>(b)];
           t < plan.blockTasks[static_cast<size_t>(b) + 1]; ++t)
        for (int32_t s = plan.tasks[static_cast<size_t>(t)].segmentBegin;
             s < plan.tasks[static_cast<size_t>(t)].segmentEnd; ++s)
          tokens +=
              plan.segments[static_cast<size_t>(s)].kvEnd - plan.segments[static_cast<size_t>(s)].kvBegin;
      // The last tile of a sequence may be short.
      EXPECT_TRUE(tokens == 0 || tokens > 256 - 64) << length << ": " << tokens;
    }
    if (length < 512)
      EXPECT_EQ(plan.stats.cuts, 0);
  }
}

TEST(Balance, ManyEqualTasksAreDealtWhole) {
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8});
  PlanOptions options;
  options.blocks = 264;
  const Plan plan =
      *makePlan(m, simpleBatch(std::vector<int32_t>(66, 2048), std::vector<int32_t>(66, 1)), options);
  EXPECT_EQ(plan.stats.cuts, 0);
  EXPECT_EQ(plan.partialRows, 0);
  EXPECT_DOUBLE_EQ(plan.stats.balance, 1);
}

// Causal prefill: later tiles of rows see more, so the longest come first and nothing is merged.
TEST(Balance, PrefillGoesLongestFirst) {
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8});
  GpuModel gpu = defaultGpu();
  gpu.l2Bytes = 0; // otherwise tasks are in sections: SectionsTest.cpp
  PlanOptions options;
  options.gpu = &gpu;
  options.blocks = 132;
  const Plan plan = *makePlan(m, simpleBatch({8192}, {8192}), options);
  EXPECT_EQ(plan.partialRows, 0);
  EXPECT_LT(plan.stats.balance, 1.05);
  for (int b = 0; b < plan.blocks; ++b)
    for (int32_t t = plan.blockTasks[static_cast<size_t>(b)] + 1;
         t < plan.blockTasks[static_cast<size_t>(b) + 1]; ++t) {
      const auto size = [&](int32_t task) {
        const PlanSegment &s =
            plan.segments[static_cast<size_t>(plan.tasks[static_cast<size_t>(task)].segmentBegin)];
        return (s.kvEnd - s.kvBegin + 63) / 64;
      };
      EXPECT_GE(size(t - 1), size(t));
    }
  // Causal tiles above the diagonal are not in the plan: about half of the square is.
  EXPECT_LT(static_cast<double>(plan.stats.tiles), 0.52 * 8 * (8192 * 4 / 128) * (8192 / 64));
}

// 192 long tasks on 132 blocks, over more tokens than the L2 holds: one round of whole tasks, and the other
// 60 as halves that begin at the first token or in the middle. Shares of a cut list begin anywhere.
TEST(Balance, WhatIsLeftOfARoundIsHalved) {
  Manifest m = sampleManifest({.qHeads = 16, .kvHeads = 4, .dim = 128});
  for (KernelInfo &kernel : m.kernels)
    kernel.schedule = KernelInfo::Schedule::Wgmma; // it reads faster than memory delivers
  GpuModel gpu = defaultGpu();
  gpu.l2Bytes = 1 << 20;
  PlanOptions options;
  options.gpu = &gpu;
  options.blocks = 132;
  const Batch batch = simpleBatch({20'000}, {1536});
  const Plan plan = *makePlan(m, batch, options);
  EXPECT_EQ(plan.stats.cuts, 60);
  EXPECT_LT(plan.stats.balance, 1.05);
  int64_t whole = 0;
  for (const PlanTask &task : plan.tasks) {
    ASSERT_EQ(task.segmentEnd, task.segmentBegin + 1);
    const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
    whole += task.partial < 0;
    EXPECT_TRUE(segment.kvBegin == 0 || std::abs(segment.kvBegin - 10'000) < 1000) << segment.kvBegin;
  }
  EXPECT_EQ(whole, 132);
  // If the L2 holds the tokens, blocks may read them at any time.
  gpu.l2Bytes = 1 << 30;
  EXPECT_LT(makePlan(m, batch, options)->stats.balance, plan.stats.balance);
  // Two thirds of a round are left over: blocks without work take the last quarter of three tasks each.
  gpu.l2Bytes = 1 << 20;
  options.blocks = 115;
  const Plan most = *makePlan(m, batch, options);
  EXPECT_EQ(most.stats.cuts, 80);
  EXPECT_LT(most.stats.balance, 1.08);
  for (const PlanTask &task : most.tasks) {
    const PlanSegment &segment = most.segments[static_cast<size_t>(task.segmentBegin)];
    EXPECT_TRUE(segment.kvBegin == 0 || std::abs(segment.kvBegin - 14'400) < 700) << segment.kvBegin;
  }
}

// Random batches in rounds are right and within the capacity, and split tasks have two to four pieces.
TEST(Balance, RoundsOfRandomBatches) {
  // Memory delivers two thirds of what a cut list reads, and no L2 helps.
  constexpr GpuModel gpu{"no L2", 1e9, 5e10, 1, 1};
  Rng rng(8);
  int rounds = 0;
  for (int round = 0; round < 100; ++round) {
    const int kvHeads = 1 << below(rng, 3);
    const auto see = round % 2 ? Visibility::Kind::Causal : Visibility::Kind::All;
    const Manifest m = sampleManifest({.qHeads = 4 * kvHeads,
                                       .kvHeads = kvHeads,
                                       .visibility = visibility(see),
                                       .ends = {64, 256},
                                       .sinkLogits = round % 5 == 0,
                                       .bigRows = 32,
                                       .headClasses = round % 3 ? std::vector<HeadClassInfo>() : duo});
    PlanOptions options;
    options.gpu = &gpu;
    options.blocks = static_cast<int>(4 + below(rng, 24));
    std::vector<int32_t> lengths(1 + below(rng, 2)), rows;
    for (int32_t &length : lengths) {
      length = static_cast<int32_t>(2000 + below(rng, 2000));
      rows.push_back(static_cast<int32_t>(1 + below(rng, 200)));
    }
    Batch batch = simpleBatch(lengths, rows);
    for (int h = 0; h < kvHeads && !m.headClasses.empty(); ++h)
      batch.classes.push_back(static_cast<int32_t>(below(rng, 2)));
    const Plan plan = *makePlan(m, batch, options);
    expectRight(m, batch, plan, planCapacity(m, PlanLimits::of(m, batch), options));
    if (HasFailure())
      return;
    // The number of tasks by (rows, head).
    std::map<std::tuple<int32_t, int32_t>, int> pieces;
    for (const PlanTask &task : plan.tasks)
      ++pieces[{task.packedBegin, task.ordinal}];
    std::set<int> numbers;
    for (const auto &[task, count] : pieces)
      numbers.insert(count);
    if (numbers.size() <= 2 && *numbers.rbegin() > 1 &&
        plan.stats.maxCost - plan.stats.meanCost > plan.stats.tileCost + plan.stats.fixedCost) {
      ++rounds;
      EXPECT_LE(*numbers.rbegin(), 4);
      EXPECT_LE(plan.stats.cuts, options.blocks);
    }
  }
  EXPECT_GT(rounds, 5);
}

// Streaming heads are short tasks beside long ones, and balance counts their cost.
TEST(Balance, HeadsCountByTheirCost) {
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8, .ends = {64, 256}, .headClasses = duo});
  Batch batch = simpleBatch(std::vector<int32_t>(16, 32768), std::vector<int32_t>(16, 1));
  batch.classes = {1, 1, 0, 1, 1, 1, 0, 1};
  const Plan plan = *makePlan(m, batch);
  EXPECT_EQ(plan.classHeads, (std::vector<int32_t>{2, 6}));
  EXPECT_LE(plan.stats.balance, 1.05);
  EXPECT_EQ(plan.stats.tiles, 16 * (2 * 32768 / 64 + 6 * (64 + 256) / 64));
  EXPECT_EQ(plan.stats.kvBytes, 16 * (2 * 32768 + 6 * (64 + 256)) * 2 * 64 * 2);
  batch.ends = {0, 0}; // streaming heads see nothing: tasks that write zeros
  EXPECT_EQ(makePlan(m, batch)->stats.tiles, 16 * 2 * 32768 / 64);
}

} // namespace

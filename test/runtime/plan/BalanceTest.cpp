//===- BalanceTest.cpp - How work is cut and dealt out --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"
#include "attn_rt/plan/Plan.h"

#include <gtest/gtest.h>

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

TEST(Balance, HeadsThatShareRowsOfMemoryGoAbreast) {
  SampleOptions sizes;
  sizes.qHeads = 32;
  sizes.kvHeads = 8;
  sizes.dim = 128;
  Manifest m = sampleManifest(sizes);
  PlanOptions options;
  options.blocks = 264;
  const Batch batch = simpleBatch(std::vector<int32_t>(79, 8192), std::vector<int32_t>(79, 1));
  EXPECT_FALSE(goesAbreast(*makePlan(m, batch, options), 8)); // lines of 256 bytes
  for (auto [keys, values] : {std::pair(8, 8), std::pair(8, 4), std::pair(4, 2)}) {
    m.arguments[1].keyFormat = Format::integers(keys, 128);
    m.arguments[1].valueFormat = Format::integers(values, 128);
    const Plan plan = *makePlan(m, batch, options);
    EXPECT_TRUE(checkPlan(m, batch, options));
    EXPECT_LT(plan.stats.balance, 1.02);
    EXPECT_GT(plan.stats.cuts, 0);
    EXPECT_TRUE(goesAbreast(plan, 8));
  }
  // Tiles of many rows compute, and memory has time.
  const Batch rows = simpleBatch({40000}, {200});
  const Plan prefill = *makePlan(m, rows, options);
  EXPECT_GT(m.kernels[static_cast<size_t>(prefill.kernel)].rows, 16);
  EXPECT_GT(prefill.stats.cuts, 0);
  EXPECT_FALSE(goesAbreast(prefill, 8));
}

TEST(Balance, NoShareIsShorterThan256Tokens) {
  Manifest m = sampleManifest();
  m.launches[1].overlapsPrevious = false; // else a merge costs so little that shorter ones pay
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
  gpu.l2Bytes = 0; // else in sections: SectionsTest.cpp
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

// Streaming heads are short tasks beside long ones, and balance counts them as such.
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

//===- ExtendTest.cpp - Plans of batches that grow --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Appends tokens to the instances that only one group of rows sees, as decoding does.
void grow(Batch &batch, Rng &rng, int32_t most) {
  for (size_t s = 0; s + 1 < batch.qStart.size(); ++s) {
    if (batch.qStart[s] == batch.qStart[s + 1])
      continue;
    const auto tokens = static_cast<int32_t>(below(rng, static_cast<size_t>(most) + 1));
    for (int32_t row = batch.qStart[s]; row < batch.qStart[s + 1]; ++row)
      batch.qPos[static_cast<size_t>(row)] += tokens;
    OperandBatch &leaves = batch.operands.back();
    for (size_t i = 0; i < leaves.instances(); ++i)
      if (leaves.rowFirst[i] == batch.qStart[s] && leaves.rowLast[i] == batch.qStart[s + 1])
        for (int32_t head = 0; head < leaves.heads; ++head) // in a ragged instance every other head grows
          leaves.lengths[leaves.listOf(i, head)] += head % 2 ? 0 : tokens;
  }
}

/// Expects the stats that updates carry along to be those of the plan itself.
void expectFigures(const Manifest &m, const Plan &plan) {
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  int64_t tiles = 0, tokens = 0;
  for (const PlanTask &task : plan.tasks)
    for (int32_t s = task.segmentBegin; s < task.segmentEnd; ++s) {
      const PlanSegment &segment = plan.segments[static_cast<size_t>(s)];
      tiles += (segment.kvEnd - segment.kvBegin + kernel.keys - 1) / kernel.keys;
      tokens += segment.kvEnd - segment.kvBegin;
    }
  EXPECT_EQ(plan.stats.tiles, tiles);
  EXPECT_EQ(plan.stats.kvBytes, tokens * (m.keyDim + m.valueDim) * 2);
  const double overhead = plan.stats.fixedCost * static_cast<double>(plan.tasks.size());
  const double total = plan.stats.meanCost * plan.stats.usedBlocks;
  EXPECT_GE(total, plan.stats.tileCost * static_cast<double>(tiles));
  EXPECT_LE(total, plan.stats.tileCost * static_cast<double>(tiles) + overhead);
}

TEST(Extend, GrowingBatchesAreCoveredExactly) {
  Rng rng(29);
  int kept = 0, renewed = 0, keptCut = 0;
  for (int round = 0; round < 80; ++round) {
    const bool tree = round % 2;
    std::vector<HeadClassInfo> classes;
    for (size_t c = round % 3 ? 0 : 1 + below(rng, 3); c > 0; --c)
      classes.push_back({"class" + std::to_string(c), randomVisibility(rng)});
    const Manifest m = sampleManifest({.visibility = randomVisibility(rng),
                                       .ends = {static_cast<int32_t>(below(rng, 300)), 60},
                                       .operands = tree ? 2 : 1,
                                       .sinkLogits = below(rng, 2) == 1,
                                       .bigRows = 64,
                                       .keyAlign = below(rng, 2) ? 16 : 1,
                                       .headClasses = classes,
                                       .ragged = round % 5 == 1});
    std::vector<int32_t> lengths, rows;
    for (size_t s = 1 + below(rng, 5); s > 0; --s) {
      lengths.push_back(static_cast<int32_t>(below(rng, round % 4 ? 3000 : 400)));
      rows.push_back(static_cast<int32_t>(below(rng, 4) ? 1 : 1 + below(rng, 30)));
    }
    Batch batch = tree ? treeBatch(rng, 1500) : simpleBatch(lengths, rows);
    for (int h = 0; h < m.kvHeads && !classes.empty(); ++h)
      batch.classes.push_back(static_cast<int32_t>(below(rng, classes.size())));
    if (round % 5 == 1)
      makeRagged(m, batch, rng);
    PlanOptions options;
    options.strategy = static_cast<Strategy>(below(rng, std::size(strategyNames)));
    options.blocks = static_cast<int>(1 + below(rng, 30));
    options.quickest = round % 3 == 2;
    options.fixedSplit = round % 6 ? 0 : 128;
    options.gpu = round % 2 ? &slowGpu : &defaultGpu();
    PlanLimits limits = PlanLimits::of(m, batch);
    limits.tokensPerRow += 4000;
    const PlanCapacity capacity = planCapacity(m, limits, options);
    Planner planner(m, options, capacity), twin(m, options, capacity);
    Plan plan, other;
    ASSERT_TRUE(planner.plan(batch, plan));
    ASSERT_TRUE(twin.plan(batch, other));
    double planned = plan.stats.maxCost - plan.stats.meanCost;
    for (int step = 0; step < 12; ++step) {
      grow(batch, rng, step % 4 ? 1 : 70);
      const Result<bool> inPlace = planner.update(batch, plan);
      ASSERT_TRUE(inPlace) << inPlace.error().message;
      kept += *inPlace;
      renewed += !*inPlace;
      keptCut += *inPlace && plan.stats.cuts > 0;
      expectRight(m, batch, plan, capacity, options.fixedSplit == 0);
      expectFigures(m, plan);
      const double excess = plan.stats.maxCost - plan.stats.meanCost;
      if (!*inPlace)
        planned = excess;
      EXPECT_LE(excess,
                std::max({planned, plan.stats.tileCost + plan.stats.fixedCost, 0.05 * plan.stats.meanCost}));
      ASSERT_TRUE(twin.update(batch, other));
      EXPECT_TRUE(same(plan, other)); // equal batches give equal plans
      if (HasFatalFailure() || HasNonfatalFailure())
        return;
    }
  }
  EXPECT_GT(kept, 300);
  EXPECT_GT(keptCut, 50);
  EXPECT_GT(renewed, 50);
}

// A step of decoding needs a new plan only now and then.
TEST(Extend, StepsKeepThePlan) {
  Rng rng(31);
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8});
  for (size_t sequences : {8, 64, 256}) {
    std::vector<int32_t> lengths;
    for (size_t s = 0; s < sequences; ++s)
      lengths.push_back(static_cast<int32_t>(100 + below(rng, 8000)));
    Batch batch = simpleBatch(lengths, std::vector<int32_t>(sequences, 1));
    Planner planner(m, {}, planCapacity(m, PlanLimits::of(m, batch), {}));
    Plan plan;
    ASSERT_TRUE(planner.plan(batch, plan));
    double planned = plan.stats.maxCost - plan.stats.meanCost;
    int renewed = 0;
    for (int step = 0; step < 200; ++step) {
      for (size_t s = 0; s < sequences; ++s) {
        ++batch.qPos[s];
        ++batch.operands[0].lengths[s];
      }
      const uint64_t structure = plan.structure;
      const Result<bool> inPlace = planner.update(batch, plan);
      ASSERT_TRUE(inPlace);
      renewed += !*inPlace;
      EXPECT_EQ(plan.structure == structure, *inPlace);
      const double excess = plan.stats.maxCost - plan.stats.meanCost;
      if (!*inPlace)
        planned = excess;
      EXPECT_LE(excess,
                std::max({planned, plan.stats.tileCost + plan.stats.fixedCost, 0.05 * plan.stats.meanCost}));
    }
    EXPECT_LE(renewed, 20) << sequences;
  }
}

// Changes other than growth, and plans that this planner did not make last, are planned anew.
TEST(Extend, OtherwiseANewPlan) {
  const Manifest m = sampleManifest({.ends = {100, 10}});
  Batch batch = simpleBatch({4000, 300}, {1, 1});
  PlanOptions options;
  options.blocks = 6;
  Planner planner(m, options, planCapacity(m, PlanLimits::of(m, simpleBatch({1, 1, 1}, {1, 1, 1})), options));
  Plan plan;
  const auto updated = [&](const Batch &next, Plan &into) {
    const Result<bool> inPlace = planner.update(next, into);
    EXPECT_TRUE(inPlace);
    EXPECT_TRUE(same(into, *makePlan(m, next, options)) || *inPlace);
    return *inPlace;
  };
  EXPECT_FALSE(updated(batch, plan)); // nothing was planned yet
  EXPECT_TRUE(updated(batch, plan));  // nothing has changed
  Batch next = batch;
  ++next.qPos[1];
  ++next.operands[0].lengths[1];
  EXPECT_TRUE(updated(next, plan));
  EXPECT_EQ(plan.stats.kvBytes, makePlan(m, next, options)->stats.kvBytes);
  EXPECT_FALSE(updated(batch, plan)); // shrank
  next.operands[0].lengths[0] += 1000;
  next.qPos[0] += 1000;
  EXPECT_FALSE(updated(next, plan)); // much more to do
  Batch wider = next;
  wider.ends = {50, 10};
  EXPECT_FALSE(updated(wider, plan));
  EXPECT_FALSE(updated(simpleBatch({4000, 300, 5}, {1, 1, 1}), plan));
  Plan elsewhere = *makePlan(m, batch, options);
  EXPECT_FALSE(updated(simpleBatch({4000, 300, 5}, {1, 1, 1}), elsewhere));
  EXPECT_FALSE(updated(simpleBatch({4000, 300, 5}, {1, 1, 1}), plan)); // no longer the last plan
  EXPECT_TRUE(updated(simpleBatch({4000, 300, 6}, {1, 1, 1}), plan));
}

// Fixed splits leave a task without keys out; it must come back with the first key.
TEST(Extend, TasksThatWereLeftOutComeBack) {
  const Manifest m = sampleManifest({.sinkLogits = true});
  PlanOptions options;
  options.fixedSplit = 256;
  Batch batch = simpleBatch({300, 0, 20}, {1, 1, 1});
  const PlanCapacity capacity =
      planCapacity(m, PlanLimits::of(m, simpleBatch({300, 300, 300}, {1, 1, 1})), options);
  Planner planner(m, options, capacity);
  Plan plan;
  ASSERT_TRUE(planner.plan(batch, plan));
  ++batch.operands[0].lengths[1];
  ++batch.qPos[1];
  ASSERT_TRUE(planner.update(batch, plan));
  expectRight(m, batch, plan, capacity);
}

// A refused plan cannot be extended.
TEST(Extend, RefusedPlansAreNotExtended) {
  const Manifest m = sampleManifest();
  Batch batch = simpleBatch({100, 200}, {1, 1});
  const PlanOptions options;
  PlanCapacity capacity = planCapacity(m, PlanLimits::of(m, batch), options);
  capacity.tasks = 1;
  Planner planner(m, options, capacity);
  Plan plan;
  EXPECT_FALSE(planner.plan(batch, plan));
  ++batch.operands[0].lengths[0];
  ++batch.qPos[0];
  EXPECT_FALSE(planner.update(batch, plan));
}

} // namespace

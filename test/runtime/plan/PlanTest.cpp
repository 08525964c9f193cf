//===- PlanTest.cpp - Attention as a list of key ranges with a cost -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/plan/Plan.h"
#include "PlanChecks.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

TEST(Plan, RandomBatchesAreCoveredExactly) {
  Rng rng(11);
  int cut = 0;
  const std::pair<int, int> heads[] = {{8, 2}, {7, 1}, {4, 4}, {10, 2}};
  for (int round = 0; round < 600; ++round) {
    const auto [qHeads, kvHeads] = heads[below(rng, 4)];
    std::vector<HeadClassInfo> classes;
    for (size_t c = round % 3 ? 0 : 1 + below(rng, 3); c > 0; --c)
      classes.push_back({"class" + std::to_string(c), randomVisibility(rng)});
    const Manifest m =
        sampleManifest({.qHeads = qHeads,
                        .kvHeads = kvHeads,
                        .visibility = randomVisibility(rng),
                        .ends = {static_cast<int32_t>(below(rng, 300)), static_cast<int32_t>(below(rng, 70))},
                        .sinkLogits = below(rng, 2) == 1,
                        .bigRows = 64,
                        .keys = below(rng, 2) ? 64 : 32,
                        .keyAlign = below(rng, 2) ? 16 : 1,
                        .headClasses = classes,
                        .ragged = round % 4 == 1});
    std::vector<int32_t> lengths, rows;
    const size_t most = round % 2 ? 3000 : 300;
    for (size_t s = below(rng, 6); s > 0; --s) {
      lengths.push_back(static_cast<int32_t>(below(rng, 8) ? below(rng, most) : 0));
      rows.push_back(static_cast<int32_t>(below(rng, 3) ? 1 : below(rng, 40)));
    }
    PlanOptions options;
    options.strategy = static_cast<Strategy>(below(rng, std::size(strategyNames)));
    options.blocks = static_cast<int>(1 + below(rng, 40));
    options.fixedSplit = round % 5 ? 0 : 64 << below(rng, 4);
    GpuModel gpu = round % 2 ? slowGpu : defaultGpu();
    gpu.l2Bytes = static_cast<int64_t>(below(rng, 2) << below(rng, 24)); // many sections, few or none
    options.gpu = &gpu;
    Batch batch = simpleBatch(lengths, rows);
    for (int h = 0; h < kvHeads && !classes.empty(); ++h)
      batch.classes.push_back(static_cast<int32_t>(below(rng, classes.size())));
    if (round % 4 == 1)
      makeRagged(m, batch, rng);
    cut += checkPlan(m, batch, options);
    if (HasFatalFailure())
      return;
  }
  EXPECT_GT(cut, 25); // otherwise the test says nothing about cutting
}

TEST(Plan, TreesAreCoveredExactly) {
  Rng rng(13);
  int cut = 0;
  for (int round = 0; round < 60; ++round) {
    const Manifest m = sampleManifest({.visibility = visibility(Visibility::Kind::Causal),
                                       .ends = {20, 90},
                                       .operands = 2,
                                       .sinkLogits = round % 2 == 1,
                                       .bigRows = 64,
                                       .headClasses = round % 4 ? std::vector<HeadClassInfo>() : duo,
                                       .ragged = round % 3 == 1});
    Batch batch = treeBatch(rng, static_cast<int32_t>(below(rng, 2000)));
    if (!m.headClasses.empty())
      batch.classes = {1, 0};
    if (round % 3 == 1)
      makeRagged(m, batch, rng);
    for (size_t s = 0; s < std::size(strategyNames); ++s) {
      PlanOptions options;
      options.strategy = static_cast<Strategy>(s);
      options.blocks = static_cast<int>(1 + below(rng, 30));
      options.fixedSplit = round % 5 ? 0 : 128;
      GpuModel gpu = round % 3 ? slowGpu : defaultGpu();
      gpu.l2Bytes = static_cast<int64_t>(below(rng, 2) << below(rng, 24));
      options.gpu = &gpu;
      cut += checkPlan(m, batch, options);
      if (HasFatalFailure())
        return;
    }
  }
  EXPECT_GT(cut, 30);
}

// The strategies differ in how often shared tokens are read, and in the cuts.
TEST(Plan, NodesAreTasksOfTheirOwn) {
  Rng rng(2);
  const Manifest m = sampleManifest({.store = Argument::Store::Dense, .operands = 2});
  const Batch batch = treeBatch(rng, 4000);
  PlanOptions options;
  options.strategy = Strategy::ByNode;
  const Plan nodes = *makePlan(m, batch, options);
  EXPECT_EQ(nodes.stats.kvBytes, problemFloor(m, batch).kvBytes);
  EXPECT_EQ(nodes.stats.cuts, 0);
  EXPECT_EQ(nodes.tasks.size(), 2u * (3 + 6)); // two KV heads
  options.strategy = Strategy::ByNodeChunk;
  const Plan chunks = *makePlan(m, batch, options);
  EXPECT_EQ(chunks.stats.kvBytes, nodes.stats.kvBytes);
  EXPECT_EQ(chunks.stats.cuts, 2 * 7); // 4,000 tokens in chunks of 512
  for (const PlanTask &task : chunks.tasks) {
    EXPECT_EQ(task.segmentEnd - task.segmentBegin, 1);
    const PlanSegment &segment = chunks.segments[static_cast<size_t>(task.segmentBegin)];
    EXPECT_EQ(segment.kvBegin % chunkTokens, 0);
    EXPECT_LE(segment.kvEnd - segment.kvBegin, chunkTokens);
  }
  EXPECT_EQ(chunks.segments.size(), 8u + 2 + 6); // both heads' tasks read the same segments
}

TEST(Plan, FlattenReadsSharedInstancesOnce) {
  Rng rng(1);
  const Manifest m = sampleManifest({.store = Argument::Store::Dense, .operands = 2});
  const Batch batch = treeBatch(rng, 4000);
  PlanOptions flatten, byQuery;
  byQuery.strategy = Strategy::ByQuery;
  const Plan shared = *makePlan(m, batch, flatten), apart = *makePlan(m, batch, byQuery);
  EXPECT_EQ(shared.stats.kvBytes, problemFloor(m, batch).kvBytes);
  EXPECT_GT(apart.stats.kvBytes, 4 * shared.stats.kvBytes);
}

// Rows of which one shared instance is all they see write their results directly.
TEST(Plan, AloneSharedInstanceNeedsNoMerge) {
  const Manifest m = sampleManifest({.visibility = visibility(Visibility::Kind::All)});
  Batch batch{4, {0, 1, 2, 3, 4}, {0, 0, 0, 0}, {{{200}, {0}, {0}, {4}, 0, 0, {}, 200, {}}}, {}, 0, {}};
  PlanOptions options;
  options.blocks = 2;
  checkPlan(m, batch, options);
  const Plan plan = *makePlan(m, batch, options);
  EXPECT_EQ(plan.tasks.size(), 2u);
  EXPECT_EQ(plan.partialRows, 0);
}

TEST(Plan, KernelFollowsTheRows) {
  const Manifest m = sampleManifest(); // groups of 4
  EXPECT_EQ(makePlan(m, simpleBatch({100, 100}, {1, 4}))->kernel, 0);
  EXPECT_EQ(makePlan(m, simpleBatch({100, 100}, {1, 5}))->kernel, 1);
  EXPECT_EQ(makePlan(m, simpleBatch({500}, {300}))->kernel, 1);
  PlanOptions options;
  options.kernel = 0; // whatever the rows
  options.blocks = 3;
  checkPlan(m, simpleBatch({100, 100}, {1, 50}), options);
  EXPECT_EQ(makePlan(m, simpleBatch({100, 100}, {1, 50}), options)->kernel, 0);
}

TEST(Plan, BlocksFollowTheKernelAndTheDevice) {
  const Manifest m = sampleManifest();   // two small blocks fit a multiprocessor, one large
  constexpr int32_t tokens = 64 * 13200; // key tiles that 264, 132 and 20 blocks share evenly
  const Batch one = simpleBatch({tokens}, {1}), many = simpleBatch({tokens}, {50});
  EXPECT_EQ(makePlan(m, one)->blocks, 264);
  EXPECT_EQ(makePlan(m, many)->blocks, 132);
  PlanOptions options;
  options.multiprocessors = 10;
  EXPECT_EQ(makePlan(m, one, options)->blocks, 20);
  options.blocks = 7;
  EXPECT_EQ(makePlan(m, one, options)->blocks, 7);
}

TEST(Plan, BlocksWithoutWorkAreLeftOutUnlessAskedFor) {
  const Manifest m = sampleManifest(); // two KV heads
  const Batch batch = simpleBatch({100}, {1});
  const Plan plan = *makePlan(m, batch);
  EXPECT_EQ(plan.blocks, 2);
  EXPECT_EQ(plan.blockTasks, (std::vector<int32_t>{0, 1, 2}));
  PlanOptions options;
  options.blocks = 264; // a captured launch keeps its grid
  EXPECT_EQ(makePlan(m, batch, options)->blocks, 264);
  EXPECT_EQ(makePlan(m, batch, options)->blockTasks.size(), 265u);
}

TEST(Plan, EmptyRequestsGetTasksWithoutSegments) {
  const Manifest m = sampleManifest();
  const Plan plan = *makePlan(m, simpleBatch({0, 10}, {1, 1}));
  int empty = 0;
  for (const PlanTask &task : plan.tasks)
    empty += task.segmentBegin == task.segmentEnd;
  EXPECT_EQ(empty, 2);
  EXPECT_TRUE(makePlan(m, simpleBatch({}, {}))->tasks.empty());
}

TEST(Plan, EndsOfTheBatchOverrideThoseCompiled) {
  const Manifest m = sampleManifest({.visibility = visibility(Visibility::Kind::Window, 0), .ends = {256}});
  Batch batch = simpleBatch({1000}, {1});
  EXPECT_EQ(makePlan(m, batch)->segments[0].kvBegin, 744);
  batch.ends = {10};
  EXPECT_EQ(makePlan(m, batch)->segments[0].kvBegin, 990);
  EXPECT_EQ(makePlan(m, batch)->ends, (std::vector<int32_t>{10}));
  batch.ends = {-1};
  EXPECT_NE(checkBatch(m, batch).error().message.find("'ends'[0]: expected at least 0, got -1"),
            std::string::npos);
  batch.ends = {1, 2};
  EXPECT_NE(checkBatch(m, batch).error().message.find("'ends': expected 1 elements, got 2"),
            std::string::npos);
}

// A kernel that copies whole boxes starts with the box of the first visible token, and reads no box twice.
TEST(Plan, SegmentsBeginWithABox) {
  const auto planOf = [](int32_t sink, int32_t recent) {
    const Manifest m = sampleManifest(
        {.visibility = either(visibility(Visibility::Kind::Sink, 0), visibility(Visibility::Kind::Recent, 1)),
         .ends = {sink, recent},
         .keyAlign = 32});
    PlanOptions options;
    options.blocks = 2; // one for each head: nothing is cut
    return *makePlan(m, simpleBatch({1000}, {1}), options);
  };
  const Plan apart = planOf(40, 190); // tokens 0 to 39 and 810 to 999
  ASSERT_EQ(apart.tasks[0].segmentEnd - apart.tasks[0].segmentBegin, 2);
  const PlanSegment &recent = apart.segments[1];
  EXPECT_EQ(apart.segments[0].kvEnd, 40);
  EXPECT_EQ(recent.kvBegin, 800);
  EXPECT_EQ(recent.fullBegin, 810);
  EXPECT_EQ(recent.kvEnd, 1000);
  const Plan together = planOf(40, 950); // token 50 is in the box of tokens 32 to 63, as token 39 is
  ASSERT_EQ(together.tasks[0].segmentEnd - together.tasks[0].segmentBegin, 1);
  EXPECT_EQ(together.segments[0].kvBegin, 0);
  EXPECT_EQ(together.segments[0].fullBegin, 50);
  EXPECT_EQ(together.segments[0].kvEnd, 1000);
}

// One plan serves every layer with as many heads in each class.
TEST(Plan, DependsOnHowManyHeadsAClassHas) {
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8, .ends = {64, 256}, .headClasses = duo});
  Batch a = simpleBatch({9000, 50, 700}, {1, 2, 1}), b = a, c = a;
  a.classes = {0, 1, 0, 1, 1, 1, 1, 1};
  b.classes = {1, 1, 1, 1, 1, 0, 1, 0};
  c.classes = {1, 1, 1, 1, 1, 0, 0, 0};
  EXPECT_TRUE(same(*makePlan(m, a), *makePlan(m, b)));
  EXPECT_FALSE(same(*makePlan(m, a), *makePlan(m, c)));
  EXPECT_EQ(ordinalHeads(m, a), (std::vector<int32_t>{0, 2, 1, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ordinalHeads(m, b), (std::vector<int32_t>{5, 7, 0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(classHeadsText(m, classHeads(m, c)), "3 retrieval, 5 streaming");
}

// A class's own store is read for its heads alone, and not counted for others.
TEST(Plan, StoresOfAClass) {
  const Manifest m = sampleManifest({.qHeads = 32,
                                     .kvHeads = 8,
                                     .store = Argument::Store::Dense,
                                     .ends = {64, 256},
                                     .operands = 2,
                                     .headClasses = duo,
                                     .apart = true});
  for (const std::vector<int32_t> &lengths :
       {std::vector<int32_t>{9000, 50, 700}, {17}, {4000, 4000, 4000, 1}}) {
    Batch batch = simpleBatch(lengths, std::vector<int32_t>(lengths.size(), 1));
    batch.operands[0].tokens = 9000;
    OperandBatch recent = batch.operands[0];
    for (size_t i = 0; i < lengths.size(); ++i) { // the last 300 tokens
      recent.pos0[i] = std::max(lengths[i] - 300, 0);
      recent.lengths[i] = lengths[i] - recent.pos0[i];
    }
    batch.operands.push_back(recent);
    for (const std::vector<int32_t> &classes :
         {std::vector<int32_t>{0, 1, 0, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}}) {
      batch.classes = classes;
      PlanOptions options;
      options.blocks = 40;
      const PlanCapacity capacity = planCapacity(m, PlanLimits::of(m, batch), options);
      Planner planner(m, options, capacity);
      Plan plan;
      ASSERT_TRUE(planner.plan(batch, plan));
      expectRight(m, batch, plan, capacity);
      int64_t tokens = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        const int32_t streaming = static_cast<int32_t>(std::count(classes.begin(), classes.end(), 1));
        tokens += (8 - streaming) * lengths[i] +
                  streaming * (std::min(lengths[i], 256) +
                               (recent.pos0[i] ? 0 : std::clamp(lengths[i] - 256, 0, 44)));
      }
      EXPECT_EQ(plan.stats.kvBytes, tokens * 2 * 64 * 2);
      EXPECT_EQ(problemFloor(m, batch).kvBytes, plan.stats.kvBytes);
    }
  }
}

// A shared instance is worth reading once for the heads that see it, but not for heads that see almost none
// of it.
TEST(Plan, SharingIsDecidedForEachClass) {
  const Manifest m =
      sampleManifest({.store = Argument::Store::Dense, .ends = {4, 16}, .operands = 2, .headClasses = duo});
  Rng rng(1);
  Batch batch = treeBatch(rng, 4000);
  batch.classes = {0, 1};
  PlanOptions options;
  options.blocks = 1; // nothing is cut
  const Plan plan = *makePlan(m, batch, options);
  EXPECT_EQ(plan.stats.kvBytes, problemFloor(m, batch).kvBytes + 5 * 4 * (64 + 64) * 2);
  for (const PlanTask &task : plan.tasks)
    EXPECT_EQ(task.partial >= 0, task.headClass == 0);
}

TEST(Plan, Deterministic) {
  const Manifest m = sampleManifest({.qHeads = 32, .kvHeads = 8});
  Rng rng(17);
  std::vector<int32_t> lengths;
  for (int s = 0; s < 40; ++s)
    lengths.push_back(static_cast<int32_t>(below(rng, 9000)));
  const Batch batch = simpleBatch(lengths, std::vector<int32_t>(40, 1));
  const PlanLimits limits = PlanLimits::of(m, batch);
  Planner planner(m, {}, planCapacity(m, limits, {}));
  Plan first, again;
  ASSERT_TRUE(planner.plan(batch, first));
  Plan other;
  ASSERT_TRUE(
      planner.plan(simpleBatch({5000, 3}, {1, 2}), other)); // fills the scratch memory with other data
  ASSERT_TRUE(planner.plan(batch, again));
  EXPECT_TRUE(same(first, again));
  EXPECT_TRUE(same(first, *makePlan(m, batch)));
}

TEST(Plan, SaysWhereRowsFollowEachOther) {
  const auto follow = [](const Manifest &m, const Batch &batch) {
    const Plan plan = *makePlan(m, batch);
    return std::count_if(plan.tasks.begin(), plan.tasks.end(), [](const PlanTask &task) {
             return (task.flags & taskRowsFollow) != 0;
           }) == std::ssize(plan.tasks);
  };
  const Manifest causal = sampleManifest();
  Batch batch = simpleBatch({300}, {200});
  EXPECT_TRUE(follow(causal, batch));
  EXPECT_FALSE(follow(sampleManifest({.visibility = {Visibility::Kind::All}}), batch));
  batch.qPos[150] += 1; // a gap, then two rows at one position
  EXPECT_FALSE(follow(causal, batch));
}

TEST(Plan, TakesTheKernelForShortSequencesWhereAllAre) {
  Manifest m = sampleManifest({.qHeads = 4, .kvHeads = 4, .bigRows = 128});
  KernelInfo brief = m.kernels[1];
  brief.rows = 64;
  brief.sequencesUpTo = 512;
  m.kernels[0] = brief; // replaces the kernel for single rows
  const auto rows = [&](const Batch &batch) {
    return m.kernels[static_cast<size_t>(makePlan(m, batch)->kernel)].rows;
  };
  EXPECT_EQ(rows(simpleBatch({512, 300}, {512, 300})), 64);
  EXPECT_EQ(rows(simpleBatch({513, 300}, {512, 300})), 128); // tokens
  EXPECT_EQ(rows(simpleBatch({513, 300}, {513, 300})), 128); // rows
  EXPECT_EQ(rows(simpleBatch({4000, 300}, {1, 1})), 128);    // few rows of many tokens
}

TEST(Plan, Errors) {
  const Manifest m = sampleManifest();
  PlanLimits limits;
  limits.rows = 2;
  limits.groups = 2;
  PlanOptions options;
  options.blocks = 4;
  Planner planner(m, options, planCapacity(m, limits, options));
  Plan plan;
  EXPECT_TRUE(planner.plan(simpleBatch({4000, 9}, {1, 1}), plan));
  Status status = planner.plan(simpleBatch(std::vector<int32_t>(9, 9), std::vector<int32_t>(9, 1)), plan);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "the plan needs 18 tasks, but its buffers hold 8: make them for larger limits");
  options.kernel = 2;
  EXPECT_EQ(makePlan(m, simpleBatch({1}, {1}), options).error().message,
            "PlanOptions::kernel is 2; the attend kernels of 'decode' are 0 ('decode_rows16'), 1 "
            "('decode_rows128')");
  options.kernel = -1;
  options.fixedSplit = 100;
  EXPECT_EQ(
      makePlan(m, simpleBatch({1}, {1}), options).error().message,
      "a fixed split of 100 tokens: kernel 'decode_rows16' has tiles of 64 keys, so 64 or 128 would do");
  options.fixedSplit = 0;
  options.blocks = -1;
  EXPECT_NE(makePlan(m, simpleBatch({1}, {1}), options)
                .error()
                .message.find("expected between 1 and 1048575 blocks, got -1"),
            std::string::npos);
  for (size_t s = 0; s < std::size(strategyNames); ++s)
    EXPECT_EQ(parseStrategy(strategyNames[s]), static_cast<Strategy>(s));
  EXPECT_EQ(parseStrategy("by-magic"), std::nullopt);
}

} // namespace

//===- SectionsTest.cpp - Heads in the order of the L2 --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The default GPU with an L2 of another size; 0: of unknown size, so that the L2 orders nothing.
GpuModel withL2(int64_t bytes) {
  GpuModel gpu = defaultGpu();
  gpu.l2Bytes = bytes;
  return gpu;
}

Plan planOn(const GpuModel &gpu, const Manifest &manifest, const Batch &batch) {
  PlanOptions options;
  options.gpu = &gpu;
  options.blocks = 132;
  return *makePlan(manifest, batch, options);
}

/// The most pairs of an instance and a head that blocks read at one time, if every key took the same time.
size_t pairsAtOnce(const Plan &plan) {
  constexpr int64_t moment = 1024; // keys
  std::map<int64_t, std::set<std::pair<int32_t, int32_t>>> pairs;
  for (int b = 0; b < plan.blocks; ++b) {
    int64_t time = 0;
    for (int32_t t = plan.blockTasks[static_cast<size_t>(b)]; t < plan.blockTasks[static_cast<size_t>(b) + 1];
         ++t) {
      const PlanTask &task = plan.tasks[static_cast<size_t>(t)];
      const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
      const int64_t end = time + segment.kvEnd - segment.kvBegin;
      for (int64_t at = (time + moment - 1) / moment; at * moment < end; ++at)
        pairs[at].insert({segment.instance, task.ordinal});
      time = end;
    }
  }
  size_t most = 0;
  for (const auto &[at, some] : pairs)
    most = std::max(most, some.size());
  return most;
}

const Manifest manyHeads = sampleManifest(
    {.qHeads = 32, .kvHeads = 32, .dim = 128, .visibility = visibility(Visibility::Kind::Causal)});

// 128 sequences and heads of 2 MiB each: all at once, they would read every key from memory again and again.
TEST(Sections, BlocksReadFewHeadsAtOnce) {
  const Batch batch = simpleBatch(std::vector<int32_t>(4, 4096), std::vector<int32_t>(4, 4096));
  const Plan apart = planOn(withL2(0), manyHeads, batch);
  EXPECT_GT(pairsAtOnce(apart), 100u);
  const Plan plan = planOn(defaultGpu(), manyHeads, batch);
  EXPECT_LE(pairsAtOnce(plan), 40u); // at the end sixteen heads are one section
  EXPECT_LT(plan.stats.balance, 1.01);
  EXPECT_EQ(plan.tasks.size(), apart.tasks.size());
  EXPECT_EQ(plan.segments.size(), apart.segments.size()); // ordinals in other sections share them
  EXPECT_EQ(plan.stats.kvBytes, apart.stats.kvBytes);
}

// Short sequences share a section, with all their heads: three of 1 MiB here.
TEST(Sections, HoldSeveralShortSequences) {
  const Manifest m = sampleManifest(
      {.qHeads = 32, .kvHeads = 8, .dim = 128, .visibility = visibility(Visibility::Kind::Causal)});
  const Batch batch = simpleBatch(std::vector<int32_t>(256, 256), std::vector<int32_t>(256, 256));
  EXPECT_GT(pairsAtOnce(planOn(withL2(0), m, batch)), 100u);
  const Plan plan = planOn(defaultGpu(), m, batch);
  EXPECT_LE(pairsAtOnce(plan), 3u * 3 * 8);
  EXPECT_LT(plan.stats.balance, 1.02);
}

// The longest sequence comes first, and the last tasks are short ones, however the batch is ordered.
TEST(Sections, RaggedSequencesStayBalanced) {
  for (const std::vector<int32_t> &lengths :
       {std::vector<int32_t>{500, 2000, 9000, 700, 4000}, std::vector<int32_t>{9000, 4000, 2000, 700, 500}}) {
    const Plan plan = planOn(defaultGpu(), manyHeads, simpleBatch(lengths, lengths));
    EXPECT_LT(plan.stats.balance, 1.01);
    const PlanTask &first = plan.tasks[0];
    EXPECT_EQ(lengths[static_cast<size_t>(plan.segments[static_cast<size_t>(first.segmentBegin)].instance)],
              9000);
  }
}

// One sequence and head larger than the L2 is a section of its own.
TEST(Sections, AreNeverLessThanAHead) {
  const Batch batch = simpleBatch({8192}, {8192});
  const Plan plan = planOn(withL2(1024), manyHeads, batch);
  EXPECT_LE(pairsAtOnce(plan), 12u); // 64 tasks of a head for 132 blocks, and four more heads at the end
  EXPECT_LT(plan.stats.balance, 1.01);
}

// A chunk of a long prompt: tasks are equally long, so that no short ones at the end even out the blocks, and
// tasks of one head stay together to the end. Eight rounds, of four heads each.
TEST(Sections, StayWhereLengthsAreAlike) {
  const Plan plan = planOn(defaultGpu(), manyHeads, simpleBatch({131072}, {4224}));
  EXPECT_LE(pairsAtOnce(plan), 12u); // 33 tasks of a head for 132 blocks, and the tasks that follow
  EXPECT_LT(plan.stats.balance, 1.04);
}

// No two tasks of decoding read the same keys: only their length decides.
TEST(Sections, DecodeHasNone) {
  std::vector<int32_t> lengths;
  for (int32_t s = 0; s < 64; ++s)
    lengths.push_back(100 + 123 * s);
  const Batch batch = simpleBatch(lengths, std::vector<int32_t>(64, 1));
  EXPECT_TRUE(same(planOn(withL2(0), manyHeads, batch), planOn(withL2(1024), manyHeads, batch)));
}

} // namespace

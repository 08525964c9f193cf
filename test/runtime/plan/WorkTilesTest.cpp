//===- WorkTilesTest.cpp - Tests: Tiles of rows and what they see --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"

#include <gtest/gtest.h>

#include <map>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

using Kind = Visibility::Kind;

Visibility streaming() {
  return both(visibility(Kind::Causal), either(visibility(Kind::Sink, 0), visibility(Kind::Recent, 1)));
}

/// Two regions, near tokens and the rest, that also returns the results of the near tokens alone.
Manifest twoOutputs() {
  Manifest m = sampleManifest({.visibility = streaming(), .ends = {20, 70}, .operands = 2});
  m.operands[1].visibility = visibility(Kind::Causal);
  m.results.push_back(m.results[0]), m.results.back().name = "first_o";
  m.results.push_back(m.results[1]), m.results.back().name = "first_lse";
  return m;
}

/// The sequences' near tokens, and the rest, which begin after the sink and have positions like recent ones.
Batch bothBatch(const std::vector<int32_t> &lengths, const std::vector<int32_t> &rows) {
  Batch batch = simpleBatch(lengths, rows);
  OperandBatch rest = batch.operands[0];
  for (size_t i = 0; i < lengths.size(); ++i) {
    rest.lengths[i] = std::max(lengths[i] - 20, 0);
    rest.pos0[i] = 90;
  }
  batch.operands.push_back(rest);
  return batch;
}

TEST(WorkTiles, OfTwoOutputsAreNeverCutAndCountTheFirstSegments) {
  const Manifest m = twoOutputs();
  ASSERT_TRUE(m.returnsFirst() && m.plansWhole());
  PlanOptions options;
  options.gpu = &slowGpu; // cutting pays on it
  for (const auto &[lengths, rows] :
       {std::pair(std::vector<int32_t>{700, 10, 333}, std::vector<int32_t>{1, 10, 150}),
        std::pair(std::vector<int32_t>{2000}, std::vector<int32_t>{1})}) {
    const Batch batch = bothBatch(lengths, rows);
    EXPECT_FALSE(checkPlan(m, batch, options));
    const Plan plan = *makePlan(m, batch, options);
    EXPECT_EQ(plan.partialRows, 0);
    for (const PlanTask &task : plan.tasks) {
      const int32_t first = task.flags >> taskFirstShift;
      ASSERT_GT(first, 0);
      for (int32_t s = task.segmentBegin; s < task.segmentEnd; ++s)
        EXPECT_EQ(plan.segments[static_cast<size_t>(s)].operand, s < task.segmentBegin + first ? 0 : 1);
    }
  }
}

TEST(WorkTiles, WithoutANearTokenHaveAnEmptySegment) {
  const Manifest m = twoOutputs();
  Batch batch = bothBatch({100}, {3});
  batch.qPos = {-5, -4, -3}; // before all tokens
  const Plan plan = *makePlan(m, batch);
  ASSERT_FALSE(plan.tasks.empty());
  for (const PlanTask &task : plan.tasks) {
    EXPECT_EQ(task.flags >> taskFirstShift, 1);
    const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
    EXPECT_EQ(segment.kvBegin, segment.kvEnd);
  }
}

TEST(WorkTiles, OfTwoOutputsHaveNoFixedSplit) {
  PlanOptions options;
  options.fixedSplit = 256;
  const Result<Plan> plan = makePlan(twoOutputs(), bothBatch({100}, {3}), options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "a fixed split of 256 tokens: 'decode' has two outputs, whose tasks of rows are never "
            "cut; expected none");
}

/// The segments of each row under fixed splits, by their begin and end positions, cut to the tokens that the
/// row sees.
std::map<int32_t, std::vector<std::pair<int32_t, int32_t>>> segmentsByRow(const Manifest &m, int32_t length,
                                                                          int32_t rows) {
  PlanOptions options;
  options.fixedSplit = 128;
  const Batch batch = simpleBatch({length}, {rows});
  const Plan plan = *makePlan(m, batch, options);
  std::map<int32_t, std::vector<std::pair<int32_t, int32_t>>> found;
  for (const PlanTask &task : plan.tasks) {
    EXPECT_LE(task.packedCount, m.groupSize());
    if (task.ordinal == 0 && task.segmentBegin < task.segmentEnd)
      if (const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
          segment.kvBegin < segment.kvEnd)
        found[batch.qPos[static_cast<size_t>(task.packedBegin / m.groupSize())]].push_back(
            {segment.kvBegin, segment.kvEnd});
  }
  for (auto &[position, segments] : found)
    std::sort(segments.begin(), segments.end());
  return found;
}

TEST(WorkTiles, UnderFixedSplitsTilesOfKeysFollowFromTheRowAlone) {
  const Manifest m = sampleManifest({.visibility = streaming(), .ends = {20, 70}});
  const auto whole = segmentsByRow(m, 400, 400);
  ASSERT_EQ(whole.size(), 400U);
  for (const auto &[length, rows] : {std::pair(400, 1), std::pair(391, 9), std::pair(250, 133)})
    for (const auto &[position, segments] : segmentsByRow(m, length, rows))
      EXPECT_EQ(segments, whole.at(position)) << position;
}

} // namespace

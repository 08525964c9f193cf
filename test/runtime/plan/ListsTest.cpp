//===- ListsTest.cpp - Speculated tokens as lists -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// A context, and speculated tokens in pages of one token, for a kernel that reads lists.
Manifest draftManifest(const SampleOptions &options, bool lists = true) {
  Manifest m = sampleManifest(options);
  m.arguments[2].store = Argument::Store::Paged;
  m.arguments[2].page = 1;
  for (KernelInfo &kernel : m.kernels)
    if (lists && kernel.role == KernelInfo::Role::Attend)
      kernel.params.push_back({Parameter::Kind::Buffer, "plan.slots", 0});
  return m;
}

/// `trees` trees of `nodes` speculated tokens after a context, numbered depth-first, with a row on each
/// token. Each node has an instance, its path.
Batch draftBatch(Rng &rng, int32_t trees, int32_t nodes, int32_t context) {
  Batch batch;
  OperandBatch contexts, drafts;
  batch.qStart = {0};
  drafts.maxPages = nodes;
  std::vector<std::vector<int32_t>> paths;
  for (int32_t tree = 0; tree < trees; ++tree) {
    const auto firstRow = static_cast<int32_t>(batch.rows);
    std::vector<int32_t> path; // slots of the path to the current node
    for (int32_t node = 0; node < nodes; ++node) {
      path.resize(below(rng, 3) ? path.size() : below(rng, path.size() + 1)); // some branch further up
      path.push_back(firstRow + node);
      drafts.lengths.push_back(static_cast<int32_t>(path.size()));
      drafts.pos0.push_back(context);
      drafts.rowFirst.push_back(firstRow + node);
      drafts.rowLast.push_back(firstRow + node + 1);
      paths.push_back(path);
      batch.qPos.push_back(context + static_cast<int32_t>(path.size()) - 1);
      ++batch.rows;
    }
    contexts.lengths.push_back(context);
    contexts.pos0.push_back(0);
    contexts.rowFirst.push_back(firstRow);
    contexts.rowLast.push_back(static_cast<int32_t>(batch.rows));
    batch.qStart.push_back(static_cast<int32_t>(batch.rows));
  }
  contexts.tokens = 10000;
  drafts.pages = batch.rows;
  for (std::vector<int32_t> &path : paths) {
    path.resize(static_cast<size_t>(nodes), 1 << 30); // unused entries
    drafts.blockTable.insert(drafts.blockTable.end(), path.begin(), path.end());
  }
  batch.operands = {contexts, drafts};
  return batch;
}

TEST(Lists, RandomDraftsAreCoveredExactly) {
  Rng rng(5);
  int listed = 0;
  for (int round = 0; round < 120; ++round) {
    const Manifest m = draftManifest({.visibility = randomVisibility(rng),
                                      .ends = {static_cast<int32_t>(below(rng, 30)), 90},
                                      .operands = 2,
                                      .sinkLogits = round % 2 == 1,
                                      .bigRows = 64,
                                      .headClasses = round % 4 ? std::vector<HeadClassInfo>() : duo,
                                      .ragged = round % 3 == 1});
    Batch batch = draftBatch(rng, 1 + static_cast<int32_t>(below(rng, 3)),
                             1 + static_cast<int32_t>(below(rng, 90)), static_cast<int32_t>(below(rng, 900)));
    if (!m.headClasses.empty())
      batch.classes = {1, 0};
    if (round % 3 == 1)
      makeRagged(m, batch, rng);
    PlanOptions options;
    options.blocks = static_cast<int>(1 + below(rng, 30));
    if (round % 3)
      options.gpu = &slowGpu;
    checkPlan(m, batch, options);
    if (HasFatalFailure())
      return;
    listed += !makePlan(m, batch, options)->slots.empty();
  }
  EXPECT_GT(listed, 50); // otherwise the test says nothing about lists
}

// The purpose of lists: 16 rows of a tile see little more than one tile of keys together, while each row's
// path would be one tile.
TEST(Lists, TakeFewerTilesAndTasksThanPaths) {
  Rng rng(6);
  const Batch batch = draftBatch(rng, 1, 128, 1000);
  const SampleOptions sample{
      .visibility = visibility(Visibility::Kind::Causal), .operands = 2, .bigRows = 64};
  PlanOptions options;
  options.blocks = 8;
  const Plan lists = *makePlan(draftManifest(sample), batch, options),
             paths = *makePlan(draftManifest(sample, false), batch, options);
  EXPECT_TRUE(paths.slots.empty());
  const int64_t context = 2 * (128 * 4 / 64) * 16; // tiles: two KV heads, eight tiles of rows, 1,000 tokens
  EXPECT_EQ(paths.stats.tiles, context + 2 * 128);
  EXPECT_LE(lists.stats.tiles, context + 2 * 2 * 8); // at most two tiles for a list
  EXPECT_LT(4 * lists.stats.tasks, paths.stats.tasks);
}

TEST(Lists, AreNotOfOtherStrategiesNorOfFixedSplits) {
  Rng rng(7);
  const Manifest m = draftManifest({.operands = 2, .bigRows = 64});
  const Batch batch = draftBatch(rng, 2, 40, 500);
  PlanOptions options;
  for (Strategy strategy : {Strategy::ByQuery, Strategy::ByNode, Strategy::ByNodeChunk}) {
    options.strategy = strategy;
    EXPECT_TRUE(makePlan(m, batch, options)->slots.empty());
  }
  options.strategy = Strategy::Flatten;
  EXPECT_FALSE(makePlan(m, batch, options)->slots.empty());
  options.fixedSplit = 256;
  EXPECT_TRUE(makePlan(m, batch, options)->slots.empty());
}

// Each row of a random tree sees a slot of another row a second time, and a slot of the draft under two
// entries of its table: softmax counts both.
TEST(Lists, SlotsThatARowSeesTwiceCountTwice) {
  Rng rng(9);
  const Manifest m =
      draftManifest({.visibility = visibility(Visibility::Kind::All), .operands = 2, .bigRows = 64});
  Batch batch = draftBatch(rng, 1, 24, 500);
  OperandBatch &drafts = batch.operands[1];
  const size_t instances = drafts.instances();
  const auto columns = static_cast<size_t>(drafts.maxPages);
  for (size_t i = 0; i < instances; i += 2) { // a second instance for the same row
    drafts.lengths.push_back(2);
    drafts.pos0.push_back(500);
    drafts.rowFirst.push_back(drafts.rowFirst[i]);
    drafts.rowLast.push_back(drafts.rowLast[i]);
    const int32_t first = drafts.blockTable[i * columns];
    drafts.blockTable.resize(drafts.blockTable.size() + columns, 1 << 30);
    drafts.blockTable[drafts.blockTable.size() - columns] = first;
    drafts.blockTable[drafts.blockTable.size() - columns + 1] = first;
  }
  const Plan plan = *makePlan(m, batch, {});
  ASSERT_FALSE(plan.slots.empty());
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  std::vector<std::multiset<int32_t>> seen(static_cast<size_t>(batch.rows)), wanted = seen;
  for (size_t i = 0; i < drafts.instances(); ++i)
    for (int32_t row = drafts.rowFirst[i]; row < drafts.rowLast[i]; ++row)
      for (int32_t t = 0; t < drafts.lengths[i]; ++t)
        wanted[static_cast<size_t>(row)].insert(drafts.blockTable[i * columns + static_cast<size_t>(t)]);
  for (const PlanTask &task : plan.tasks)
    for (int32_t s = task.segmentBegin; s < task.segmentEnd && task.ordinal == 0; ++s) {
      const PlanSegment &segment = plan.segments[static_cast<size_t>(s)];
      const int32_t firstRow = task.packedBegin / m.groupSize();
      for (int32_t row = firstRow; row < firstRow + task.packedCount / m.groupSize(); ++row)
        for (int32_t t = segment.kvBegin; t < segment.kvEnd; ++t) {
          const auto tile = static_cast<size_t>(kernel.rows / m.groupSize());
          const auto word = static_cast<size_t>(t / 32) * tile + static_cast<size_t>(row - firstRow);
          if (segment.instance < 0 && plan.bits[word] >> (t % 32) & 1)
            seen[static_cast<size_t>(row)].insert(plan.slots[static_cast<size_t>(t)]);
          else if (segment.instance >= 0 && segment.operand == 1)
            seen[static_cast<size_t>(row)].insert(
                drafts.blockTable[static_cast<size_t>(segment.instance) * columns + static_cast<size_t>(t)]);
        }
    }
  EXPECT_EQ(seen, wanted);
}

// Leaves that see nothing yet make no list: an update could not find them again.
TEST(Lists, TokensThatComeLaterAreRead) {
  Rng rng(8);
  const Manifest m =
      draftManifest({.visibility = visibility(Visibility::Kind::All), .operands = 2, .bigRows = 64});
  Batch batch = draftBatch(rng, 1, 24, 500);
  const std::vector<int32_t> lengths = batch.operands[1].lengths;
  std::fill(batch.operands[1].lengths.begin(), batch.operands[1].lengths.end(), 0);
  const PlanOptions options;
  const PlanCapacity capacity = planCapacity(m, PlanLimits::of(m, batch), options);
  Planner planner(m, options, capacity);
  Plan plan;
  ASSERT_TRUE(planner.plan(batch, plan));
  expectRight(m, batch, plan, capacity);
  batch.operands[1].lengths = lengths;
  ASSERT_TRUE(planner.update(batch, plan));
  expectRight(m, batch, plan, capacity);
}

} // namespace

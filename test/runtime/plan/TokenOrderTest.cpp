//===- TokenOrderTest.cpp - Tests: Tasks that add to rows in order --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "PlanChecks.h"
#include "plan/TokenTasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Checks that of all tasks that add to a row each waits for the one listed before it, directly or through
/// others, at that row.
void checkOrder(const Batch &batch, const Plan &plan) {
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> last; // task by row, for each operand and head
  std::vector<std::set<int32_t>> earlier(plan.tokenTasks.size());   // all that a task waits for
  for (size_t number = 0; number < plan.tokenTasks.size(); ++number) {
    const PlanTokenTask &task = plan.tokenTasks[number];
    ASSERT_GE(task.rowBegin, task.rowEnd) << "rows are walked from the last";
    if (task.before >= 0) {
      ASSERT_LT(task.before, number);
      const PlanTokenTask &before = plan.tokenTasks[static_cast<size_t>(task.before)];
      ASSERT_EQ(std::pair(before.operand, before.ordinal), std::pair(task.operand, task.ordinal));
      ASSERT_LE(before.rowEnd, task.rowEnd);
      ASSERT_GE(before.rowBegin, task.rowBegin);
      earlier[number] = earlier[static_cast<size_t>(task.before)];
      earlier[number].insert(task.before);
    }
    std::vector<int32_t> &rows = last[{task.operand, task.ordinal}];
    rows.resize(static_cast<size_t>(batch.rows), -1);
    for (int32_t row = task.rowEnd; row < task.rowBegin; ++row) {
      int32_t &before = rows[static_cast<size_t>(row)];
      ASSERT_TRUE(before < 0 || earlier[number].count(before)) << "task " << number << ", row " << row;
      before = static_cast<int32_t>(number);
    }
  }
}

TEST(TokenOrder, TasksOfARowWaitForEachOther) {
  Rng rng(51);
  int cut = 0;
  for (int round = 0; round < 60; ++round) {
    const Batch batch = forestBatch(randomNodes(rng, /*large=*/round % 2 == 0));
    for (Visibility::Kind sees : {Visibility::Kind::Causal, Visibility::Kind::All}) {
      const Manifest m = tokenManifest(AddsToRows::InOrder, sees);
      ASSERT_TRUE(addsInOrder(m));
      Result<Plan> plan = makePlan(m, batch, {.multiprocessors = 132});
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_EQ(plan->semaphores, std::ssize(plan->tokenTasks));
      ASSERT_NO_FATAL_FAILURE(checkOrder(batch, *plan));
      cut += !plan->tokenSums.empty();
    }
  }
  EXPECT_GT(cut, 10);
}

// Rows whose positions have no order see any tokens of their instances.
TEST(TokenOrder, RowsMayHaveAnyPositions) {
  Rng rng(52);
  for (int round = 0; round < 60; ++round) {
    Batch batch = forestBatch(randomNodes(rng, /*large=*/true));
    for (int32_t &position : batch.qPos)
      position = static_cast<int32_t>(below(rng, 2000));
    const Manifest m = tokenManifest(AddsToRows::InOrder);
    Result<Plan> plan = makePlan(m, batch, {.multiprocessors = 132});
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_NO_FATAL_FAILURE(checkOrder(batch, *plan));
  }
}

/// The tasks of instances from `first` on, by head, in their order: tokens, rows from `row` on, and whether
/// they are parts.
std::map<int32_t, std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t, bool>>>
tasksOf(const Plan &plan, int32_t first, int32_t row) {
  std::map<int32_t, std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t, bool>>> found;
  for (const PlanTokenTask &task : plan.tokenTasks)
    if (task.instance >= first && task.rowBegin != task.rowEnd)
      found[task.ordinal].emplace_back(task.instance - first, task.kvBegin, task.rowBegin - row,
                                       task.rowEnd - row, task.partial >= 0);
  // Tasks that share no row may be listed in any order.
  for (auto &[head, tasks] : found)
    std::sort(tasks.begin(), tasks.end());
  return found;
}

TEST(TokenOrder, NeighboursChangeNothing) {
  Rng rng(53);
  const Manifest m = tokenManifest(AddsToRows::InOrder);
  int cut = 0;
  for (int round = 0; round < 60; ++round) {
    const Nodes own = randomNodes(rng, /*large=*/round % 2 == 0);
    Nodes joined{{-1, static_cast<int32_t>(1 + below(rng, 5000))}, {0, 300}, {0, 40}};
    const auto beside = static_cast<int>(joined.size());
    for (const auto &[parent, tokens] : own)
      joined.emplace_back(parent < 0 ? -1 : parent + beside, tokens);
    const Batch both = forestBatch(joined);
    Result<Plan> alone = makePlan(m, forestBatch(own), {.multiprocessors = 132});
    Result<Plan> together = makePlan(m, both, {.multiprocessors = 78});
    ASSERT_TRUE(alone);
    ASSERT_TRUE(together);
    EXPECT_EQ(tasksOf(*alone, 0, 0), tasksOf(*together, beside, both.operands[0].rowFirst[beside]));
    cut += !alone->tokenSums.empty();
  }
  EXPECT_GT(cut, 10);
}

// Eight tiles of each head come first, then the next eight of each: rows' sums are read from memory once for
// a bundle.
TEST(TokenOrder, TilesComeInBundles) {
  constexpr int32_t tiles = 256; // enough that no task is cut
  const Manifest m = tokenManifest(AddsToRows::InOrder);
  Result<Plan> plan = makePlan(m, forestBatch({{-1, tiles * tokenTile}}), {.multiprocessors = 132});
  ASSERT_TRUE(plan);
  ASSERT_EQ(std::ssize(plan->tokenTasks), tiles * m.kvHeads);
  for (int64_t i = 0; i < std::ssize(plan->tokenTasks); ++i) {
    const PlanTokenTask &task = plan->tokenTasks[static_cast<size_t>(i)];
    const int64_t bundle = i / (8 * m.kvHeads);
    EXPECT_EQ(task.ordinal, i / 8 % m.kvHeads);
    EXPECT_EQ(task.kvBegin, (bundle * 8 + i % 8) * tokenTile);
  }
}

} // namespace

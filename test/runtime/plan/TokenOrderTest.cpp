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

// The first tiles of all bundles of short tasks that run at once come first, then the second ones: no task
// begins together with the one that it waits for.
TEST(TokenOrder, ShortTasksComeByTheirPlaces) {
  Manifest m = tokenManifest(AddsToRows::InOrder);
  m.qHeads = m.kvHeads;
  for (const auto &[rows, inBundle] : {std::pair(32, 4), std::pair(64, 8)}) {
    const int32_t tokens = rows * rowsOfTile(m), tiles = tokens / tokenTile, instances = 24;
    const int64_t bundles = int64_t{instances} * m.kvHeads;
    for (int multiprocessors : {8, 16}) {
      const int64_t atOnce = tokenTasksAtOnce(m, multiprocessors);
      ASSERT_EQ(atOnce % inBundle, 0);
      ASSERT_EQ(inBundle * bundles % atOnce, 0);
      Result<Plan> plan =
          makePlan(m, forestBatch(Nodes(instances, {-1, tokens})), {.multiprocessors = multiprocessors});
      ASSERT_TRUE(plan);
      ASSERT_EQ(std::ssize(plan->tokenTasks), tiles * bundles);
      std::map<std::pair<int32_t, int32_t>, int64_t> places; // of an instance's and a head's last task
      for (int64_t i = 0; i < std::ssize(plan->tokenTasks); ++i) {
        const PlanTokenTask &task = plan->tokenTasks[static_cast<size_t>(i)];
        const int64_t first = i / (inBundle * bundles) * inBundle; // tile of its bundle
        ASSERT_EQ(task.kvBegin, (first + i % atOnce / (atOnce / inBundle)) * tokenTile);
        const auto place = places.find({task.instance, task.ordinal});
        ASSERT_EQ(task.before, place == places.end() ? -1 : place->second);
        places[{task.instance, task.ordinal}] = i;
      }
      ASSERT_EQ(std::ssize(places), bundles);
    }
  }
}

/// The share of blocks' time in which tasks wait for those before them. A block takes the next task when it
/// is free; a task takes four units of time and one for each tile of rows, and adds to a tile of rows one
/// unit after the task before it did.
double waits(const Manifest &m, const Plan &plan, int blocks) {
  const int32_t rows = std::max(rowsOfTile(m) / m.groupSize(), 1);
  std::vector<double> free(static_cast<size_t>(blocks), 0);
  std::vector<std::vector<double>> added; // the times at which a task adds to its tiles, from the last row
  double waited = 0, worked = 0;
  for (const PlanTokenTask &task : plan.tokenTasks) {
    double &block = *std::min_element(free.begin(), free.end());
    double now = block + 2;
    std::vector<double> &times = added.emplace_back();
    for (int32_t row = task.rowBegin; row > task.rowEnd; row -= rows) {
      now += 1, worked += 1;
      if (task.before >= 0) {
        const PlanTokenTask &before = plan.tokenTasks[static_cast<size_t>(task.before)];
        const std::vector<double> &other = added[static_cast<size_t>(task.before)];
        const auto tile = std::min((before.rowBegin - row) / rows, static_cast<int32_t>(other.size()) - 1);
        const double ready = other[static_cast<size_t>(tile)] + 1;
        waited += std::max(ready - now, 0.0), now = std::max(now, ready);
      }
      times.push_back(now);
    }
    block = now + 2, worked += 4;
  }
  return waited / (waited + worked);
}

TEST(TokenOrder, TasksWaitLittle) {
  Manifest m = tokenManifest(AddsToRows::InOrder);
  Manifest full = tokenManifest(AddsToRows::InOrder, Visibility::Kind::All);
  m.qHeads = m.kvHeads,
  full.qHeads = full.kvHeads; // groups of one: tiles of tokens begin two tiles of rows apart
  Rng rng(55);
  Nodes ragged;
  for (int i = 0; i < 40; ++i)
    ragged.emplace_back(-1, static_cast<int32_t>(500 + below(rng, 6000)));
  const std::tuple<const Manifest *, Nodes, double> problems[] = {
      {&m, Nodes(64, {-1, 4096}), 0.02},   {&m, Nodes(128, {-1, 2048}), 0.02},
      {&m, Nodes(256, {-1, 1024}), 0.02},  {&full, Nodes(256, {-1, 1024}), 0.02},
      {&full, Nodes(8, {-1, 8192}), 0.05}, {&m, ragged, 0.12},
  };
  for (const auto &[manifest, nodes, most] : problems) {
    Result<Plan> plan = makePlan(*manifest, forestBatch(nodes), {.multiprocessors = 132});
    ASSERT_TRUE(plan);
    EXPECT_LT(waits(*manifest, *plan, 132), most) << nodes.size() << " of " << nodes.front().second;
  }
}

} // namespace

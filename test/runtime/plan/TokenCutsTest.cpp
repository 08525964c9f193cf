//===- TokenCutsTest.cpp - Tests: Tasks of tokens, cut between rows -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "PlanChecks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr int32_t tile = tokenTile;

/// For each tile of tokens: the begin and end of its parts' rows, and its cuts.
struct Tile {
  int32_t begin = INT32_MAX, end = 0;
  std::vector<std::pair<int32_t, int32_t>> parts = {}; ///< first row, and line
};
using Tiles = std::map<std::tuple<int32_t, int32_t, int32_t>, Tile>; ///< by instance, token and head

Tiles tilesOf(const Plan &plan) {
  Tiles tiles;
  for (const PlanTokenTask &task : plan.tokenTasks) {
    Tile &held = tiles[{task.instance, task.kvBegin, task.ordinal}];
    const auto [begin, end] = std::minmax(task.rowBegin, task.rowEnd);
    held.begin = std::min(held.begin, begin), held.end = std::max(held.end, end);
    held.parts.emplace_back(begin, task.partial);
  }
  for (auto &[at, held] : tiles)
    std::sort(held.parts.begin(), held.parts.end());
  return tiles;
}

/// Checks that parts of a tile have its rows, each once, and lines of their own, and that pieces add up all
/// parts of all tokens.
void checkParts(const Plan &plan, const Plan &uncut) {
  const Tiles expected = tilesOf(uncut), found = tilesOf(plan);
  ASSERT_EQ(found.size(), expected.size());
  std::map<std::pair<int32_t, int32_t>, int64_t> rows; // of a tile's parts
  std::vector<bool> taken(static_cast<size_t>(plan.partialTokens / tile), false);
  std::map<std::tuple<int32_t, int32_t, int32_t>, int64_t> sum;
  for (const PlanTokenTask &task : plan.tokenTasks) {
    sum[{task.instance, task.kvBegin, task.ordinal}] += std::abs(task.rowEnd - task.rowBegin);
    if (task.partial < 0)
      continue;
    ASSERT_EQ(task.partial % tile, 0);
    ASSERT_FALSE(taken[static_cast<size_t>(task.partial / tile)]);
    taken[static_cast<size_t>(task.partial / tile)] = true;
  }
  EXPECT_EQ(std::count(taken.begin(), taken.end(), false), 0);
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> pieces;
  for (const PlanTokenSum &piece : plan.tokenSums) {
    const int32_t first = piece.kvBegin / tile * tile;
    const Tile &held = found.at({piece.instance, first, piece.ordinal});
    ASSERT_EQ(piece.parts, std::ssize(held.parts));
    ASSERT_EQ(piece.apart, tile);
    ASSERT_GT(piece.parts, 1);
    ASSERT_LE(piece.kvEnd - piece.kvBegin, tokenSumTokens);
    for (int32_t part = 0; part < piece.parts; ++part)
      ASSERT_EQ(held.parts[static_cast<size_t>(part)].second + piece.kvBegin - first,
                piece.partial + part * piece.apart);
    pieces[{piece.instance, first, piece.ordinal}] += piece.kvEnd - piece.kvBegin;
  }
  for (const PlanTokenTask &task : uncut.tokenTasks) {
    const std::tuple at{task.instance, task.kvBegin, task.ordinal};
    const Tile &held = found.at(at);
    const auto [begin, end] = std::minmax(task.rowBegin, task.rowEnd);
    ASSERT_EQ(std::tuple(held.begin, held.end), std::tuple(begin, end));
    ASSERT_EQ(sum.at(at), end - begin); // with the same ends and disjoint lines: each row once
    ASSERT_EQ(held.parts.size() > 1 ? task.kvEnd - task.kvBegin : 0, pieces.count(at) ? pieces.at(at) : 0);
    ASSERT_EQ(held.parts.size() == 1, held.parts.front().second < 0);
  }
}

Manifest withoutCuts(Manifest m) {
  m.kernels.pop_back();
  m.launches.pop_back();
  return m;
}

/// The time at which the last block ends, if blocks take tasks when they are free.
int64_t endOf(const Manifest &m, const Plan &plan, int blocks) {
  std::vector<int64_t> freeAt(static_cast<size_t>(blocks), 0);
  for (const PlanTokenTask &task : plan.tokenTasks)
    *std::min_element(freeAt.begin(), freeAt.end()) +=
        3 + (std::abs(task.rowEnd - task.rowBegin) * int64_t{m.groupSize()} + 63) / 64;
  return *std::max_element(freeAt.begin(), freeAt.end());
}

} // namespace

TEST(TokenCuts, PartsHaveEachRowOnce) {
  Rng rng(41);
  int cut = 0;
  for (int round = 0; round < 60; ++round) {
    const Nodes nodes = randomNodes(rng, /*large=*/round % 2 == 0);
    const Batch batch = forestBatch(nodes);
    for (AddsToRows adds : {AddsToRows::No, AddsToRows::Any, AddsToRows::InOrder}) {
      const Manifest m = tokenManifest(adds);
      const PlanOptions options{.multiprocessors = 1 + static_cast<int>(below(rng, 140))};
      Result<Plan> plan = makePlan(m, batch, options), uncut = makePlan(withoutCuts(m), batch, options);
      ASSERT_TRUE(plan) << plan.error().message;
      ASSERT_TRUE(uncut);
      EXPECT_TRUE(uncut->tokenSums.empty());
      ASSERT_NO_FATAL_FAILURE(checkParts(*plan, *uncut));
      if (adds != AddsToRows::Any)
        ASSERT_LE(plan->partialTokens, PlanLimits::of(m, batch).tokenParts * tile);
      cut += !plan->tokenSums.empty();
    }
  }
  EXPECT_GT(cut, 30);
}

TEST(TokenCuts, EqualTasksEndTogether) {
  const Manifest m = tokenManifest(AddsToRows::Any, Visibility::Kind::All);
  const int blocks = 13;
  const Batch batch = forestBatch({{-1, 20 * tile}}); // 40 tasks: four rounds, the last with one task
  ASSERT_EQ(m.kvHeads, 2);
  Result<Plan> plan = makePlan(m, batch, {.multiprocessors = blocks});
  Result<Plan> uncut = makePlan(withoutCuts(m), batch, {.multiprocessors = blocks});
  ASSERT_TRUE(plan && uncut);
  EXPECT_EQ(uncut->tokenTasks.size(), 40U);
  int64_t total = 0;
  for (const PlanTokenTask &task : uncut->tokenTasks)
    total += 3 + (std::abs(task.rowEnd - task.rowBegin) * int64_t{m.groupSize()} + 63) / 64;
  EXPECT_GT(endOf(m, *uncut, blocks), 1.25 * static_cast<double>(total) / blocks);
  EXPECT_LT(endOf(m, *plan, blocks), 1.08 * static_cast<double>(total) / blocks);
}

TEST(TokenCuts, WhatEndsTogetherIsNotCut) {
  const Manifest m = tokenManifest(AddsToRows::Any, Visibility::Kind::All);
  Result<Plan> plan = makePlan(m, forestBatch({{-1, 20 * tile}}), {.multiprocessors = 20});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->tokenTasks.size(), 40U);
  EXPECT_TRUE(plan->tokenSums.empty());
}

TEST(TokenCuts, ShortPartsOfTheLastTokensEndTogether) {
  const Manifest m = tokenManifest(AddsToRows::No, Visibility::Kind::All);
  const int blocks = 132;
  const int32_t tokens = 288 * tile; // 576 tasks: five rounds, the last with 48 tasks
  const Batch batch = forestBatch({{-1, tokens}});
  ASSERT_EQ(m.kvHeads, 2);
  Result<Plan> plan = makePlan(m, batch, {.multiprocessors = blocks});
  Result<Plan> uncut = makePlan(withoutCuts(m), batch, {.multiprocessors = blocks});
  ASSERT_TRUE(plan && uncut);
  ASSERT_NO_FATAL_FAILURE(checkParts(*plan, *uncut));
  EXPECT_LE(plan->partialTokens, PlanLimits::of(m, batch).tokenParts * tile);
  const int64_t all = 3 + (int64_t{tokens} * m.groupSize() + 63) / 64;
  const double even = static_cast<double>(all) * 576 / blocks;
  EXPECT_GT(endOf(m, *uncut, blocks), 1.12 * even);
  EXPECT_LT(endOf(m, *plan, blocks), 1.02 * even);
  // The last 128 tasks are those of the last 64 tiles, and the others are whole.
  for (const auto &[at, held] : tilesOf(*plan))
    EXPECT_EQ(held.parts.size() > 1, std::get<1>(at) >= tokens - 64 * tile);
}

TEST(TokenCuts, NeighboursDoNotMoveCutsOfSumsInAnOrder) {
  const Manifest m = tokenManifest(AddsToRows::No);
  Nodes own{{-1, 300}};
  for (int i = 0; i < 30; ++i)
    own.emplace_back(i % 3 == 2 ? i : 0, 1500);
  own.emplace_back(-1, 33000); // its last tokens have short parts
  own.emplace_back(static_cast<int>(own.size()) - 1, 30000);
  Nodes others{{-1, 700}, {0, 40000}, {0, 90}};
  const auto count = static_cast<int>(others.size());
  Nodes joined = others;
  for (auto [parent, tokens] : own)
    joined.emplace_back(parent < 0 ? -1 : parent + count, tokens);
  int32_t before = 0;
  for (const auto &[parent, tokens] : others)
    before += tokens;
  Result<Plan> alone = makePlan(m, forestBatch(own), {.multiprocessors = 132});
  Result<Plan> beside = makePlan(m, forestBatch(joined), {.multiprocessors = 78});
  ASSERT_TRUE(alone && beside);
  EXPECT_FALSE(alone->tokenSums.empty());
  const Tiles expected = tilesOf(*alone), found = tilesOf(*beside);
  for (const auto &[at, held] : expected) {
    const auto [instance, token, head] = at;
    const Tile &other = found.at({instance + count, token, head});
    ASSERT_EQ(other.parts.size(), held.parts.size());
    for (size_t part = 0; part < held.parts.size(); ++part)
      ASSERT_EQ(other.parts[part].first, held.parts[part].first + before);
  }
}

TEST(TokenCuts, WhatAddsToAWindowOfATreeIsTogether) {
  const Manifest m = tokenManifest(AddsToRows::Any);
  const int32_t window = 16384 / m.groupSize();
  Nodes nodes{{-1, tile}};
  for (int i = 0; i < 160; ++i) // two levels: each inner node has seven leaves
    nodes.emplace_back(i % 8 == 0 ? 0 : i / 8 * 8 + 1, tile);
  Result<Plan> plan = makePlan(m, forestBatch(nodes), {.multiprocessors = 8});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->tokenSums.empty());
  const int64_t last = std::ssize(nodes) * tile / window;
  ASSERT_GT(last, 2);
  // From the first task that adds to a window to the last, there are not many more tasks than the window has.
  std::map<int32_t, std::pair<int64_t, int64_t>> span;
  std::map<int32_t, int64_t> counts;
  for (int64_t i = 0; i < std::ssize(plan->tokenTasks); ++i) {
    const PlanTokenTask &task = plan->tokenTasks[static_cast<size_t>(i)];
    if (task.rowBegin == task.rowEnd)
      continue;
    const int32_t number = std::min(task.rowBegin, task.rowEnd) / window;
    EXPECT_LE(std::abs(task.rowEnd - task.rowBegin), window);
    auto [at, isNew] = span.try_emplace(number, i, i);
    at->second.second = i;
    ++counts[number];
  }
  for (const auto &[number, range] : span)
    EXPECT_LE(range.second - range.first + 1, counts.at(number) + 2 * 8) << number;
}

//===- StepTablesTest.cpp - Tables of steps over a cache ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/StepTables.h"

#include <gtest/gtest.h>
#include <random>

using namespace attn::rt;

namespace {

using Words = std::vector<int32_t>;

class StepTablesTest : public ::testing::Test {
protected:
  Cache cache = *Cache::create({4, 1, {{"kv", 16}}});

  static StepCapacity capacity() {
    return {3, 8, 6, {{"kv", {0, true, false}, 3}, {"draft", {0, false, true}, 4}}};
  }
  NodeId add(int32_t tokens) {
    const NodeId node = cache.createRoot();
    EXPECT_TRUE(cache.append(node, tokens));
    return node;
  }
  /// The first words of a table.
  static Words head(const StepTables &tables, const std::string &name, size_t words) {
    for (const StepTables::Part &part : tables.parts())
      if (part.name == name)
        return {tables.used().data() + part.first, tables.used().data() + part.first + words};
    return {};
  }
  Words pages(NodeId node) const {
    Words found;
    for (const TokenSpan &span : cache.places(node, 0))
      for (int32_t token = 0; token < span.tokens; token += 4)
        found.push_back(span.at.page + token / 4);
    return found;
  }
};

std::string text(const Status &status) { return status ? "" : status.error().message; }

TEST_F(StepTablesTest, EveryStepHasItsPlace) {
  auto tables = StepTables::create(cache, capacity());
  ASSERT_TRUE(tables);
  for (const StepTables::Part &part : tables->parts())
    EXPECT_EQ(part.first % 16, 0u) << part.name;
  const NodeId a = add(5), b = add(4);
  auto grown = cache.append(b, 3);
  ASSERT_TRUE(grown);
  ASSERT_TRUE(tables->take(cache, *grown));
  const std::vector<RowGroup> rows = {{b, 3, false}, {a, 1, false}};
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(head(*tables, "q_start", 4), (Words{0, 3, 4, 4}));
  EXPECT_EQ(head(*tables, "kv.lengths", 3), (Words{7, 5, 0}));
  EXPECT_EQ(head(*tables, "kv.pos0", 3), (Words{0, 0, 0}));
  EXPECT_EQ(head(*tables, "draft.lengths", 3), (Words{0, 0, 0}));
  EXPECT_EQ(head(*tables, "kv.block_table", 2), (Words{pages(b)[0], pages(b)[1]}));
  const Words listed = head(*tables, "new_tokens", 72);
  EXPECT_EQ(listed[0], 3);
  const int32_t second = pages(b)[1] * 4;
  EXPECT_EQ(Words(listed.begin() + 8, listed.begin() + 12), (Words{second, second + 1, second + 2, -1}));
  EXPECT_EQ(tables->used().size(), tables->parts().back().first + 2 * 4); // and no more of the last table

  const std::vector<RowGroup> next = {{a, 2, false}};
  ASSERT_TRUE(tables->update(cache, next));
  EXPECT_EQ(head(*tables, "q_start", 4), (Words{0, 2, 2, 2}));
  EXPECT_EQ(head(*tables, "kv.lengths", 3), (Words{5, 0, 0}));
  EXPECT_EQ(head(*tables, "new_tokens", 1), (Words{0}));
  ASSERT_TRUE(tables->update(cache, {}));
  EXPECT_EQ(head(*tables, "q_start", 4), (Words{0, 0, 0, 0}));
}

TEST_F(StepTablesTest, ForksAreOneRunOfPages) {
  auto tables = StepTables::create(cache, capacity());
  const NodeId a = add(6);
  auto fork = cache.fork(a);
  ASSERT_TRUE(fork && cache.append(fork->twin, 3));
  const std::vector<RowGroup> rows = {{fork->twin, 1, false}, {a, 1, false}};
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(head(*tables, "kv.lengths", 2), (Words{9, 6}));
  const Words table = head(*tables, "kv.block_table", 6), own = pages(fork->twin);
  EXPECT_EQ(table[0], table[3]); // shared
  EXPECT_EQ((Words{table[1], table[2]}), own);
  EXPECT_EQ(table[4], pages(a)[0]);
}

TEST_F(StepTablesTest, ChainsOfADraftAreSequences) {
  auto tables = StepTables::create(cache, capacity());
  const NodeId a = add(5);
  const Words parents = {-1, 0, 0};
  ASSERT_TRUE(cache.speculate(a, parents));
  std::vector<RowGroup> rows = {{a, 2, true}};
  ASSERT_TRUE(tables->update(cache, rows)); // row 0 follows the leaf's own tokens, then 1 and 2
  EXPECT_EQ(head(*tables, "q_start", 4), (Words{0, 3, 4, 5}));
  EXPECT_EQ(head(*tables, "kv.lengths", 3), (Words{5, 5, 5}));
  EXPECT_EQ(head(*tables, "draft.lengths", 3), (Words{1, 2, 2}));
  EXPECT_EQ(head(*tables, "draft.pos0", 3), (Words{5, 5, 5}));
  const std::vector<Place> places = cache.draftPlaces(a, 0);
  const auto slot = [&](size_t token) { return places[token].page * 4 + places[token].slot; };
  const Words table = head(*tables, "draft.block_table", 10);
  EXPECT_EQ(table[0], slot(0));
  EXPECT_EQ((Words{table[4], table[5]}), (Words{slot(0), slot(1)}));
  EXPECT_EQ((Words{table[8], table[9]}), (Words{slot(0), slot(2)}));
}

TEST_F(StepTablesTest, AppendsAreNewTokens) {
  auto tables = StepTables::create(cache, capacity());
  const NodeId a = add(3), b = add(4);
  const std::vector<RowGroup> rows = {{a, 2, false}, {b, 1, false}};
  ASSERT_TRUE(tables->append(cache, {{a, 2}, {b, 1}}));
  EXPECT_EQ(cache.tokens(a), 5);
  ASSERT_TRUE(tables->update(cache, rows));
  const Words listed = head(*tables, "new_tokens", 12);
  EXPECT_EQ(listed[0], 3);
  EXPECT_EQ(Words(listed.begin() + 8, listed.end()),
            (Words{pages(a)[0] * 4 + 3, pages(a)[1] * 4, pages(b)[1] * 4, -1}));

  ASSERT_TRUE(tables->append(cache, {{a, 2}}));
  EXPECT_EQ(text(tables->append(cache, {{a, 3}, {b, 2}})),
            "new tokens: 7 in a step where there is room for 6; nearest legal: 4 here");
  EXPECT_EQ(text(tables->append(cache, {{a, 1}, {b, -9}})),
            "append of -9 tokens to node 2: expected at least 1");
  EXPECT_EQ(cache.tokens(a), 7);
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(head(*tables, "new_tokens", 1), (Words{2})); // and none of the refused ones
}

TEST_F(StepTablesTest, StepsThatAddNoPageSendNone) {
  auto tables = StepTables::create(cache, capacity());
  const size_t table = tables->parts()[tables->parts().size() - 2].first; // kv.block_table
  const NodeId a = add(6), b = add(3);
  std::vector<RowGroup> rows = {{a, 1, false}, {b, 1, false}};
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table + 3 + 1);
  ASSERT_TRUE(tables->append(cache, {{a, 1}, {b, 1}}) && tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table);
  ASSERT_TRUE(tables->append(cache, {{a, 2}}) && tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table + 3); // the first row's third page
  EXPECT_EQ(head(*tables, "kv.block_table", 4), (Words{pages(a)[0], pages(a)[1], pages(a)[2], pages(b)[0]}));
  std::swap(rows[0], rows[1]);
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table + 3 + 3);
  rows.pop_back();
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table);
  rows.push_back({a, 1, false}); // a device may no longer have it
  ASSERT_TRUE(tables->update(cache, rows));
  EXPECT_EQ(tables->changed().size(), table + 3 + 3);
}

/// A device that receives only changes has the same tables as new ones, over caches that grow, shrink, fork
/// and speculate, within the tables and outside of them.
TEST_F(StepTablesTest, WhatHasChangedIsEnough) {
  std::mt19937 rng(5);
  const auto draw = [&](size_t most) { return static_cast<int32_t>(rng() % most); };
  auto tables = StepTables::create(cache, capacity());
  Words device(tables->words(), -7);
  std::vector<NodeId> leaves = {add(3), add(5)};
  size_t sent = 0, filled = 0;
  for (int step = 0; step < 4000; ++step) {
    const size_t at = static_cast<size_t>(draw(leaves.size()));
    const NodeId leaf = leaves[at];
    const bool hasDraft = cache.draft(leaf);
    switch (draw(24)) {
    case 0:
      if (auto twin = cache.fork(leaf); twin && leaves.size() < 5)
        leaves.push_back(twin->twin);
      else if (twin)
        ASSERT_TRUE(cache.prune(twin->twin));
      break;
    case 1:
      (void)cache.truncate(leaf, 1 + draw(5));
      break;
    case 2:
      if (leaves.size() > 2 && cache.prune(leaf)) {
        leaves.erase(leaves.begin() + static_cast<int64_t>(at));
        leaves.push_back(add(1));
      }
      break;
    case 3:
      hasDraft ? (void)cache.commit(leaf, draw(3) - 1) : (void)cache.speculate(leaf, Words{-1, 0});
      break;
    case 4:
      (void)cache.append(leaf, 1 + draw(3)); // on a leaf outside the tables
      break;
    case 5:
      std::swap(leaves[0], leaves[at]);
      break;
    default:
      if (cache.end(leaf) < 12)
        (void)tables->append(cache, {{leaf, 1}});
    }
    std::vector<RowGroup> rows;
    for (NodeId each : leaves)
      if (cache.tokens(each) > 0 && rows.size() < 2 + static_cast<size_t>(draw(8) > 0))
        rows.push_back({each, 1, cache.draft(each) && rows.empty()});
    auto fresh = StepTables::create(cache, capacity());
    const Status made = fresh->update(cache, rows);
    ASSERT_EQ(text(tables->update(cache, rows)), text(made));
    if (!made)
      continue;
    std::copy(tables->changed().begin(), tables->changed().end(), device.begin());
    sent += tables->changed().size(), filled += tables->used().size();
    const auto expect = [&](const std::string &name, size_t first, size_t count) {
      for (const StepTables::Part &part : tables->parts())
        for (size_t i = first; part.name == name && i < first + count; ++i)
          ASSERT_EQ(device[part.first + i], fresh->used()[part.first + i]) << name << i << ", step " << step;
    };
    expect("q_start", 0, 4);
    for (const auto &[name, columns, page] : {std::tuple("kv", 3, 4), std::tuple("draft", 4, 1)}) {
      expect(name + std::string(".lengths"), 0, 3);
      expect(name + std::string(".pos0"), 0, 3);
      const Words lengths = head(*fresh, name + std::string(".lengths"), 3);
      for (size_t row = 0; row < 3; ++row)
        expect(name + std::string(".block_table"), row * static_cast<size_t>(columns),
               static_cast<size_t>((lengths[row] + page - 1) / page));
    }
  }
  EXPECT_LT(sent, filled);
}

TEST_F(StepTablesTest, RefusalsChangeNothing) {
  auto tables = StepTables::create(cache, capacity());
  const NodeId a = add(5), b = add(13);
  std::vector<RowGroup> rows = {{a, 1, false}};
  ASSERT_TRUE(tables->update(cache, rows));
  const Words before(tables->used().begin(), tables->used().end());
  rows.push_back({b, 1, false});
  EXPECT_EQ(text(tables->update(cache, rows)),
            "requests[1]: node 2 has 13 tokens where there is room for 12; nearest legal: 12");
  const std::vector<RowGroup> many(4, RowGroup{a, 1, false});
  EXPECT_EQ(text(tables->update(cache, many)),
            "requests[3]: the step has 4 sequences up to here where there is "
            "room for 3; nearest legal: 3");
  const std::vector<RowGroup> longer = {{a, 5, false}, {a, 4, false}};
  EXPECT_EQ(text(tables->update(cache, longer)),
            "requests[1]: the step has 9 rows up to here where there is room for 8; nearest legal: 8");
  EXPECT_EQ(Words(tables->used().begin(), tables->used().end()), before);
  EXPECT_EQ(text(tables->take(cache, *cache.append(a, 7))),
            "new tokens: 7 in a step where there is room for 6; nearest legal: 6 here");

  StepCapacity wide = capacity();
  wide.operands[1].shown = {0, false, true};
  Cache other = *Cache::create({4, 2, {{"kv", 16}}});
  EXPECT_EQ(StepTables::create(other, wide).error().message,
            "operand 'draft': shows drafts on pages of 2 tokens: paths of drafts are lists of single tokens; "
            "nearest legal: a cache with draft_page=1");
  Cache streaming = *Cache::create({4, 1, {{"kv", 16, 8, 0}}});
  EXPECT_EQ(StepTables::create(streaming, capacity()).error().message,
            "operand 'kv': class 'kv' frees tokens: its steps are planned on the host");
  EXPECT_EQ(StepTables::create(cache, {0, 1, 1, {}}).error().message,
            "tables of steps: expected 1 to 67108864 sequences, got 0");
}

} // namespace

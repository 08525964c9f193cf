//===- StepTablesTest.cpp - Tables of steps over a cache ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/StepTables.h"

#include <gtest/gtest.h>

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
  /// What is told of a table, its first words.
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
  ASSERT_TRUE(tables->update(cache, rows)); // 0 behind the leaf's own, 1, 2
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
            "new tokens: 7 in a step where there is room for 6; nearest legal: 6");

  StepCapacity wide = capacity();
  wide.operands[1].shown = {0, false, true};
  Cache other = *Cache::create({4, 2, {{"kv", 16}}});
  EXPECT_EQ(StepTables::create(other, wide).error().message,
            "operand 'draft': shows drafts on pages of 2 tokens: paths of drafts are lists of single tokens; "
            "nearest legal: a cache with draft_page=1");
  Cache streaming = *Cache::create({4, 1, {{"kv", 16, 8, 0}}});
  EXPECT_EQ(StepTables::create(streaming, capacity()).error().message,
            "operand 'kv': class 'kv' gives back tokens: its steps are planned on the host");
  EXPECT_EQ(StepTables::create(cache, {0, 1, 1, {}}).error().message,
            "tables of steps: expected 1 to 67108864 sequences, got 0");
}

} // namespace

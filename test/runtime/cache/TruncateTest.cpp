//===- TruncateTest.cpp - Tests: A leaf loses its last tokens -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mirror.h"
#include "attn_rt/cache/CacheBatch.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

CacheOptions small(int32_t pages) { return {4, 0, {{"all", pages, 0, 0, 0}}}; }

std::string message(const auto &result) { return result ? "no error" : result.error().message; }

std::vector<int32_t> pagesOf(const Cache &cache, NodeId node) {
  std::vector<int32_t> pages;
  for (const TokenSpan &span : cache.places(node, 0))
    pages.push_back(span.at.page);
  return pages;
}

TEST(Truncate, freesPagesThatBecomeEmpty) {
  Mirror m(small(8));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 10));
  const std::vector<int32_t> before = pagesOf(m.cache, leaf);
  ASSERT_TRUE(m.truncate(leaf, 1));
  EXPECT_EQ(pagesOf(m.cache, leaf), before);
  ASSERT_TRUE(m.truncate(leaf, 1)); // the page's only token
  EXPECT_EQ(pagesOf(m.cache, leaf), (std::vector<int32_t>{before[0], before[1]}));
  EXPECT_EQ(m.cache.freePages(0), 6);
  ASSERT_TRUE(m.truncate(leaf, 5));
  EXPECT_EQ(m.cache.tokens(leaf), 3);
  m.verify();
  ASSERT_TRUE(m.append(leaf, 9)); // overwrites the old tokens
  m.verify();
  ASSERT_TRUE(m.truncate(leaf, 12));
  EXPECT_EQ(m.cache.tokens(leaf), 0);
  EXPECT_EQ(m.cache.freePages(0), 8);
}

// The fork's point is after the end: the twin keeps all tokens; the leaf keeps the whole pages before its
// end, and a copy of the page that contains the end.
TEST(Truncate, goesBeyondAFork) {
  Mirror m(small(8));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 14));
  const std::vector<int32_t> before = pagesOf(m.cache, leaf);
  Result<Cache::Fork> fork = m.cache.fork(leaf);
  ASSERT_TRUE(fork);
  EXPECT_EQ(m.cache.freePages(0), 3);
  Result<Movement> moved = m.cache.truncate(leaf, 8);
  ASSERT_TRUE(moved);
  ASSERT_EQ(moved->copies.size(), 1U);
  EXPECT_EQ(moved->copies[0].from, (Place{before[1], 0}));
  EXPECT_EQ(moved->copies[0].to, (Place{pagesOf(m.cache, leaf)[0], 0}));
  EXPECT_EQ(moved->copies[0].tokens, 2);
  const NodeId joint = *m.cache.parent(leaf);
  EXPECT_EQ(m.cache.parent(fork->twin), joint);
  EXPECT_EQ(pagesOf(m.cache, joint), (std::vector<int32_t>{before[0]}));
  EXPECT_EQ(m.cache.tokens(fork->twin), 10);
  EXPECT_EQ(m.cache.end(leaf), 6);
  EXPECT_EQ(m.cache.freePages(0), 3); // its own page became the copy
  EXPECT_TRUE(m.cache.checkInvariants());
}

TEST(Truncate, leavesWhatOthersShare) {
  for (int32_t tokens = 1; tokens <= 27; ++tokens) {
    SCOPED_TRACE(tokens);
    Mirror m(small(40));
    const NodeId leaf = m.createRoot();
    ASSERT_TRUE(m.append(leaf, 9));
    const NodeId early = *m.fork(leaf);
    ASSERT_TRUE(m.append(leaf, 10));
    const NodeId late = *m.fork(leaf);
    ASSERT_TRUE(m.append(leaf, 8));
    ASSERT_TRUE(m.truncate(leaf, tokens));
    m.verify();
    ASSERT_TRUE(m.apply({{}, {{leaf, 3}, {early, 3}, {late, 3}}, {}}));
    m.verify();
    EXPECT_LE(m.cache.nodeCount(), 5);
    ASSERT_TRUE(m.apply({{early, late}, {}, {}}));
    EXPECT_EQ(m.cache.nodeCount(), 1);
    m.verify();
  }
}

TEST(Truncate, takesAPageOnlyForACopy) {
  Mirror m(small(3));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 12));
  ASSERT_TRUE(m.fork(leaf)); // no page is left
  EXPECT_EQ(message(m.truncate(leaf, 1)),
            "cache: truncation of 1 tokens from node 1: class 'all': 1 pages asked for, 0 of 3 left");
  ASSERT_TRUE(m.truncate(leaf, 4)); // a page's end
  EXPECT_EQ(m.cache.end(leaf), 8);
  m.verify();
}

TEST(Truncate, isNoticedByPlansThatReadWhatIsGone) {
  Mirror m(small(20));
  const NodeId leaf = m.createRoot(), other = m.createRoot();
  ASSERT_TRUE(m.apply({{}, {{leaf, 10}, {other, 10}}, {}}));
  const auto batchOf = [&](NodeId node, CacheBatch &batch) {
    BatchBuilder builder;
    const std::vector<RowGroup> rows = {{node, 1}};
    EXPECT_TRUE(builder.build(m.cache, rows, batch));
    return LogCounts::of(batch);
  };
  BatchBuilder builder;
  CacheBatch first, second, grown;
  auto counts = batchOf(leaf, first), others = batchOf(other, second);
  const std::vector<RowGroup> rows = {{leaf, 1}};
  ASSERT_TRUE(builder.build(m.cache, rows, grown));
  ASSERT_TRUE(m.truncate(leaf, 1));
  EXPECT_EQ(message(checkCurrent(first, counts)), "node 1 has lost tokens since");
  EXPECT_TRUE(checkCurrent(second, others));
  EXPECT_FALSE(builder.update(m.cache, grown)); // it has not grown
  auto again = batchOf(leaf, first);
  EXPECT_TRUE(checkCurrent(first, again));
  EXPECT_EQ(first.batch.qPos[0], 8);
}

// A row at the new end sees all tokens that the class promises, or the truncation is refused.
TEST(Truncate, ofStreamingClasses) {
  int refused = 0, done = 0;
  for (int32_t tokens = 1; tokens <= 300; ++tokens) {
    SCOPED_TRACE(tokens);
    Mirror m({16, 1, {{"all", 100, 0, 0, 0}, {"streaming", 100, 50, 40, 8}}});
    const NodeId leaf = m.createRoot();
    ASSERT_TRUE(m.append(leaf, 250));
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(m.append(leaf, 1));
    const Status status = m.truncate(leaf, tokens);
    ++(status ? done : refused);
    m.verify();
    // No freed token is before an end within the sink's pages.
    EXPECT_EQ(static_cast<bool>(status), tokens <= 11 || tokens >= 300 - 48) << message(status);
    ASSERT_TRUE(m.append(leaf, 20));
    m.verify();
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(done, 50);
  Mirror m({16, 1, {{"all", 100, 0, 0, 0}, {"streaming", 100, 50, 40, 8}}});
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 300));
  ASSERT_TRUE(m.append(leaf, 1));
  EXPECT_EQ(
      message(m.truncate(leaf, 100)),
      "truncation of 100 tokens from node 1: a row at position 201 sees class 'streaming' from position 152 "
      "on, and it has freed all up to 239");
}

TEST(Truncate, refusesWithTheNodeNamed) {
  Mirror m(small(32));
  const NodeId root = m.createRoot(), alone = m.createRoot(), pruned = m.createRoot();
  std::vector<NodeId> nodes;
  ASSERT_TRUE(m.append(alone, 5));
  ASSERT_TRUE(m.apply({{pruned}, {{root, 6}}, {}}));
  ASSERT_TRUE(m.apply({{}, {}, {{root, 2, 3}}}, &nodes));
  EXPECT_EQ(message(m.truncate(alone, 0)), "truncation of 0 tokens from node 2: expected at least 1");
  EXPECT_EQ(message(m.truncate(alone, 6)), "truncation of 6 tokens from node 2: it has 5 tokens");
  EXPECT_EQ(message(m.truncate(pruned, 1)), "truncation of 1 tokens from node 3: node 3 was pruned");
  EXPECT_EQ(message(m.truncate(root, 1)), "truncation of 1 tokens from node 1: it has children (" +
                                              nodeText(nodes[0]) +
                                              "), which see its tokens: truncate those, or prune them");
  EXPECT_EQ(message(m.truncate(nodes[1], 4)), "truncation of 4 tokens from " + nodeText(nodes[1]) +
                                                  ": it has 3 tokens behind node 1, which was branched");
  ASSERT_TRUE(m.speculate(alone, {-1}));
  EXPECT_EQ(
      message(m.truncate(alone, 1)),
      "truncation of 1 tokens from node 2: it has a draft of 1 tokens: commit it first (token -1 drops it)");
  m.verify();
}

} // namespace

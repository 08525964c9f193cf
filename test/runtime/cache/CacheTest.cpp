//===- CacheTest.cpp - Tests: A forest of sequences over pages ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mirror.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

CacheOptions small(int32_t pages, int32_t pageTokens = 4) {
  return {pageTokens, 0, {{"all", pages, 0, 0, 0}}};
}

std::string message(const auto &result) { return result ? "no error" : result.error().message; }

std::vector<int32_t> pagesOf(const Cache &cache, NodeId node, int32_t headClass = 0) {
  std::vector<int32_t> pages;
  for (const TokenSpan &span : cache.places(node, headClass))
    pages.push_back(span.at.page);
  return pages;
}

TEST(Cache, aNodeIsARunOverPages) {
  Mirror m(small(8));
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 6));
  EXPECT_EQ(pagesOf(m.cache, root), (std::vector<int32_t>{0, 1}));
  ASSERT_TRUE(m.append(root, 1));
  const std::vector<TokenSpan> spans = m.cache.places(root, 0);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[1].firstToken, 4);
  EXPECT_EQ(spans[1].tokens, 3);
  EXPECT_EQ(m.cache.freePages(0), 6);
  // The inverse: from a page to its node.
  EXPECT_EQ(m.cache.pageUse(0, 1)->node, root);
  EXPECT_EQ(m.cache.pageUse(0, 1)->firstToken, 4);
  EXPECT_FALSE(m.cache.pageUse(0, 2));
  m.verify();
}

TEST(Cache, branchesShareAndCopyNothing) {
  Mirror m(small(8));
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 6));
  const Result<CacheChange> change = m.cache.apply({{}, {}, {{root, 2, 3}}});
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->movement.copies.empty());
  EXPECT_EQ(change->movement.rows, 6);
  ASSERT_EQ(change->movement.writes.size(), 2U);
  EXPECT_EQ(change->movement.writes[1].row, 3);
  EXPECT_EQ(m.cache.children(root), change->children);
  EXPECT_EQ(m.cache.parent(change->children[1]), root);
  EXPECT_EQ(m.cache.position(change->children[1]), 6);
  EXPECT_EQ(m.cache.end(change->children[1]), 9);
  EXPECT_EQ(m.cache.freePages(0), 4);
}

TEST(Cache, pruneFreesTheSubtreeAndTheParentGrowsAgain) {
  Mirror m(small(8));
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 6));
  std::vector<NodeId> children, grandchildren;
  ASSERT_TRUE(m.apply({{}, {}, {{root, 2, 1}}}, &children));
  ASSERT_TRUE(m.apply({{}, {}, {{children[0], 2, 1}}}, &grandchildren));
  EXPECT_EQ(m.cache.freePages(0), 2);
  EXPECT_EQ(
      message(m.append(root, 1)),
      "append of 1 tokens to node 1: it has children (node 2), which would see the new tokens: append to "
      "them, or branch it again");
  ASSERT_TRUE(m.apply({{children[0]}, {}, {}}));
  EXPECT_EQ(m.cache.freePages(0), 5);
  EXPECT_FALSE(m.cache.contains(grandchildren[1]));
  // In one step, the last child is removed and its parent grows.
  ASSERT_TRUE(m.apply({{children[1]}, {{root, 3}}, {}}));
  EXPECT_TRUE(m.cache.isLeaf(root));
  EXPECT_EQ(m.cache.freePages(0), 5);
  m.verify();
}

TEST(Cache, namesAreNeverGivenTwice) {
  Mirror m(small(8));
  const NodeId first = m.createRoot();
  ASSERT_TRUE(m.apply({{first}, {}, {}}));
  const NodeId second = m.createRoot();
  EXPECT_EQ(nodeText(first), "node 1");
  EXPECT_EQ(nodeText(second), "node 1.1");
  EXPECT_EQ(message(m.append(first, 1)), "append of 1 tokens to node 1: node 1 was pruned");
  EXPECT_EQ(message(m.append({1, 2}, 1)), "append of 1 tokens to node 1.2: there is no node 1.2");
  EXPECT_EQ(message(m.append({9, 0}, 1)), "append of 1 tokens to node 9: there is no node 9");
  EXPECT_EQ(message(m.append({0, 0}, 1)), "append of 1 tokens to node 0: there is no node 0");
  EXPECT_TRUE(m.append(second, 1));
}

TEST(Cache, forkCopiesTheLastPartialPage) {
  Mirror m(small(8));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 10));
  const std::vector<int32_t> before = pagesOf(m.cache, leaf);
  Result<Cache::Fork> fork = m.cache.fork(leaf);
  ASSERT_TRUE(fork);
  const NodeId twin = fork->twin, joint = *m.cache.parent(leaf);
  EXPECT_EQ(m.cache.parent(twin), joint);
  EXPECT_EQ(pagesOf(m.cache, joint), (std::vector<int32_t>{before[0], before[1]}));
  EXPECT_EQ(pagesOf(m.cache, leaf), (std::vector<int32_t>{before[2]}));
  ASSERT_EQ(fork->movement.copies.size(), 1U);
  const Movement::Copy &copy = fork->movement.copies[0];
  EXPECT_EQ(copy.from, (Place{before[2], 0}));
  EXPECT_EQ(copy.to, (Place{pagesOf(m.cache, twin)[0], 0}));
  EXPECT_EQ(copy.tokens, 2);
  EXPECT_EQ(m.cache.freePages(0), 4);
  EXPECT_EQ(message(m.cache.append(joint, 1)), "append of 1 tokens to node 2: it was evicted, and only nodes "
                                               "below it can grow");
  // Alone again, the leaf owns all of its tokens.
  ASSERT_TRUE(m.cache.prune(twin));
  EXPECT_EQ(pagesOf(m.cache, leaf), before);
  EXPECT_EQ(m.cache.roots(), std::vector<NodeId>{leaf});
  EXPECT_EQ(m.cache.nodeCount(), 1);
  EXPECT_TRUE(m.cache.checkInvariants());
}

TEST(Cache, forkOfWholePagesCopiesNothing) {
  Mirror m(small(3));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 12));
  ASSERT_TRUE(m.fork(leaf)); // although no page is left
  const Result<NodeId> third = m.fork(leaf);
  ASSERT_TRUE(third);
  EXPECT_EQ(m.cache.nodeCount(), 4);
  m.verify();
  ASSERT_TRUE(m.apply({m.cache.children(m.cache.roots()[0]), {}, {}}));
  EXPECT_EQ(m.cache.nodeCount(), 0);
  EXPECT_EQ(m.cache.freePages(0), 3);
}

TEST(Cache, commitKeepsThePathAndDropsTheRest) {
  CacheOptions options = small(16);
  options.draftPage = 1;
  Mirror m(options);
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 7));
  //  0 ─┬─ 1 ─── 3 ─┬─ 4
  //     └─ 2        └─ 5
  ASSERT_TRUE(m.speculate(leaf, {-1, 0, 0, 1, 3, 3}));
  EXPECT_EQ(m.cache.freePages(0), 16 - 2 - 2 - 1); // two pages for six tokens, one in reserve
  EXPECT_EQ(m.cache.draft(leaf)->size(), 6);
  EXPECT_EQ(message(m.append(leaf, 1)),
            "append of 1 tokens to node 1: it has a draft of 6 tokens: commit it first (token -1 drops it)");
  m.verify();
  const std::vector<Place> draft = m.cache.draftPlaces(leaf, 0);
  EXPECT_EQ(draft[0].page, draft[1].page); // 0 1 3 4 are in one page, in depth-first order
  EXPECT_EQ(draft[4].slot, 3);
  EXPECT_EQ(m.cache.pageUse(0, draft[0].page)->node, leaf);
  EXPECT_EQ(m.cache.pageUse(0, draft[0].page)->firstToken, -1);
  ASSERT_TRUE(m.commit(leaf, 5));
  EXPECT_EQ(m.cache.tokens(leaf), 11);
  EXPECT_EQ(m.cache.freePages(0), 16 - 3);
  EXPECT_EQ(m.cache.draft(leaf), nullptr);
  m.verify();
  ASSERT_TRUE(m.speculate(leaf, {-1}));
  ASSERT_TRUE(m.commit(leaf, -1));
  EXPECT_EQ(m.cache.tokens(leaf), 11);
  EXPECT_EQ(m.cache.freePages(0), 16 - 3);
  m.verify();
}

TEST(Cache, commitMovesRunsOfTokens) {
  CacheOptions options = small(16);
  options.draftPage = 1;
  Result<Cache> cache = Cache::create(options);
  const NodeId leaf = cache->createRoot();
  ASSERT_TRUE(cache->append(leaf, 3));
  ASSERT_TRUE(cache->speculate(leaf, std::vector<int32_t>{-1, 0, 1, 2}));
  const Result<Movement> moved = cache->commit(leaf, 3);
  ASSERT_TRUE(moved);
  // Four tokens in a row: one fills the node's page, three go to a new one.
  ASSERT_EQ(moved->copies.size(), 2U);
  EXPECT_EQ(moved->copies[0].tokens, 1);
  EXPECT_EQ(moved->copies[0].to.slot, 3);
  EXPECT_EQ(moved->copies[1].tokens, 3);
  EXPECT_EQ(moved->copies[1].from.slot, 1);
  EXPECT_EQ(moved->copies[1].to.slot, 0);
}

TEST(Cache, draftsOnPagesOfTheirOwn) {
  Mirror m(small(16)); // draftPage = pageTokens
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 7));
  ASSERT_TRUE(m.speculate(leaf, {-1, 0, 0, 1, 3, 3}));
  // Chains 0 | 1 3 | 4 | 5 | 2, each at the beginning of a page.
  const std::vector<Place> draft = m.cache.draftPlaces(leaf, 0);
  EXPECT_EQ(draft[3], (Place{draft[1].page, 1}));
  for (size_t t : {0, 1, 2, 4, 5})
    EXPECT_EQ(draft[t].slot, 0);
  EXPECT_EQ(m.cache.freePages(0), 16 - 2 - 5 - 1);
}

// Every operation that takes pages, with one page too few in the second class, returns an error that names
// the pages asked for and left, and changes nothing. Mirror compares all that can be queried before and
// after.
TEST(Cache, exhaustionChangesNothing) {
  for (int32_t spare = 0; spare < 2; ++spare) {
    SCOPED_TRACE(spare);
    const auto expect = [&](auto setUp, auto operation, int32_t needed, const std::string &what) {
      // Pages of the second class: as many as the state takes, and `needed` or one fewer.
      Mirror probe({4, 1, {{"all", 100, 0, 0, 0}, {"few", 100, 0, 0, 0}}});
      setUp(probe);
      const int32_t held = 100 - probe.cache.freePages(1);
      Mirror m({4, 1, {{"all", 100, 0, 0, 0}, {"few", held + needed - 1 + spare, 0, 0, 0}}});
      const std::vector<NodeId> nodes = setUp(m);
      const auto status = operation(m, nodes);
      m.verify();
      if (spare) {
        EXPECT_TRUE(status) << status.error().message;
        EXPECT_EQ(m.cache.freePages(1), 0);
        return;
      }
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().kind, ErrorKind::Memory);
      EXPECT_EQ(status.error().message, "cache: " + what + ": class 'few': " + std::to_string(needed) +
                                            " pages asked for, " + std::to_string(needed - 1) + " of " +
                                            std::to_string(held + needed - 1) + " left");
      EXPECT_EQ(m.cache.freePages(1), needed - 1);
    };
    const auto leaf = [](Mirror &m) {
      const NodeId root = m.createRoot();
      EXPECT_TRUE(m.append(root, 6));
      return std::vector<NodeId>{root};
    };
    const auto tree = [](Mirror &m) {
      const NodeId root = m.createRoot();
      EXPECT_TRUE(m.append(root, 6));
      std::vector<NodeId> nodes;
      EXPECT_TRUE(m.apply({{}, {}, {{root, 3, 4}}}, &nodes));
      return nodes;
    };
    using Nodes = std::vector<NodeId>;
    expect(
        leaf, [](Mirror &m, const Nodes &n) { return m.append(n[0], 11); }, 3,
        "append of 11 tokens to node 1");
    expect(leaf, [](Mirror &m, const Nodes &n) { return m.fork(n[0]); }, 1, "fork of node 1");
    expect(
        leaf, [](Mirror &m, const Nodes &n) { return m.speculate(n[0], {-1, 0, 1, 2, 2, -1}); }, 3,
        "draft of 6 tokens for node 1");
    expect(
        leaf, [](Mirror &m, const Nodes &n) { return m.apply({{}, {}, {{n[0], 2, 5}}}); }, 4,
        "a step of 0 prunes, 0 appends and 1 branches");
    // Pruned pages serve nodes that grow: two pages are freed.
    expect(
        tree, [](Mirror &m, const Nodes &n) { return m.apply({{}, {{n[0], 1}, {n[1], 5}, {n[2], 1}}, {}}); },
        4, "a step of 0 prunes, 3 appends and 0 branches");
  }
  Mirror m(small(3));
  const NodeId root = m.createRoot();
  std::vector<NodeId> nodes;
  ASSERT_TRUE(m.append(root, 4));
  ASSERT_TRUE(m.apply({{}, {}, {{root, 2, 4}}}, &nodes));
  EXPECT_EQ(
      message(m.apply({{nodes[1]}, {{nodes[0], 5}}, {}})),
      "cache: a step of 1 prunes, 1 appends and 0 branches: class 'all': 2 pages asked for, 1 of 3 left");
  EXPECT_TRUE(m.cache.contains(nodes[1]));
  EXPECT_TRUE(m.apply({{nodes[1]}, {{nodes[0], 4}}, {}}));
  m.verify();
}

TEST(Cache, refusesWithTheNodeNamed) {
  Mirror m(small(32));
  const NodeId root = m.createRoot(), pruned = m.createRoot(), other = m.createRoot();
  std::vector<NodeId> nodes;
  ASSERT_TRUE(m.apply({{pruned}, {}, {{root, 2, 3}}}, &nodes));
  ASSERT_TRUE(m.speculate(nodes[1], {-1}));
  ASSERT_TRUE(m.append(other, 1));
  const std::string one = nodeText(nodes[0]), two = nodeText(nodes[1]);
  const struct {
    std::string got, expected;
  } cases[] = {
      {message(m.append(other, 0)), "append of 0 tokens to node 3: expected at least 1"},
      {message(m.append(other, -4)), "append of -4 tokens to node 3: expected at least 1"},
      {message(m.append(other, 2147483647)),
       "append of 2147483647 tokens to node 3: it ends at position 1, and "
       "2147483647 more tokens exceed 2147483647"},
      {message(m.apply({{}, {{other, 1}, {other, 1}}, {}})),
       "append of 1 tokens to node 3: the step changes it twice"},
      {message(m.apply({{}, {{other, 1}}, {{other, 2, 1}}})), "branch of node 3: the step changes it twice"},
      {message(m.apply({{root}, {{nodes[0], 1}}, {}})),
       "append of 1 tokens to " + one + ": the same step prunes it"},
      {message(m.apply({{root, pruned}, {}, {}})), "prune: node 2 was pruned"},
      {message(m.apply({{}, {}, {{other, 0, 1}}})),
       "branch of node 3: expected 1 to 1048576 children and at least 0 tokens, got 0 and 1"},
      {message(m.apply({{}, {}, {{other, 1, -1}}})),
       "branch of node 3: expected 1 to 1048576 children and at least 0 tokens, got 1 and -1"},
      {message(m.apply({{}, {}, {{other, 1 << 21, 1 << 12}}})),
       "branch of node 3: expected 1 to 1048576 children and at least 0 tokens, got 2097152 and 4096"},
      {message(m.apply({{}, {}, {{other, 1 << 20, 1 << 12}}})),
       "a step of 0 prunes, 0 appends and 1 branches: 4294967296 new tokens exceed 2147483647"},
      {message(m.apply({{}, {}, {{nodes[1], 1, 1}}})),
       "branch of " + two + ": it has a draft of 1 tokens: commit it first (token -1 drops it)"},
      {message(m.fork(root)), "fork of node 1: it has children (" + one + "): branch it instead"},
      {message(m.fork(pruned)), "fork of node 2: node 2 was pruned"},
      {message(m.evict(other)), "evict: nothing is below node 3, so no row would ever see it: prune it"},
      {message(m.evict(pruned)), "evict: node 2 was pruned"},
      {message(m.speculate(root, {-1})),
       "draft of 1 tokens for node 1: expected a leaf, but it has children (" + one + ")"},
      {message(m.speculate(other, {0})),
       "draft of 1 tokens for node 3: token tree: token 0 is its own ancestor: "
       "its parents form a cycle"},
      {message(m.speculate(nodes[1], {-1})),
       "draft of 1 tokens for " + two + ": it has a draft of 1 tokens: commit it first (token -1 drops it)"},
      {message(m.commit(other, 0)), "commit to node 3: it has no draft"},
      {message(m.commit(nodes[1], 1)),
       "commit to " + two + ": expected -1 or one of the draft's 1 tokens, got 1"},
      {message(m.commit(nodes[1], -2)),
       "commit to " + two + ": expected -1 or one of the draft's 1 tokens, got -2"},
  };
  for (const auto &[got, expected] : cases)
    EXPECT_EQ(got, expected);
  ASSERT_TRUE(m.evict(root));
  EXPECT_EQ(message(m.apply({{}, {}, {{root, 1, 0}}})),
            "branch of node 1: it was evicted, and only nodes below it can grow");
}

TEST(Cache, refusesOptions) {
  const auto create = [&](CacheOptions options) { return message(Cache::create(std::move(options))); };
  EXPECT_EQ(create({0, 0, {{}}}), "cache.pageTokens: expected 1 to 65536, got 0");
  EXPECT_EQ(create({16, 3, {{}}}), "cache.draftPage: expected a divisor of the 16 tokens of a page, got 3");
  EXPECT_EQ(create({16, 0, {}}), "cache.classes: expected at least one, got none");
  EXPECT_EQ(create({16, 0, {{"kv", 0, 0, 0, 0}}}), "cache.classes[0].pages: expected at least 1, got 0");
  EXPECT_EQ(create({16, 0, {{"kv", 1, -1, 0, 0}}}), "cache.classes[0].recent: expected at least 0, got -1");
  EXPECT_EQ(create({16, 0, {{"kv", 1, 0, 4, 0}}}),
            "cache.classes[0]: sink and draft belong to a streaming class, which has recent > 0");
  EXPECT_EQ(create({16, 0, {{"kv", 1, 2147483647, 0, 0}}}),
            "cache.classes[0]: expected recent, sink and draft of at most 1073741824");
}

TEST(Cache, memoryTooSmallIsRefused) {
  Result<Cache> cache = Cache::create(small(8));
  const NodeId root = cache->createRoot();
  const Movement movement = *cache->append(root, 6);
  std::vector<std::byte> pages(2 * 4 * 8), rows(6 * 8);
  EXPECT_TRUE(executeMovement(movement, 0, 4, {pages, 8}, {rows}));
  EXPECT_EQ(message(executeMovement(movement, 0, 4, {std::span(pages).first(47), 8}, {rows})),
            "cache memory: expected 1 layers of at least 2 pages, got 47 bytes");
  EXPECT_EQ(message(executeMovement(movement, 0, 4, {pages, 8})),
            "cache memory: expected 1 layers of 6 new tokens, got 0 bytes");
  EXPECT_EQ(message(executeMovement(movement, 0, 4, {pages, 8, 2, 64}, {rows})),
            "cache memory: expected 2 layers of at least 2 pages, got 64 bytes");
  EXPECT_EQ(message(executeMovement(movement, 0, 4, {pages, 0}, {rows})),
            "cache memory: expected at least 1 byte per token and 1 layer");
}

} // namespace

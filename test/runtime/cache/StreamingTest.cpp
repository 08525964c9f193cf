//===- StreamingTest.cpp - Classes that keep sinks and a window -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mirror.h"
#include "attn_rt/cache/CacheBatch.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr int32_t page = 16;

CacheOptions streaming(int32_t pages, int32_t recent, int32_t sink, int32_t draft = 0,
                       int32_t draftPage = 1) {
  return {page, draftPage, {{"all", 2500, 0, 0, 0}, {"streaming", pages, recent, sink, draft}}};
}

int32_t heldBy(const Cache &cache, NodeId node) { return static_cast<int32_t>(cache.places(node, 1).size()); }

TEST(Streaming, keepsSinkAndRecent) {
  Mirror m(streaming(1000, 64, 32));
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 500)); // all of a prompt is kept for its own rows
  EXPECT_EQ(heldBy(m.cache, root), 32);
  ASSERT_TRUE(m.append(root, 1)); // the row at 500 sees 437 to 500, in pages 27 to 31, and pages 0 and 1
  const std::vector<TokenSpan> spans = m.cache.places(root, 1);
  ASSERT_EQ(spans.size(), 2U + 5U);
  EXPECT_EQ(spans[1].firstToken, 16);
  EXPECT_EQ(spans[2].firstToken, 27 * page);
  m.verify();
}

// Chunks see exactly the window, however long they are.
TEST(Streaming, prefillInChunksIsExact) {
  for (int32_t chunk : {1, 7, 16, 63, 64, 65, 200}) {
    Mirror m(streaming(1000, 64, 20));
    const NodeId root = m.createRoot();
    for (int i = 0; i < 12; ++i) {
      ASSERT_TRUE(m.append(root, chunk));
      m.verify(); // the first row of the chunk is at the frontier
    }
  }
}

// A batch reads the tokens that a class has kept for its rows. A fork changes no node, but lets a streaming
// class free tokens that the next row does not see. A batch notices that its pages were reassigned in that
// class only, and only if one of its own pages was.
TEST(Streaming, batchesNoticeWhoseTheirPagesAre) {
  Mirror m(streaming(60, 64, 32));
  const NodeId root = m.createRoot(), other = m.createRoot();
  ASSERT_TRUE(m.append(root, 495)); // the last row sees the last token of a page, and the next row does not
  ASSERT_TRUE(m.append(other, 300));
  CacheBatch batches[2];
  LogCounts counts[2];
  const std::vector<RowGroup> rows = {{root, 1}};
  for (int32_t c = 0; c < 2; ++c) {
    CacheBatchOptions options;
    options.operands = {{c, true, false}};
    ASSERT_TRUE(BatchBuilder(options).build(m.cache, rows, batches[c]));
    counts[c] = LogCounts::of(batches[c]);
  }
  ASSERT_TRUE(m.append(other, 1));  // gives back most of its prompt,
  ASSERT_TRUE(m.append(other, 20)); // and takes some of its pages
  ASSERT_TRUE(m.fork(root));
  for (int32_t c = 0; c < 2; ++c)
    EXPECT_TRUE(checkCurrent(batches[c], counts[c]));
  ASSERT_TRUE(m.append(other, 500));
  EXPECT_TRUE(checkCurrent(batches[0], counts[0]));
  const Status given = checkCurrent(batches[1], counts[1]);
  ASSERT_FALSE(given);
  EXPECT_NE(given.error().message.find("which the batch reads from " + nodeText(root) +
                                       " on, was reassigned since"),
            std::string::npos)
      << given.error().message;
}

// A sequence beside others that hold every other page: once its ring has wrapped, it asks for no page.
TEST(Streaming, aRingNeverAsksThePool) {
  for (int32_t draft : {0, 1, 5, 16, 40})
    for (int32_t draftPage : {1, page}) {
      SCOPED_TRACE(std::to_string(draft) + " " + std::to_string(draftPage));
      Rng rng(7);
      const int32_t recent = draft == 16 ? 18 : 100; // 18 tokens lie in two pages or three
      Mirror m(streaming(400, recent, 50, draft, draftPage));
      const NodeId root = m.createRoot();
      std::vector<int32_t> parents;
      for (int32_t t = 0; t < draft; ++t) // chains of three, or one long chain
        parents.push_back(draft != 16 && t % 3 < 1 ? -1 : t - 1);
      const auto decode = [&] {
        ASSERT_TRUE(m.append(root, 1));
        if (draft == 0)
          return;
        ASSERT_TRUE(m.speculate(root, parents));
        ASSERT_TRUE(m.commit(root, static_cast<int32_t>(below(rng, static_cast<size_t>(draft) + 1)) - 1));
        ASSERT_TRUE(m.append(root, static_cast<int32_t>(1 + below(rng, static_cast<size_t>(draft)))));
      };
      for (int i = 0; i < 200; ++i)
        decode();
      const int32_t ring = 400 - m.cache.freePages(1);
      const NodeId hog = m.createRoot();
      ASSERT_TRUE(m.append(hog, m.cache.freePages(1) * page));
      ASSERT_EQ(m.cache.freePages(1), 0);
      for (int i = 0; i < 60 && !HasFatalFailure(); ++i)
        decode();
      EXPECT_EQ(m.cache.freePages(1), 0);
      m.verify();
      // The ring is no larger than recent + draft, except for page boundaries and the draft's own pages.
      const int32_t ofDraft = (draft * draftPage + page - 1) / page;
      EXPECT_LE(ring, (50 + page - 1) / page + (recent + draft + page - 1) / page + 2 + ofDraft);
      // A ring is for a sequence without branches.
      ASSERT_TRUE(m.apply({{}, {}, {{root, 2, 0}}}));
      EXPECT_EQ(heldBy(m.cache, root) + m.cache.freePages(1) + heldBy(m.cache, hog), 400);
    }
}

// In a tree each node keeps the tokens that rows at or below it still see; checked by brute force over all
// leaves and inner nodes.
TEST(Streaming, treesGiveBackPagesNobodySees) {
  constexpr int32_t recent = 40, sink = 20;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Mirror m(streaming(5000, recent, sink));
    m.createRoot();
    for (int i = 0; i < 120; ++i) {
      const NodeId node = m.pick(rng);
      if (below(rng, 3) == 0)
        (void)m.apply({{}, {}, {{node, 2, 1}}});
      else if (below(rng, 6) == 0)
        (void)m.evict(node);
      else
        (void)m.append(node, static_cast<int32_t>(1 + below(rng, 60)));
    }
    // A last token for every leaf: then all that can be freed has been freed.
    CacheStep step;
    for (const auto &[key, node] : m.nodes)
      if (m.cache.isLeaf(Mirror::idOf(key)) && !node.evicted)
        step.append.push_back({Mirror::idOf(key), 1});
    ASSERT_TRUE(m.apply(step));
    m.verify();
    std::map<int32_t, int32_t> horizon; // by node: the first row that can come at or below a node
    for (const auto &[key, node] : m.nodes)
      if (!node.evicted)
        for (std::optional<NodeId> id = Mirror::idOf(key); id; id = m.cache.parent(*id)) {
          const auto found = horizon.emplace(id->index, node.frontier).first;
          found->second = std::min(found->second, node.frontier);
        }
    int32_t gaps = 0;
    for (const auto &[key, node] : m.nodes) {
      const NodeId id = Mirror::idOf(key);
      int32_t expected = 0;
      for (int32_t first = 0; first < m.cache.tokens(id); first += page) {
        const int32_t begin = m.cache.position(id) + first, end = begin + page;
        expected += begin < sink || end > horizon.at(key.first) - recent + 1;
      }
      EXPECT_EQ(heldBy(m.cache, id), expected) << nodeText(id);
      gaps += (m.cache.tokens(id) + page - 1) / page - expected;
    }
    EXPECT_GT(gaps, 0);
  }
}

// Drafts alone also advance a sequence.
TEST(Streaming, commitsGiveBackPages) {
  Mirror m(streaming(1000, 64, 0, 4));
  const NodeId root = m.createRoot();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(m.speculate(root, {-1, 0, 1, 2}));
    ASSERT_TRUE(m.commit(root, 3));
    const int32_t visible = std::max(0, m.cache.end(root) - 63);
    EXPECT_EQ(heldBy(m.cache, root), (m.cache.end(root) + page - 1) / page - visible / page);
  }
  EXPECT_LE(1000 - m.cache.freePages(1), 8);
  m.verify();
}

TEST(Streaming, forkAndEvictGiveBackAtOnce) {
  Mirror m(streaming(1000, 17, 0));
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 100));
  EXPECT_EQ(m.cache.freePages(1), 1000 - 7);
  ASSERT_TRUE(m.fork(leaf)); // the row at 100 sees 84 and later: pages 5, 6 and the copy of 6
  EXPECT_EQ(m.cache.freePages(1), 1000 - 3);
  const NodeId other = m.createRoot();
  std::vector<NodeId> next;
  ASSERT_TRUE(m.append(other, 100));
  ASSERT_TRUE(m.apply({{}, {}, {{other, 1, 40}}}, &next));
  ASSERT_TRUE(m.append(next[0], 1));
  EXPECT_EQ(m.cache.freePages(1), 1000 - 3 - 2 - 2);
  ASSERT_TRUE(m.evict(other)); // it has kept 84 to 99 for rows of its own
  EXPECT_EQ(m.cache.freePages(1), 1000 - 3 - 2);
  m.verify();
}

// Above two leaves: an append may also use the pages that it makes invisible further up.
TEST(Streaming, pagesAboveCountForTheAppend) {
  Mirror m(streaming(8, 17, 0));
  const NodeId root = m.createRoot();
  std::vector<NodeId> leaves;
  ASSERT_TRUE(m.append(root, 2 * page));
  ASSERT_TRUE(m.apply({{}, {}, {{root, 1, page}}}, &leaves));
  ASSERT_TRUE(m.evict(root));
  EXPECT_EQ(m.cache.freePages(1), 8 - 2);
  const NodeId hog = m.createRoot();
  ASSERT_TRUE(m.append(hog, 6 * page));
  // The row at 48 sees 32 and later, none of the root's tokens.
  ASSERT_TRUE(m.append(leaves[0], 1));
  m.verify();
  EXPECT_EQ(m.cache.freePages(1), 0);
}

// A refused step must not move the frontier.
TEST(Streaming, refusalsKeepTheFrontier) {
  Mirror m(streaming(9, 17, 0));
  const NodeId root = m.createRoot();
  std::vector<NodeId> leaves;
  ASSERT_TRUE(m.append(root, 2 * page));
  ASSERT_TRUE(m.apply({{}, {}, {{root, 2, page}}}, &leaves));
  ASSERT_TRUE(m.evict(root));
  EXPECT_EQ(m.append(leaves[0], 100 * page).error().kind, ErrorKind::Memory);
  ASSERT_TRUE(m.append(leaves[1], 1));
  EXPECT_EQ(heldBy(m.cache, root), 1); // for the row at 32 of the other leaf
  m.verify();
}

TEST(Streaming, evictionFreesATrunkOfShortNodes) {
  Mirror m(streaming(1000, 64, 0));
  NodeId node = m.createRoot();
  ASSERT_TRUE(m.append(node, 16));
  for (int turn = 0; turn < 40; ++turn) {
    std::vector<NodeId> next;
    ASSERT_TRUE(m.apply({{}, {}, {{node, 1, 16}}}, &next));
    ASSERT_TRUE(m.evict(node));
    node = next[0];
    EXPECT_LE(1000 - m.cache.freePages(1), 6);
    m.verify();
  }
}

} // namespace

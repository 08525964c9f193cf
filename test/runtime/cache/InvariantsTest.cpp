//===- InvariantsTest.cpp - States that no operation makes ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <functional>
#include <gtest/gtest.h>

namespace attn::rt {

struct CacheTester {
  static Cache::State &state(Cache &cache) { return *cache.state_; }
};

namespace {

/// Node 1 with 70 tokens, children 2 and 3 with 9 each, 3 with a draft; then node 4, a sequence.
Cache sample() {
  Cache cache = std::move(*Cache::create({4, 1, {{"all", 64, 0, 0, 0}, {"streaming", 64, 8, 4, 0}}}));
  const NodeId root = cache.createRoot();
  EXPECT_TRUE(cache.append(root, 70));
  const std::vector<NodeId> children = *cache.branch(root, 2);
  EXPECT_TRUE(cache.apply({{}, {{children[0], 9}, {children[1], 9}}, {}}));
  EXPECT_TRUE(cache.speculate(children[1], std::vector<int32_t>{-1, 0, 0}));
  const NodeId other = cache.createRoot();
  for (int i = 0; i < 30; ++i)
    EXPECT_TRUE(cache.append(other, 1));
  return cache;
}

TEST(CacheInvariants, corruptionIsFoundAndNamed) {
  const struct {
    std::function<void(Cache::State &)> corrupt;
    const char *words;
  } cases[] = {
      {[](auto &s) { s.at(2).runs[0].pages[1] = s.at(3).runs[0].pages[0]; },
       "is in two places: node 2 and node 3"},
      {[](auto &s) { s.pools[0].give(s.at(2).runs[0].pages[0]); },
       "is in two places: the free pages and node 2"},
      {[](auto &s) { s.at(1).runs[0].pages[3] = 64; }, "page 64 of node 1 is none of 64"},
      {[](auto &s) { s.at(3).draft->pages[0].tokens[0] = s.at(4).runs[0].pages[2]; },
       "is in two places: node 4 and node 3"},
      {[](auto &s) { s.pools[0].assign(s.at(2).runs[0].pages[0], {2, 1}); },
       "of node 2 is booked on index 2"},
      {[](auto &s) { s.pools[1].take({ground, -1}); }, "1 pages are nowhere"},
      {[](auto &s) { s.at(2).tokens += 4; }, "node 2, class 'all': 3 pages are kept and 0 freed, but 13"},
      {[](auto &s) { s.at(3).pos0 -= 1; }, "node 3 begins at position 69, its parent ends at 70"},
      {[](auto &s) { s.at(2).frontier = 80; }, "node 2 has its frontier at 80, outside of [70, 79]"},
      {[](auto &s) { s.at(1).horizon = 0; }, "node 1 has its horizon at 0, expected 70"},
      {[](auto &s) { s.at(2).parent = 3; }, "node 2 is a child of node 1 whose links say otherwise"},
      {[](auto &s) { s.at(3).next = 2; }, "node 2 is met twice below node 1: a cycle, or two parents"},
      {[](auto &s) { s.at(2).firstChild = s.at(2).lastChild = 1; },
       "node 1 is met twice below node 2: a cycle, or two parents"},
      {[](auto &s) { s.at(1).lastChild = 2; }, "the last child of node 1 is another"},
      {[](auto &s) { s.at(4).live = false; }, "has a child that was pruned, index 4"},
      {[](auto &s) { s.at(2).next = -1, s.at(1).lastChild = 2; }, "node 3 is an orphan: no root is above it"},
      {[](auto &s) { ++s.live; }, "5 nodes are counted, 4 are there"},
      {[](auto &s) { s.at(1).joint = true; }, "node 1 is a joint of 70 tokens"},
      {[](auto &s) { s.at(3).evicted = true, s.at(3).horizon = neverSeen; },
       "node 3 has a draft, but is no leaf"},
      {[](auto &s) { // one more page than the window allows, with a correct owner
         auto &run = s.at(4).runs[1];
         s.pools[1].give(run.pages[1]);
         run.pages.erase(run.pages.begin() + 1);
         ++run.gap;
       },
       "node 4, class 'streaming': position 23 was freed, but is visible"},
      {[](auto &s) { s.at(2).runs[1].spare.push_back(s.pools[1].take({2, -1})); },
       "node 2, class 'streaming': 1 pages are kept without tokens, room for 0"},
  };
  ASSERT_TRUE(sample().checkInvariants());
  for (const auto &[corrupt, words] : cases) {
    Cache cache = sample();
    corrupt(CacheTester::state(cache));
    const Status status = cache.checkInvariants();
    ASSERT_FALSE(status) << words;
    EXPECT_EQ(status.error().kind, ErrorKind::Check);
    EXPECT_NE(status.error().message.find(words), std::string::npos)
        << status.error().message << "\nlacks " << words;
  }
}

} // namespace
} // namespace attn::rt

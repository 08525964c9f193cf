//===- BranchControllerTest.cpp - Who decides how a tree grows ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/BranchController.h"
#include "Mirror.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;
using Kind = LeafChoice::Kind;

namespace {

TEST(BranchController, decidesAboutEveryLeafInOrder) {
  Cache cache = std::move(*Cache::create({4, 0, {{"all", 64, 0, 0, 0}}}));
  const NodeId first = cache.createRoot(), second = cache.createRoot();
  ASSERT_TRUE(cache.apply({{}, {{first, 6}, {second, 3}}, {}}));
  std::vector<Leaf> asked;
  const auto step = [&](std::vector<LeafChoice> choices) {
    asked.clear();
    return decodeStep(cache, [&](const Leaf &leaf) {
      asked.push_back(leaf);
      return choices.at(asked.size() - 1);
    });
  };
  Result<DecodeStep> grown = step({{Kind::Branch, 2}, {Kind::Continue}});
  ASSERT_TRUE(grown) << grown.error().message;
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].node, first);
  EXPECT_EQ(asked[1].end, 3);
  ASSERT_EQ(grown->rows.size(), 3U);
  EXPECT_EQ(grown->rows[0].node, second); // the leaf that continues comes first, as its token does
  EXPECT_EQ(grown->movement.writes[0].row, 0);
  EXPECT_EQ(grown->movement.writes[0].to.slot, 3);
  EXPECT_EQ(cache.children(first), grown->children);
  const std::vector<NodeId> thoughts = grown->children;

  grown = step({{Kind::Branch, 3}, {Kind::Hold}, {Kind::Prune}});
  ASSERT_TRUE(grown);
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[0].node, thoughts[0]);
  EXPECT_EQ(asked[0].depth, 1);
  EXPECT_EQ(asked[0].tokens, 1);
  EXPECT_EQ(asked[1].node, thoughts[1]);
  EXPECT_EQ(grown->rows.size(), 3U);
  EXPECT_FALSE(cache.contains(second));

  grown = step({{}, {Kind::Prune}, {}, {Kind::Hold}});
  ASSERT_TRUE(grown);
  EXPECT_EQ(asked[2].depth, 2);
  EXPECT_EQ(grown->rows.size(), 2U);
}

TEST(BranchController, exhaustionChangesNothing) {
  Cache cache = std::move(*Cache::create({4, 0, {{"all", 5, 0, 0, 0}}}));
  const NodeId root = cache.createRoot();
  ASSERT_TRUE(cache.append(root, 8));
  const auto branch = [&](int32_t children) {
    return decodeStep(cache, [&](const Leaf &) { return LeafChoice{Kind::Branch, children}; });
  };
  EXPECT_EQ(branch(4).error().message,
            "cache: a step of 0 prunes, 0 appends and 1 branches: class 'all': 4 pages "
            "asked for, 3 of 5 left");
  EXPECT_TRUE(cache.isLeaf(root));
  EXPECT_EQ(branch(0).error().message,
            "branch of node 1: expected 1 to 1048576 children and at least 0 tokens, got 0 and 1");
  EXPECT_TRUE(branch(3));
}

} // namespace

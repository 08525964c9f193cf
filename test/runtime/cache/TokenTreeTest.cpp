//===- TokenTreeTest.cpp - Tests: Speculated tokens, depth first ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/TokenTree.h"
#include "Mirror.h"

#include <gtest/gtest.h>
#include <set>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::vector<int32_t> list(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

TEST(TokenTree, depthFirst) {
  // The tree of the header, with its tokens named in another order.
  const Result<TokenTree> tree = TokenTree::fromParents(std::vector<int32_t>{5, 3, 5, -1, 2, 3});
  ASSERT_TRUE(tree) << tree.error().message;
  EXPECT_EQ(list(tree->order()), (std::vector<int32_t>{3, 1, 5, 0, 2, 4}));
  EXPECT_EQ(list(tree->place()), (std::vector<int32_t>{3, 1, 4, 0, 5, 2}));
  EXPECT_EQ(list(tree->parent()), (std::vector<int32_t>{-1, 0, 0, 2, 2, 4}));
  EXPECT_EQ(list(tree->depth()), (std::vector<int32_t>{0, 1, 1, 2, 2, 3}));
  EXPECT_EQ(tree->height(), 4);
  EXPECT_EQ(tree->pathTo(4), (std::vector<int32_t>{0, 2, 4, 5}));
  std::vector<std::vector<int32_t>> chains;
  for (const TokenTree::Chain &chain : tree->chains())
    chains.push_back({chain.begin, chain.end, chain.below});
  EXPECT_EQ(chains,
            (std::vector<std::vector<int32_t>>{{0, 1, 6}, {1, 2, 2}, {2, 3, 6}, {3, 4, 4}, {4, 6, 6}}));
}

TEST(TokenTree, aPathIsOneChain) {
  std::vector<int32_t> parents;
  for (int32_t t = 0; t < maxTreeTokens; ++t)
    parents.push_back(t - 1);
  const TokenTree tree = *TokenTree::fromParents(parents);
  ASSERT_EQ(tree.chains().size(), 1U);
  EXPECT_EQ(tree.chains()[0].end, maxTreeTokens);
  EXPECT_EQ(tree.height(), maxTreeTokens);
}

TEST(TokenTree, randomTreesKeepTheirMeaning) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const std::vector<int32_t> parents = randomTree(rng, seed % 10 ? 40 : maxTreeTokens);
    const TokenTree tree = *TokenTree::fromParents(parents);
    // The chain of a token says which rows see it, for rows at or after its own index.
    for (const TokenTree::Chain &chain : tree.chains())
      for (int32_t d = chain.begin; d < chain.end; ++d)
        for (int32_t row = d; row < tree.size(); ++row) {
          bool ancestor = false;
          for (int32_t t = tree.order()[static_cast<size_t>(row)]; t >= 0;
               t = parents[static_cast<size_t>(t)])
            ancestor |= t == tree.order()[static_cast<size_t>(d)];
          ASSERT_EQ(ancestor, row < chain.below);
        }
    // No two chains can be joined.
    for (size_t i = 1; i < tree.chains().size(); ++i) {
      const int32_t parent = tree.parent()[static_cast<size_t>(tree.chains()[i].begin)];
      ASSERT_TRUE(parent < 0 || std::count(tree.parent().begin(), tree.parent().end(), parent) > 1);
    }
  }
}

TEST(TokenTree, pathsAreMedusas) {
  const Result<TokenTree> tree = TokenTree::fromPaths({{1, 0}, {0}, {1}, {0, 3}, {1, 0, 0}});
  ASSERT_TRUE(tree) << tree.error().message;
  EXPECT_EQ(list(tree->order()), (std::vector<int32_t>{1, 3, 2, 0, 4}));
}

TEST(TokenTree, refuses) {
  const auto message = [](const auto &result) { return result ? "no error" : result.error().message; };
  const auto parents = [&](std::vector<int32_t> p) { return message(TokenTree::fromParents(p)); };
  EXPECT_EQ(parents({}), "token tree: expected 1 to 1024 tokens, got 0");
  EXPECT_EQ(parents(std::vector<int32_t>(1025, -1)), "token tree: expected 1 to 1024 tokens, got 1025");
  EXPECT_EQ(parents({-1, 0, 3}),
            "token tree: token 2 is an orphan: expected -1 or one of 3 tokens as its parent, got 3");
  EXPECT_EQ(parents({-1, -2}),
            "token tree: token 1 is an orphan: expected -1 or one of 2 tokens as its parent, got -2");
  EXPECT_EQ(parents({0}), "token tree: token 0 is its own ancestor: its parents form a cycle");
  EXPECT_EQ(parents({-1, 3, 1, 4, 3}), "token tree: token 3 is its own ancestor: its parents form a cycle");
  const auto paths = [&](std::vector<std::vector<int32_t>> p) { return message(TokenTree::fromPaths(p)); };
  EXPECT_EQ(paths({}), "token tree: expected 1 to 1024 tokens, got 0");
  EXPECT_EQ(paths({{0}, {}}), "token tree: token 1: expected a path of child numbers, got []");
  EXPECT_EQ(paths({{0}, {0, -1}}), "token tree: token 1: expected a path of child numbers, got [0, -1]");
  EXPECT_EQ(paths({{0}, {1}, {0}}), "token tree: token 2: the path [0] is given twice");
  EXPECT_EQ(paths({{0}, {1, 0, 2}}),
            "token tree: token 1 is an orphan: the path [1, 0, 2] goes through [1, 0], which is no token");
}

} // namespace

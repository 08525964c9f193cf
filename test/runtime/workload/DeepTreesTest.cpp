//===- DeepTreesTest.cpp - A step of many deep trees with drafts ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/DeepTrees.h"

#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

TEST(DeepTrees, areForestsWithDraftsAtTheirLeaves) {
  const DeepTrees shape{3, 4, 3, 1000, 200, 16};
  const WorkloadStep step = generateDeepTrees(5, shape);
  ASSERT_TRUE(checkForest(step.nodes, 32, "step"));
  int32_t roots = 0, leaves = 0, drafted = 0;
  std::vector<int32_t> depth(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    const ForestNode &node = step.nodes[i];
    roots += node.parent < 0;
    if (node.parent >= 0)
      depth[i] = depth[static_cast<size_t>(node.parent)] + 1;
    EXPECT_EQ(node.rows > 0, depth[i] >= 4) << i;
    if (depth[i] == 4)
      ++leaves;
    if (depth[i] > 4) {
      EXPECT_EQ(node.rows, node.tokens);
      drafted += node.tokens;
    } else {
      EXPECT_TRUE(depth[i] == 0 ? node.tokens == 1000 : node.tokens >= 1 && node.tokens <= 200);
    }
  }
  EXPECT_EQ(roots, 3);
  EXPECT_GT(leaves, 6);
  EXPECT_EQ(drafted, 16 * leaves);
}

TEST(DeepTrees, areTheSameForASeed) {
  const auto text = [](uint64_t seed) {
    return writeWorkload({8, 2, 64, 1, 256, {generateDeepTrees(seed, {2, 3, 2, 100, 50, 8})}});
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(ScaleDown, keepsRowsAndRoundsUp) {
  std::vector<WorkloadStep> steps = {{{{-1, 100, 0}, {0, 7, 1}, {1, 5, 5}, {0, 0, 0}}, 3}};
  scaleDown(steps, 8);
  const int32_t tokens[] = {13, 1, 5, 0};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(steps[0].nodes[i].tokens, tokens[i]);
  EXPECT_EQ(steps[0].nodes[2].parent, 1);
  EXPECT_EQ(steps[0].repeat, 3);
}

} // namespace

//===- DeepTrees.cpp - A step of many deep trees with drafts --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/DeepTrees.h"
#include "attn_rt/support/Random.h"
#include "attn_rt/workload/Speculation.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// The chains of a token tree as nodes below `leaf`.
void addDraft(const TokenTree &tree, int32_t leaf, std::vector<ForestNode> &nodes) {
  std::vector<int32_t> nodeOf(static_cast<size_t>(tree.size()));
  for (const TokenTree::Chain &chain : tree.chains()) {
    const int32_t above = tree.parent()[static_cast<size_t>(chain.begin)], tokens = chain.end - chain.begin;
    std::fill(nodeOf.begin() + chain.begin, nodeOf.begin() + chain.end, static_cast<int32_t>(nodes.size()));
    nodes.push_back({above < 0 ? leaf : nodeOf[static_cast<size_t>(above)], tokens, tokens});
  }
}

void addBelow(int32_t parent, int32_t level, const DeepTrees &shape, const TokenTree &draft, Random &random,
              std::vector<ForestNode> &nodes) {
  if (level == shape.depth) {
    nodes[static_cast<size_t>(parent)].rows = 1;
    if (shape.draft > 0)
      addDraft(draft, parent, nodes);
    return;
  }
  for (int64_t children = 1 + random.below(shape.width); children > 0; --children) {
    const auto tokens = static_cast<int32_t>(1 + random.below(shape.tokens));
    nodes.push_back({parent, tokens, 0});
    addBelow(static_cast<int32_t>(nodes.size()) - 1, level + 1, shape, draft, random, nodes);
  }
}

} // namespace

WorkloadStep generateDeepTrees(uint64_t seed, const DeepTrees &shape) {
  Random random(seed, "deep trees");
  const TokenTree draft = generateTokenTree(std::max(shape.draft, 1));
  WorkloadStep step;
  for (int32_t tree = 0; tree < shape.trees; ++tree) {
    step.nodes.push_back({-1, shape.prompt, 0});
    addBelow(static_cast<int32_t>(step.nodes.size()) - 1, 0, shape, draft, random, step.nodes);
  }
  return step;
}

void scaleDown(std::vector<WorkloadStep> &steps, int32_t divisor) {
  for (WorkloadStep &step : steps)
    for (ForestNode &node : step.nodes)
      node.tokens = std::max(node.rows, node.tokens / divisor + (node.tokens % divisor != 0));
}

} // namespace attn::rt

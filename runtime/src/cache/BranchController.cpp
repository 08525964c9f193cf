//===- BranchController.cpp - Who decides how a tree grows ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/BranchController.h"

namespace attn::rt {

Result<DecodeStep> decodeStep(Cache &cache, const BranchController &controller) {
  CacheStep step;
  std::vector<std::pair<NodeId, int32_t>> open; // nodes with their depths; the next node is last
  const auto push = [&](const std::vector<NodeId> &nodes, int32_t depth) {
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      open.emplace_back(*node, depth);
  };
  push(cache.roots(), 0);
  while (!open.empty()) {
    const auto [node, depth] = open.back();
    open.pop_back();
    if (!cache.isLeaf(node)) {
      push(cache.children(node), depth + 1);
      continue;
    }
    const LeafChoice choice = controller({node, depth, cache.tokens(node), cache.end(node)});
    switch (choice.kind) {
    case LeafChoice::Kind::Continue:
      step.append.push_back({node, 1});
      break;
    case LeafChoice::Kind::Branch:
      step.branch.push_back({node, choice.children, 1});
      break;
    case LeafChoice::Kind::Prune:
      step.prune.push_back(node);
      break;
    case LeafChoice::Kind::Hold:
      break;
    }
  }
  Result<CacheChange> change = cache.apply(step);
  if (!change)
    return change.error();
  DecodeStep result;
  for (const CacheStep::Append &append : step.append)
    result.rows.push_back({append.node, 1});
  for (NodeId child : change->children)
    result.rows.push_back({child, 1});
  result.children = std::move(change->children);
  result.movement = std::move(change->movement);
  return result;
}

} // namespace attn::rt

//===- DecodingTree.h - Runs of multi-step reasoning ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tree-of-thought decoding as DeFT (arXiv 2404.00242) recorded it: a node is a
// thought, and generates one token in each iteration from `start` to `end`; its
// children begin when it is done. The root is the prompt, present before iteration 1.
//
//     prompt ── iterations 1..900 of ten thoughts ── 901..1700 of the best one's ten
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_DECODINGTREE_H
#define ATTN_RT_WORKLOAD_DECODINGTREE_H

#include "attn_rt/workload/Workload.h"

namespace attn::rt {

struct DecodingTree {
  struct Node {
    int32_t parent = -1;        ///< an earlier node
    int32_t start = 0, end = 0; ///< iterations of its first and last token; start <= 0 for prompts
    int32_t tokens() const { return end - start + 1; }
  };
  std::vector<Node> nodes; ///< depth-first

  int32_t iterations() const; ///< the iteration of the last token
  /// The forest at one iteration, from 1 on: a row for each thought that generates, whose new token is among
  /// its tokens. Nodes that no row sees are left out. Empty if no thought generates.
  WorkloadStep step(int32_t iteration) const;
  /// The forests of every `every`-th iteration from the first on; each stands for `every` iterations.
  std::vector<WorkloadStep> steps(int32_t every = 1) const;
};

/// Reads DeFT's files: a list of trees. A tree is a list of nodes {id, tokens, start, end, children} or, as
/// published,
/// {"prompt", "data": nodes by id}, in which `tokens` are called `value`. Errors name the tree and the node.
/// Refused are:
/// - an id given twice
/// - a child that is no node
/// - two parents
/// - a cycle
/// - tokens that are not end - start + 1 (they may be none)
/// - a node that starts before its parent is done
Result<std::vector<DecodingTree>> readDecodingTrees(std::string_view text, std::string_view name);

/// A level of thoughts: `keep` nodes of the level before (0: all) get `width` children each, of 1 to
/// `longest` tokens.
struct DecodingLevel {
  int32_t width = 10, keep = 0, longest = 1000;
};
/// Generates a tree of this shape; a seed gives the same tree on every machine. DeFT's trees are like {10, 0,
/// 1400}, {5, 3, 1400}, {10, 2, 1400} after 1,104 tokens (sorting), and {10, 0, 900}, {10, 1, 900}, {10, 1,
/// 900} after 1,073 (merging).
DecodingTree generateDecodingTree(uint64_t seed, int32_t promptTokens,
                                  const std::vector<DecodingLevel> &levels);

} // namespace attn::rt

#endif

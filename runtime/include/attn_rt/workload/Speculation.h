//===- Speculation.h - Token trees and what is accepted of them -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The trees that Medusa and EAGLE verify in every step, and how many tokens each
// step of a recorded run gained.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_SPECULATION_H
#define ATTN_RT_WORKLOAD_SPECULATION_H

#include "attn_rt/cache/TokenTree.h"
#include "attn_rt/workload/Workload.h"

#include <map>
#include <string>

namespace attn::rt {

/// Reads trees by name: {"medusa.mc_sim_7b_63": [[0], [0, 0], …], …}. Refuses what TokenTree::fromPaths
/// refuses, naming the tree.
Result<std::map<std::string, TokenTree>> readTokenTrees(std::string_view text, std::string_view name);

struct Verification {
  TokenTree tree;                             ///< without the token before it, which a step verifies as well
  std::vector<std::vector<int32_t>> accepted; ///< of each run: the tokens gained by each step, at least 1
};
/// Reads DeFT's files: {"tree": paths, "size": tokens with the one before, "records": [{"Accept_length": …},
/// …]}, or as published {"Tree_Structure", "Token_Tree_size", "Records"}. Refuses lengths that the tree does
/// not have, naming the run and the step.
Result<Verification> readVerification(std::string_view text, std::string_view name);

/// Generates a tree of the `tokens` paths that are likeliest to be accepted if the n-th child is accepted
/// with probability 1/2^n. Its shape is that of Medusa's trees.
TokenTree generateTokenTree(int32_t tokens);
/// Generates the tokens gained by steps over such a tree; a seed gives the same numbers on every machine.
std::vector<int32_t> generateAccepted(uint64_t seed, const TokenTree &tree, int32_t steps);

/// Makes a step for each accepted length: the whole tree is verified after a context that grows by the
/// accepted tokens. The first node is the context with the token before the tree; each token is a node and a
/// row.
std::vector<WorkloadStep> speculationSteps(const TokenTree &tree, std::span<const int32_t> accepted,
                                           int32_t context);

} // namespace attn::rt

#endif

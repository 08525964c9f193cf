//===- DeepTrees.h - A step of many deep trees with drafts ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All kinds of sharing in one step: prompts, prefixes after them, the conversations
// that continue these, candidates, and a draft after each candidate:
//
//
//     prompt ─┬─ prefix ─┬─ conversation ─── candidate ─── draft
//             │          └─ conversation ─┬─ candidate ─── draft
//             └─ prefix …                 └─ candidate ─── draft
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_DEEPTREES_H
#define ATTN_RT_WORKLOAD_DEEPTREES_H

#include "attn_rt/workload/Workload.h"

namespace attn::rt {

struct DeepTrees {
  int32_t trees = 2;
  int32_t depth = 3;  ///< levels after the prompt
  int32_t width = 2;  ///< a node has 1 to `width` children
  int32_t prompt = 0; ///< tokens of a prompt
  int32_t tokens = 0; ///< every other node has 1 to `tokens` tokens
  int32_t draft = 0;  ///< tokens speculated after each leaf
};

/// Generates a step of such trees; a seed gives the same trees on every machine. Each leaf has a row for its
/// last token, each token of a draft has a row, and a chain of a draft is a node.
WorkloadStep generateDeepTrees(uint64_t seed, const DeepTrees &shape);

/// Divides every node's tokens by `divisor`, rounded up, but keeps at least as many tokens as rows. The
/// topology stays.
void scaleDown(std::vector<WorkloadStep> &steps, int32_t divisor);

} // namespace attn::rt

#endif

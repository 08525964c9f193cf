//===- DeepTrees.h - A step of many deep trees with drafts ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everything that shares, in one step: prompts, prefixes behind them, the
// conversations that continue these, candidates, and a draft behind each:
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
  int32_t depth = 3;  ///< levels behind the prompt
  int32_t width = 2;  ///< a node has 1 to so many children
  int32_t prompt = 0; ///< tokens of a prompt
  int32_t tokens = 0; ///< of every other node 1 to so many
  int32_t draft = 0;  ///< tokens speculated behind each leaf
};

/// A step of such trees, the same for a seed everywhere. Leaves have a row, for their last token, and every
/// token of a draft has one; a chain of a draft is a node.
WorkloadStep generateDeepTrees(uint64_t seed, const DeepTrees &shape);

/// Fewer tokens, the same topology: every node's tokens over `divisor`, rounded up, but no fewer than its
/// rows.
void scaleDown(std::vector<WorkloadStep> &steps, int32_t divisor);

} // namespace attn::rt

#endif

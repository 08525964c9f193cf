//===- Workload.h - Decoding steps as forests, from a file ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What attn-plan reads: for each decoding step a forest in depth-first order,
// with the KV tokens of each node and the query rows that hang on it. A row sees
// the tokens of the path from its node to the root; so, rows being numbered in
// the order of their nodes, a node's tokens are seen by one range of rows.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_WORKLOAD_H
#define ATTN_RT_WORKLOAD_WORKLOAD_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn::rt {

struct ForestNode {
  int32_t parent = -1; ///< an earlier node, or -1
  int32_t tokens = 0;  ///< its own tokens
  int32_t rows = 0;    ///< query rows that hang on it
};

struct WorkloadStep {
  std::vector<ForestNode> nodes;
  int64_t repeat = 1;
};

struct Workload {
  int32_t qHeads = 0, kvHeads = 0, dim = 0, layers = 0;
  int64_t bytesPerTokenPerHead = 0; ///< of K and V together
  std::vector<WorkloadStep> steps;

  int32_t groupSize() const { return qHeads / kvHeads; }
};

/// Reads and checks a workload. `name` begins messages, which name the step and the node. `repeat` is
/// optional (1); every other key is required, and unknown keys are refused.
Result<Workload> readWorkload(std::string_view text, std::string_view name);

/// Writes a workload as text that readWorkload reads.
std::string writeWorkload(const Workload &workload);

/// Few-shot prompting as in DeFT's Table 17: after a prompt, `branches` branches that each grow by one token
/// in every iteration, the first included.
std::vector<WorkloadStep> fewShotSteps(int32_t branches, int32_t promptTokens, int32_t iterations);

/// Checks that the numbers of one step's nodes agree: parents come before their children, in depth-first
/// order, and the packed rows of the step fit 32 bits. `where` begins messages ("steps[3]").
Status checkForest(const std::vector<ForestNode> &nodes, int32_t qHeads, std::string_view where);

} // namespace attn::rt

#endif

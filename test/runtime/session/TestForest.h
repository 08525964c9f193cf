//===- TestForest.h - Forests of numbered nodes -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Problems for the scalar kernels. What a node's tokens and queries hold follows
// from the node's number alone, so that a node means the same in every batch,
// wherever its pages lie and whatever is beside it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_SESSION_TESTFOREST_H
#define ATTN_TEST_RUNTIME_SESSION_TESTFOREST_H

#include "Fuzz.h"
#include "attn_rt/batch/Batch.h"

namespace attn::rt::test {

struct TestNode {
  uint64_t number;
  int32_t parent; ///< -1: a root
  int32_t tokens;
  int32_t rows; ///< on its last tokens
};
using TestForest = std::vector<TestNode>; ///< depth first

/// Nodes of up to `most` tokens with up to two rows each.
TestForest randomForest(Rng &rng, size_t nodes, size_t most);
/// The same nodes, with as many others as further trees and as further children, before and behind them.
TestForest withNeighbours(const TestForest &forest, Rng &rng, size_t nodes, size_t most);

/// Of operand "kv" and, where the manifest asks for them, sinks; `rng` scatters the pages. What no token is
/// in holds NaN.
TensorMap tensorsOf(const Manifest &manifest, const TestForest &forest, Rng &rng);

/// The node's number and which of its rows, of each row of the batch.
std::vector<std::pair<uint64_t, int32_t>> rowsOf(const TestForest &forest);

} // namespace attn::rt::test

#endif

//===- TestForest.h - Forests of numbered nodes -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Problems for the scalar kernels. A node's number alone determines the contents of its
// tokens and queries, so that a node means the same in every batch, wherever its pages
// are and whatever is beside it.
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
  int32_t rows; ///< on the node's last tokens
};
using TestForest = std::vector<TestNode>; ///< depth first

/// Nodes of up to `most` tokens with up to two rows each.
TestForest randomForest(Rng &rng, size_t nodes, size_t most);
/// Adds `nodes` further nodes to a forest, as further trees and as further children, before and after the
/// given nodes.
TestForest withNeighbours(const TestForest &forest, Rng &rng, size_t nodes, size_t most);

/// The tensors of operand "kv" and, if the manifest needs them, of sinks. `rng` scatters the pages. Slots
/// without a token hold NaN.
TensorMap tensorsOf(const Manifest &manifest, const TestForest &forest, Rng &rng);

/// For each row of the batch, the node's number and the row's index within the node.
std::vector<std::pair<uint64_t, int32_t>> rowsOf(const TestForest &forest);

} // namespace attn::rt::test

#endif

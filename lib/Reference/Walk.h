//===- Walk.h - The pairs of a row and a token that it sees -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_WALK_H
#define ATTN_LIB_REFERENCE_WALK_H

#include "ScoreProgram.h"

namespace mlir::attn::reference {

/// Adds factor * x[i] to sum[i].
void addScaled(std::span<double> sum, double factor, std::span<const double> x);
double mma(std::span<const double> a, std::span<const double> b);

/// Consecutive tokens of one KV head in an instance of a region, and those that a row sees.
struct Chunk {
  size_t region;
  std::span<const int32_t> visible;   ///< indices of the visible tokens of the chunk
  std::span<const int32_t> positions; ///< positions of the visible tokens
  std::span<const int64_t> lines;     ///< rows of the region's keys and values, one per visible token
  std::span<const double> keys, values;
  size_t instance; ///< the region's instance, and the number of the chunk's first token in it
  int64_t first;
};

/// The scores of the tokens that a row sees, as they enter the softmax, for query head `head`.
class Scores {
public:
  Scores(AttendOp attend, const Operands &operands);
  /// Makes a thread's own lanes.
  ScoreProgram::Lanes makeLanes() const { return score.makeLanes(); }
  void find(const Chunk &chunk, int64_t row, int64_t head, ScoreProgram::Lanes &lanes,
            std::vector<double> &scores) const;

  const double scale;
  const ScoreProgram score;

private:
  const Operands &operands;
};

/// Calls `use` for each row and each chunk of a KV head with tokens that it sees, in the order of regions,
/// instances and tokens.
void walkTokens(const Operands &operands, int64_t keyHead,
                function_ref<void(int64_t row, const Chunk &chunk)> use);

/// Computes the significance of tokens for the last `counted` rows of each sequence (0: for all rows), from
/// the rows' LSEs. Each region's tensor has the shape of its keys without their features or, for a paged
/// store, [instances, heads, pages of an instance, tokens of a page].
rt::TensorMap weighTokens(const Operands &operands, const rt::Tensor &lse, Together together, int64_t counted,
                          unsigned threads);

} // namespace mlir::attn::reference

#endif

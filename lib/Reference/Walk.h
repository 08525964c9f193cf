//===- Walk.h - The pairs of a row and a token that it sees -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_WALK_H
#define ATTN_LIB_REFERENCE_WALK_H

#include "ScoreProgram.h"

namespace mlir::attn::reference {

/// Adds factor * x[i] to sum[i].
void addScaled(std::span<double> sum, double factor, std::span<const double> x);
double mma(std::span<const double> a, std::span<const double> b);

/// Tokens of one KV head, one behind the other in an instance of a region, and which of them a row sees.
struct Chunk {
  size_t region;
  std::span<const int32_t> visible;   ///< of the tokens of the chunk
  std::span<const int32_t> positions; ///< of those
  std::span<const int64_t> lines;     ///< rows of the region's keys and values, one for each token
  std::span<const double> keys, values;
  size_t instance; ///< of the region, and the number of the chunk's first token in it
  int64_t first;
};

/// The scores of the tokens that a row sees, as they enter the softmax: of query head `head`.
class Scores {
public:
  Scores(AttendOp attend, const Operands &operands);
  /// What a thread needs to itself.
  ScoreProgram::Lanes makeLanes() const { return score.makeLanes(); }
  void find(const Chunk &chunk, int64_t row, int64_t head, ScoreProgram::Lanes &lanes,
            std::vector<double> &scores) const;

  const double scale;
  const ScoreProgram score;

private:
  const Operands &operands;
};

/// Calls `use` for each row and each chunk of tokens of a KV head of which it sees some, in the order of
/// regions, instances and tokens.
void walkTokens(const Operands &operands, int64_t keyHead,
                function_ref<void(int64_t row, const Chunk &chunk)> use);

/// What tokens were worth to the last `counted` rows of each sequence (0: to all rows), whose LSEs these are:
/// of each region a tensor of the shape of its keys without their features or, where it is paged, [instances,
/// heads, pages of an instance, tokens of a page].
rt::TensorMap weighTokens(const Operands &operands, const rt::Tensor &lse, Together together, int64_t counted,
                          unsigned threads);

} // namespace mlir::attn::reference

#endif

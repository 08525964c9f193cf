//===- ScoreProgram.h - A score region as a list of loops -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_SCOREPROGRAM_H
#define ATTN_LIB_REFERENCE_SCOREPROGRAM_H

#include "Operands.h"

#include <functional>

namespace mlir::attn::reference {

/// A score region evaluated for many tokens at once. Each operation is a loop over tokens, so that it is
/// identified once per chunk of tokens. Floats are double, integers i32; i1 is 0 or 1.
class ScoreProgram {
public:
  /// The maximum number of tokens of a call.
  static constexpr int64_t kChunk = 256;

  /// Makes a program; an empty region is the identity.
  ScoreProgram(mlir::Region &region, const Operands &operands);

  bool empty() const { return steps.empty(); }

  /// The values of a running program; each thread has its own.
  struct Lanes {
    std::vector<std::array<double, kChunk>> floats;
    std::vector<std::array<int32_t, kChunk>> integers;
    int64_t count = 0;
  };
  Lanes makeLanes() const;

  /// Replaces scores[i], the score of the token at position keyPositions[i], for one row and query head.
  void run(Lanes &lanes, std::span<double> scores, int32_t head, int32_t queryPosition,
           std::span<const int32_t> keyPositions) const;

private:
  friend class ScoreGradient;
  using Step = std::function<void(Lanes &)>;
  unsigned floatOf(Value value);
  unsigned integerOf(Value value);
  Step compile(Operation &op, const Operands &operands);
  Step compileFloat(Operation &op);
  Step compileInteger(Operation &op);
  Step compileRead(ReadOp read, const Operands &operands);
  /// Returns the offset of the element of a table that token i reads, with clamped indices.
  static int64_t offsetOf(const Table &table, ArrayRef<unsigned> indices, const Lanes &lanes, int64_t i);

  std::vector<Step> steps;
  llvm::DenseMap<Value, unsigned> numbers;
  std::vector<std::pair<unsigned, double>> floatConstants;
  std::vector<std::pair<unsigned, int32_t>> integerConstants;
  unsigned floatCount = 0, integerCount = 0;
  unsigned score = 0, head = 0, queryPosition = 0, keyPosition = 0, yielded = 0;
};

} // namespace mlir::attn::reference

#endif

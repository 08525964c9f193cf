//===- ScoreGradient.h - The derivative of a score region -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_SCOREGRADIENT_H
#define ATTN_LIB_REFERENCE_SCOREGRADIENT_H

#include "ScoreProgram.h"

namespace mlir::attn::reference {

/// A score program run backwards. From the gradients of its yielded scores it computes those of its input
/// scores and of the table elements that it read. The operations' derivatives are the usual ones. If there
/// is no derivative, the first of two equal operands of a maximum or minimum counts as the result, and |x| at
/// 0 has the derivative 0. Positions, heads and truth values have no gradients, and conversions to integers
/// pass none on. An operand that a result does not depend on at all (the other side of a select) gets exactly
/// nothing, whatever its own derivative would be.
class ScoreGradient {
public:
  /// `program`: the program of the same region.
  ScoreGradient(mlir::Region &region, const ScoreProgram &program);

  /// Gradients of the elements of each table, by the number of the function's argument.
  using TableGradients = std::map<unsigned, std::vector<double>>;
  /// Adjoints of each float of the program, for each token; each thread has its own.
  using Adjoints = std::vector<std::array<double, ScoreProgram::kChunk>>;

  /// Replaces gradients[i] of the yielded score of token i by the gradient of its input score. `lanes`: as a
  /// run of the program left them. Adds to `tables`.
  void run(const Operands &operands, const ScoreProgram::Lanes &lanes, Adjoints &adjoints,
           std::span<double> gradients, TableGradients &tables) const;

private:
  struct Pass {
    const Operands &operands;
    const ScoreProgram::Lanes &lanes;
    Adjoints &adjoints;
    TableGradients &tables;
  };
  using Step = std::function<void(const Pass &)>;
  Step differentiate(Operation &op) const;
  Step differentiateRead(ReadOp read) const;
  Step differentiateSelect(Operation &select) const;
  unsigned numberOf(Value value) const { return program.numbers.lookup(value); }

  const ScoreProgram &program;
  std::vector<Step> steps; ///< from the last operation to the first
};

} // namespace mlir::attn::reference

#endif

//===- ScoreGradient.h - The derivative of a score region -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_SCOREGRADIENT_H
#define ATTN_LIB_REFERENCE_SCOREGRADIENT_H

#include "ScoreProgram.h"

namespace mlir::attn::reference {

/// A score program run backwards: from the gradients of what it yielded to those of the scores it was given
/// and of the table elements it read. The operations' derivatives are the usual ones; where an operation has
/// none, of two equal operands of a maximum or minimum the first is taken for the result, and |x| at 0 has
/// the derivative 0. Positions, heads and truth values have no gradients, nor do conversions to integers pass
/// any on. An operand that a result does not depend on at all (the other side of a select) gets exactly
/// nothing, whatever its own derivative would be.
class ScoreGradient {
public:
  /// `program`: of the same region.
  ScoreGradient(mlir::Region &region, const ScoreProgram &program);

  /// Gradients of the elements of each table, by the number of the function's argument.
  using TableGradients = std::map<unsigned, std::vector<double>>;
  /// Of each float of the program, for each token; each thread has its own.
  using Adjoints = std::vector<std::array<double, ScoreProgram::kChunk>>;

  /// gradients[i] of the yielded score of token i becomes that of the score itself. `lanes`: as a run of the
  /// program left them. Adds to `tables`.
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

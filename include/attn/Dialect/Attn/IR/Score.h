//===- Score.h - Legal contents of score regions ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A score region is straight-line code over scalars, evaluated once per visible pair of a row and a token.
// Every lowering and interpreter handles exactly the operations that `isLegalInScore` admits.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_SCORE_H
#define ATTN_DIALECT_ATTN_IR_SCORE_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Region.h"

namespace mlir::attn {

/// Whether the operation may be in a score region, by its kind; the verifier checks operand types.
bool isLegalInScore(Operation *op);

/// Whether the region holds a function marked as approximate: `math.tanh` with `fastmath<afn>`.
bool usesApproximateFunctions(Region &score);

/// The inputs of the indices of a table's read, constants and other tables aside: the head alone, the head
/// and the row's position, or also a pair of a row and a token.
enum class IndexedBy { Head, Row, Pair };
/// `read`: an `attn.read` in a score region.
IndexedBy indexedBy(Operation *read);

} // namespace mlir::attn

#endif

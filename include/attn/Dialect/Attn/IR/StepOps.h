//===- StepOps.h - An update, step by step ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_STEPOPS_H
#define ATTN_DIALECT_ATTN_IR_STEPOPS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// Whether a fragment has, in f32, a number per pair of a row and a token.
bool isOfPairs(Type type);
/// Whether it has a number per row, per token, or per row or pair.
bool isOfRows(Type type);
bool isOfTokens(Type type);
bool isOfRowsOrPairs(Type type);
/// Whether it has features of each row.
bool isOfQueries(Type type);
/// Whether it is a sum over rows or tokens, in f32: features of the other.
bool isOfFeatures(Type type);

} // namespace mlir::attn

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnStepOps.h.inc"

#endif

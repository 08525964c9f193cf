//===- WalkTokens.h - Loops over the rows that see tokens ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block keeps the tokens of one task stationary and walks the rows that see
// them, those of all heads of the group:
//
//   the tokens
//   for each tile of packed rows
//     the update, on the tile's rows and these tokens
//   their gradients, or their significance
//
// So the terms of a token, of every row and head, are added in registers, in
// the order of the rows, and no other block adds to its sum.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_WALKTOKENS_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_WALKTOKENS_H

#include "attn/Conversion/Chain.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// Fills the kernel with the loop around the update of the chain, which belongs to another function.
/// `arguments` maps that function's values to the kernel's.
void walkTokens(Chain &chain, func::FuncOp kernel, const IRMapping &arguments);

} // namespace mlir::attn

#endif

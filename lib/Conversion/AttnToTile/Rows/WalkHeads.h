//===- WalkHeads.h - A loop over heads around an append ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_WALKHEADS_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_WALKHEADS_H

#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Support/Chip.h"

namespace mlir::attn {

/// Writes the kernel of an append whose rows and pages have strides, and which may normalize or rotate keys.
/// All values of `copy` are arguments of `kernel`.
void walkHeads(const RowCopy &copy, func::FuncOp kernel, const Chip &chip);

} // namespace mlir::attn

#endif

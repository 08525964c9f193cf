//===- WalkAllRows.h - A loop over the rows of all heads --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_WALKALLROWS_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_WALKALLROWS_H

#include "attn/Conversion/Chain.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// Fills the kernel with a loop over the rows of all heads, and with the chain's gradient of them, which has
/// no updates. `arguments` maps the values of the chain's function to the kernel's.
void walkAllRows(Chain &chain, func::FuncOp kernel, const IRMapping &arguments);

} // namespace mlir::attn

#endif

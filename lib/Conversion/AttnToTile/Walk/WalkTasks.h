//===- WalkTasks.h - Loops over tasks, segments and tiles -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_WALKTASKS_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_WALKTASKS_H

#include "attn/Conversion/Chain.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// Fills the kernel with loops around the operations of the chain, which belongs to another function.
/// `arguments` maps that function's values to the kernel's.
void walkTasks(Chain &chain, func::FuncOp kernel, const IRMapping &arguments);

} // namespace mlir::attn

#endif

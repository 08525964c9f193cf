//===- WalkParts.h - Loops over what attend kernels have stored -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Flash-Decoding's second kernel. A warp takes one (row, head) at a time from a
// CSR list of the plan and merges its states in the list's order.
//
// The kernel starts while the attention still runs. The plan says where the
// states of its first row are, so the kernel reads that before it begins to
// wait.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_WALKPARTS_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_WALKPARTS_H

#include "AttnToTile/Kernel/Kernel.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// Fills the kernel with loops around the operations that use `parts` in its function.
void walkParts(PartsOp parts, func::FuncOp kernel, const IRMapping &arguments);

} // namespace mlir::attn

#endif

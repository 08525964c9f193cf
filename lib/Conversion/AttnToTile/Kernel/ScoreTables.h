//===- ScoreTables.h - Tables that score regions read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_SCORETABLES_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_SCORETABLES_H

#include "Kernel.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// What stands for a value of a region that is inlined: its number, a copy of a constant from outside, or
/// itself.
Value inlined(KernelBuilder &b, Value value, IRMapping &numbers);

/// Where in its table a read finds its element: row-major, each index clamped into its extent.
Value placeInTable(KernelBuilder &b, attn::ReadOp read, IRMapping &numbers);
/// The element, of the kernel's buffer of that name.
Value readTable(KernelBuilder &b, attn::ReadOp read, IRMapping &numbers);

} // namespace mlir::attn

#endif

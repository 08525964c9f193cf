//===- ScoreTables.h - Tables that score regions read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_SCORETABLES_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_SCORETABLES_H

#include "Kernel.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {

/// The value that replaces a region's value when the region is inlined: its number, a copy of a constant from
/// outside, or the value itself.
Value inlined(KernelBuilder &b, Value value, IRMapping &numbers);

/// The index at which a read finds its element in the table: row-major, each index clamped to its extent.
Value placeInTable(KernelBuilder &b, attn::ReadOp read, IRMapping &numbers);
/// Reads the element from the kernel's buffer with the table's name.
Value readTable(KernelBuilder &b, attn::ReadOp read, IRMapping &numbers);

} // namespace mlir::attn

#endif

//===- Decline.h - Reasons of passes to leave code unchanged ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_DECLINE_H
#define ATTN_DIALECT_TILE_TRANSFORMS_DECLINE_H

#include "mlir/IR/Operation.h"
#include "llvm/Support/Debug.h"

namespace mlir::tile {

/// Prints why a pass leaves an operation unchanged, in a debug build with the pass's flag in `-debug-only=`.
/// Returns false.
inline bool decline(const char *flag, Operation *op, const Twine &why) {
  DEBUG_WITH_TYPE(flag, llvm::dbgs() << "[" << flag << "] " << op->getName() << " at " << op->getLoc()
                                     << " stays: " << why << "\n");
  return false;
}

} // namespace mlir::tile

#endif

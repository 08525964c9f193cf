//===- Decline.h - Why passes leave code as it is ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_DECLINE_H
#define ATTN_DIALECT_TILE_TRANSFORMS_DECLINE_H

#include "mlir/IR/Operation.h"
#include "llvm/Support/Debug.h"

namespace mlir::tile {

/// Says why a pass leaves an operation as it is, in a debug build where `-debug-only=` names the pass's flag.
/// Returns false.
inline bool decline(const char *flag, Operation *op, const Twine &why) {
  DEBUG_WITH_TYPE(flag, llvm::dbgs() << "[" << flag << "] " << op->getName() << " at " << op->getLoc()
                                     << " stays: " << why << "\n");
  return false;
}

} // namespace mlir::tile

#endif

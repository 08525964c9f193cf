//===- LaterReads.h - Reading columns of a tile later -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LATERREADS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LATERREADS_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::tile {

/// Whether columns may be read in front of `later` instead: until then, their tile is neither written nor
/// released.
inline bool mayReadLater(LoadColumnsOp load, Operation *later) {
  if (load->getBlock() != later->getBlock())
    return false;
  auto stays = [](Operation &op) {
    return isMemoryEffectFree(&op) || isa<StartMmaOp, WaitMmasOp, LoadColumnsOp, AnyLineOp>(op);
  };
  return llvm::all_of(llvm::make_range(std::next(load->getIterator()), later->getIterator()), stays);
}

} // namespace mlir::tile

#endif

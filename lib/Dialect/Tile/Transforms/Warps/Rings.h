//===- Rings.h - Fills, consumes and uses of rings' tiles ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGS_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/MapVector.h"

namespace mlir::tile {

/// The ring of a `tile.produce` or `tile.consume`; null for other operations.
Value ringOf(Operation *op);

/// How the copies of a produce reach the ring.
struct ProducedCopies {
  TmaLoadOp tmaLoad;    ///< null if they are gathers, or if branches hold the fetches
  ClearOp clear;        ///< behind the tmaLoad, if there is one
  bool gathers = false; ///< else they are fetched
};
/// The copies of a produce, or what is wrong with them.
FailureOr<ProducedCopies> copiesOf(ProduceOp produce);

/// Who uses a tile that was taken. Operations in loops and branches count as those of the consume's own block
/// that contain them.
struct TileUses {
  Operation *first = nullptr, *last = nullptr; ///< null if nobody does
  /// MMAs that read it, wherever they are.
  SmallVector<StartMmaOp> mmas;
  /// Whether the last use is the end of an mma, and nothing but mmas reads the tile.
  bool endsWithMma = false;
  /// Whether its memory is sent.
  bool sent = false;
};
FailureOr<TileUses> usesOf(ConsumeOp consume);

/// A ring that some warps produce and others consume, and its barriers.
struct Ring {
  AllocOp tiles;
  SmallVector<Operation *> produces, consumes; ///< in order
  bool gathers = false, clears = false, sent = false;
  Value full = {}, empty = {};

  RingType getType() { return cast<RingType>(tiles.getMemory().getType()); }
  int64_t getStages() { return getType().getStages(); }
  /// Loops around its produces.
  int64_t getDepth() const;
};
using Rings = llvm::MapVector<Value, Ring>;
/// The rings of a kernel that are filled and taken, in the order of their allocation.
FailureOr<Rings> findRings(func::FuncOp kernel);

} // namespace mlir::tile

#endif

//===- Rings.h - Producers, consumers and uses of rings' tiles --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGS_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/MapVector.h"

namespace mlir::tile {

/// Returns the ring of a `tile.produce` or `tile.consume`; null for other operations.
Value ringOf(Operation *op);

/// The copies of a `tile.produce` into the ring.
struct ProducedCopies {
  TmaLoadOp tmaLoad;          ///< null if they are gathers, or if branches hold the TMA loads
  ClearOp clear;              ///< after the TMA load, if there is one
  bool gathers = false;       ///< else they are TMA loads, or a tile of quantized values that is widened
  Operation *widen = nullptr; ///< tile.widen_tile or tile.widen_lines; null if nothing is widened
};
/// Returns the copies of a `tile.produce`, or reports an error.
FailureOr<ProducedCopies> copiesOf(ProduceOp produce);

/// Uses of a consumed tile. Operations in loops and branches count as the operation of the consume's own
/// block that contains them.
struct TileUses {
  Operation *first = nullptr, *last = nullptr; ///< null without uses
  /// MMAs that read it, in any block.
  SmallVector<StartMmaOp> mmas;
  /// Whether the last use is the end of an MMA, and only MMAs read the tile.
  bool endsWithMma = false;
  /// Whether a TMA store reads its memory.
  bool sent = false;
};
FailureOr<TileUses> usesOf(ConsumeOp consume);

/// A ring that some warps produce and others consume, and its barriers.
struct Ring {
  AllocOp tiles;
  SmallVector<Operation *> produces, consumes; ///< in order
  bool gathers = false, clears = false, sent = false, widens = false;
  Value full = {}, empty = {};

  RingType getType() { return cast<RingType>(tiles.getMemory().getType()); }
  int64_t getStages() { return getType().getStages(); }
  /// Returns the number of loops around its produces.
  int64_t getDepth() const;
};
using Rings = llvm::MapVector<Value, Ring>;
/// Returns the rings of a kernel that are produced and consumed, in the order of their allocation.
FailureOr<Rings> findRings(func::FuncOp kernel);

} // namespace mlir::tile

#endif

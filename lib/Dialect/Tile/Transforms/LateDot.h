//===- LateDot.h - A dot that may start an iteration later ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LATEDOT_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LATEDOT_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::tile {

/// The last of a loop's dots, if it adds to what the loop carries a product of what is computed from the
/// results of those before; and what moves with it.
struct LateDot {
  /// Finds such a dot in a loop; none where the loop has other dots. Fails, with an error, where there is one
  /// that cannot be started an iteration later.
  static FailureOr<std::optional<LateDot>> find(scf::ForOp loop);
  /// A branch that has the loop on one side and whose other side is right, too, if the loop has no
  /// iterations.
  scf::IfOp branchAround();
  /// What the first iteration finds carried.
  Value firstWeights(ImplicitLocOpBuilder &b);
  /// Finishes dots that stay, of which the late one may be unfinished where `isLater`: in branches, so that
  /// ptxas does not hoist the wait to the one before.
  void finishOnBranches(FinishDotsOp dots, Value isLater);

  scf::ForOp loop;
  FinishDotsOp first = {};               ///< of the dots that stay
  SmallVector<FinishDotsOp> others = {}; ///< of those, behind the first
  StartDotOp start = {};                 ///< of the dot that moves
  FinishDotsOp finish = {};              ///< of that dot, too
  /// Whether a dot that stays reads the tile, too, and awaits it.
  bool sharesTile = false;
  unsigned carried = 0;                ///< the carried value that it adds to
  SmallVector<Operation *> waits = {}; ///< in front of the start: tile.await and tile.fence_async
  SmallVector<ArriveOp> releases =
      {}; ///< behind the finish, of tiles that were awaited for this dot or others
  SmallVector<Operation *> rounding = {}; ///< what makes the left operand's 16 bits, the last one first
  /// Carried values that tell where the tile is, by number, and what an iteration adds to them.
  llvm::MapVector<unsigned, int64_t> counts = {};

  /// Whether a value of an iteration, such as one that tells where a tile is, can be computed for the one
  /// before or behind it: notes what the loop counts.
  bool canCountBack(Value value);

private:
  bool matchDots();
  bool matchTile();
  /// Whether a dot that stays reads the tile, too, whose ring has another for the next iteration.
  bool mayShareTile();
  LogicalResult check();
  /// Whether `to` is computed from a value of `from` in the same iteration.
  bool reaches(ValueRange from, Value to);
  /// What one iteration adds to a carried value, if that is a constant.
  std::optional<int64_t> stepOf(unsigned number);
};

} // namespace mlir::tile

#endif

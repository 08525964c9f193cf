//===- LateMma.h - An mma that may start an iteration later ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LATEMMA_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LATEMMA_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::tile {

/// The last of a loop's mmas, if it adds to what the loop carries a product of what is computed from the
/// results of those before; and what moves with it.
struct LateMma {
  /// Finds such an mma in a loop; none where the loop has other mmas. Fails, with an error, where there is
  /// one that cannot be started an iteration later.
  static FailureOr<std::optional<LateMma>> find(scf::ForOp loop);
  /// A branch that has the loop on one side and whose other side is right, too, if the loop has no
  /// iterations.
  scf::IfOp branchAround();
  /// What the first iteration finds carried.
  Value firstWeights(ImplicitLocOpBuilder &b);
  /// Finishes mmas that stay, of which the late one may be unfinished where `isLater`: in branches, so that
  /// ptxas does not hoist the wait to the one before.
  void finishOnBranches(WaitMmasOp mmas, Value isLater);

  scf::ForOp loop;
  WaitMmasOp first = {};               ///< of the mmas that stay
  SmallVector<WaitMmasOp> others = {}; ///< of those, behind the first
  StartMmaOp start = {};               ///< of the mma that moves
  WaitMmasOp finish = {};              ///< of that mma, too
  /// Whether an mma that stays reads the tile, too, and awaits it.
  bool sharesTile = false;
  unsigned carried = 0;                ///< the carried value that it adds to
  SmallVector<Operation *> waits = {}; ///< in front of the start: tile.mbarrier_wait and tile.fence_async
  SmallVector<ArriveOp> releases =
      {}; ///< behind the finish, of tiles that were awaited for this mma or others
  SmallVector<Operation *> rounding = {}; ///< what makes the left operand's 16 bits, the last one first
  /// Carried values that tell where the tile is, by number, and what an iteration adds to them.
  llvm::MapVector<unsigned, int64_t> counts = {};

  /// Whether a value of an iteration, such as one that tells where a tile is, can be computed for the one
  /// before or behind it: notes what the loop counts.
  bool canCountBack(Value value);

private:
  bool matchMmas();
  bool matchTile();
  /// Whether an mma that stays reads the tile, too, whose ring has another for the next iteration.
  bool mayShareTile();
  LogicalResult check();
  /// Whether `to` is computed from a value of `from` in the same iteration.
  bool reaches(ValueRange from, Value to);
  /// What one iteration adds to a carried value, if that is a constant.
  std::optional<int64_t> stepOf(unsigned number);
};

} // namespace mlir::tile

#endif

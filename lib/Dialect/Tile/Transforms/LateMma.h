//===- LateMma.h - An MMA that may start an iteration later -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LATEMMA_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LATEMMA_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::tile {

/// The last MMA of a loop and the operations that move with it. It accumulates into a carried value, and
/// multiplies values computed from the results of the earlier MMAs.
struct LateMma {
  /// Finds such an MMA in a loop; none if the loop's MMAs are different. Fails, with an error, if the MMA
  /// cannot start an iteration later.
  static FailureOr<std::optional<LateMma>> find(scf::ForOp loop);
  /// Returns a branch that has the loop on one side and whose other side is also right for a loop without
  /// iterations.
  scf::IfOp branchAround();
  /// Returns the carried value of the first iteration.
  Value firstWeights(ImplicitLocOpBuilder &b);
  /// Finishes the remaining MMAs, of which the late one may be unfinished if `isLater`. It does so in
  /// branches, so that ptxas does not hoist the wait to the previous one.
  void finishOnBranches(WaitMmasOp mmas, Value isLater);

  scf::ForOp loop;
  WaitMmasOp first = {};               ///< of the remaining MMAs
  SmallVector<WaitMmasOp> others = {}; ///< of the remaining MMAs, after the first
  StartMmaOp start = {};               ///< of the MMA that moves
  WaitMmasOp finish = {};              ///< of the MMA that moves
  /// Whether a remaining MMA also reads the tile, and waits for it.
  bool sharesTile = false;
  unsigned carried = 0;                ///< the carried value that it accumulates into
  SmallVector<Operation *> waits = {}; ///< before the start: tile.mbarrier_wait and tile.fence_async
  SmallVector<ArriveOp> releases = {}; ///< after the finish, of tiles that this MMA or others waited for
  SmallVector<Operation *> rounding =
      {}; ///< operations that make the left operand's 16 bits, the last one first
  /// Carried values that determine the tile, by number, and the increment of an iteration.
  llvm::MapVector<unsigned, int64_t> counts = {};

  /// Whether a value of an iteration, such as the tile's position, can be computed for the previous or the
  /// next iteration. Records the loop's counters that it needs.
  bool canCountBack(Value value);

private:
  bool matchMmas();
  bool matchTile();
  /// Whether a remaining MMA also reads the tile, whose ring has another tile for the next iteration.
  bool mayShareTile();
  bool copiesNothingMeanwhile(RingStageOp stage);
  LogicalResult check();
  /// Whether `to` is computed from a value of `from` in the same iteration.
  bool reaches(ValueRange from, Value to);
  /// Returns the increment of a carried value per iteration, if it is constant.
  std::optional<int64_t> stepOf(unsigned number);
};

} // namespace mlir::tile

#endif

//===- LoopAround.h - A late MMA continues in the next run ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LOOPAROUND_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LOOPAROUND_H

#include "MovedMma.h"

namespace mlir::tile {

/// The loop around a late MMA's loop. One run of the inner loop may leave an MMA to the next run, because the
/// sum and the tile's position go from run to run and nowhere else. A branch after the inner loop may read
/// the sum if its condition is known before the run, as for an output that is finished before the task's last
/// range.
class LoopAround {
public:
  /// Finds it. `branch` has the late MMA's loop on the side with iterations.
  static std::optional<LoopAround> find(const LateMma &mma, scf::IfOp branch);

  scf::ForOp getLoop() { return loop; }
  /// Lets the loop carry weights, and whether an MMA is pending; returns the weights.
  Value carry(Value noWeights);
  Value isPending() { return loop.getRegionIterArgs().back(); }
  /// Leaves the last MMA of a run to the next run, if there is one. The late MMA's loop is already rotated,
  /// and yields weights as its last value.
  void leaveToNext(MovedMma &moved, ImplicitLocOpBuilder &b);
  /// Does the pending MMA where the late MMA's loop does not run: consumers that take tiles there without
  /// using them need the MMA's stage.
  void finishPending(MovedMma &moved, ImplicitLocOpBuilder &b);

private:
  LoopAround(const LateMma &mma, scf::IfOp branch, scf::ForOp loop) : mma(mma), branch(branch), loop(loop) {}
  /// Returns the number of the loop's carried value that passes a value of the late MMA's loop from run to
  /// run.
  std::optional<unsigned> numberOf(unsigned inner);
  /// Finds the branch that reads the sum, if there is one; returns whether there are no other readers.
  bool findReader(Value after);
  /// Whether a value of the outer loop can be computed before the branch around the late MMA's loop.
  bool isKnownBefore(Value value);
  /// Moves the operations that compute such a value before the branch.
  void moveBefore(Value value);
  /// Whether a value can be computed after the loop.
  bool isFoundBehind(Value value);

  const LateMma &mma;
  scf::IfOp branch;
  scf::ForOp loop;
  scf::IfOp reader; ///< the branch after it that reads the sum, if any; the sum must be complete there
  unsigned sum = 0; ///< the number of the value that the MMA accumulates into
  llvm::DenseMap<unsigned, unsigned> counts; ///< by the numbers of the late MMA's loop
};

} // namespace mlir::tile

#endif

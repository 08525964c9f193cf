//===- LoopAround.h - A late mma goes on to the next loop -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LOOPAROUND_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LOOPAROUND_H

#include "MovedMma.h"

namespace mlir::tile {

/// The loop around a late mma's loop, where what one run of that loop leaves to do, the next run of it may
/// begin with: sum and place of the tile go from one to the next and nowhere else. A branch behind the loop
/// may read the sum, if whether it does is known before: what is finished of a task before its last range.
class LoopAround {
public:
  /// Finds it. `branch` has the late mma's loop on the side where that has iterations.
  static std::optional<LoopAround> find(const LateMma &mma, scf::IfOp branch);

  scf::ForOp getLoop() { return loop; }
  /// Lets the loop carry weights, and whether an mma is left to do; returns the weights.
  Value carry(Value noWeights);
  Value isPending() { return loop.getRegionIterArgs().back(); }
  /// Leaves the last mma of a run to the next run, if there is one. The late mma's loop has been rotated by
  /// now, and yields weights as the last of its values.
  void leaveToNext(MovedMma &moved, ImplicitLocOpBuilder &b);
  /// Does what is left to do where the late mma's loop does not run: who takes tiles there without using them
  /// needs the stage that the mma holds.
  void finishPending(MovedMma &moved, ImplicitLocOpBuilder &b);

private:
  LoopAround(const LateMma &mma, scf::IfOp branch, scf::ForOp loop) : mma(mma), branch(branch), loop(loop) {}
  /// The number by which the loop carries a value of the late mma's loop from each run to the next.
  std::optional<unsigned> numberOf(unsigned inner);
  /// Finds the branch that reads the sum, if there is one; whether there are no others.
  bool findReader(Value after);
  /// Whether a value of the outer loop can be computed before the branch around the late mma's loop.
  bool isKnownBefore(Value value);
  /// Moves what such a value is computed from there.
  void moveBefore(Value value);
  /// Whether a value can be computed behind the loop.
  bool isFoundBehind(Value value);

  const LateMma &mma;
  scf::IfOp branch;
  scf::ForOp loop;
  scf::IfOp reader; ///< behind the branch, if any: what reads the sum, which must be whole then
  unsigned sum = 0; ///< the number of the value that the mma adds to
  llvm::DenseMap<unsigned, unsigned> counts; ///< by numbers of the late mma's loop
};

} // namespace mlir::tile

#endif

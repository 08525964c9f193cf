//===- RingCounters.h - Which of a ring's tiles it is -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGCOUNTERS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGCOUNTERS_H

#include "Rings.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::tile {

/// A block of the same warps, from whose beginning the tiles of some rings are counted: all that these warps
/// produce or consume of them is in it.
struct RingRole {
  Block *block;
  SmallVector<Operation *> operations; ///< produces and consumes, in order
};
/// The roles of a kernel; fails where one produces a ring and consumes its tiles. Branches part roles where
/// no ring of theirs is anyone else's in the block around.
FailureOr<SmallVector<RingRole>> findRingRoles(func::FuncOp kernel);

/// The numbers of a role's tiles, carried by the loops and branches around produces and consumes. Rings that
/// are filled or taken in the same blocks are counted together.
class RingCounters {
public:
  explicit RingCounters(const RingRole &role);
  /// Walks the role: `lower` replaces the produces and consumes of one block.
  using Lower = function_ref<void(RingCounters &, ArrayRef<Operation *>)>;
  void run(Lower lower);

  // What follows is for `lower`.
  /// Number of the tile.
  Value tileOf(Operation *op) const { return values[tiles.lookup(ringOf(op))]; }
  /// Parity of how many of the ring's tiles were cleared so far; may be set.
  Value &clearedOf(Operation *op) { return values[cleared.lookup(ringOf(op))]; }

private:
  SmallVector<unsigned> numbersOf(ArrayRef<Operation *> operations) const;
  void enter(Block &block, ArrayRef<Operation *> operations);
  Operation *passLoop(scf::ForOp loop, ArrayRef<unsigned> numbers, ArrayRef<Operation *> operations);
  Operation *passBranch(scf::IfOp branch, ArrayRef<unsigned> numbers, ArrayRef<Operation *> operations);
  SmallVector<Value> pick(ArrayRef<unsigned> numbers) const;
  void assign(ArrayRef<unsigned> numbers, ValueRange from);

  const RingRole &role;
  IRRewriter b;
  Lower lower;
  DenseMap<Value, unsigned> tiles, cleared; ///< of each ring, indices into `values`
  SmallVector<Value> values;                ///< as they are where the walk is
};

} // namespace mlir::tile

#endif

//===- RingCounters.h - Counters of rings' tiles ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGCOUNTERS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_WARPS_RINGCOUNTERS_H

#include "Rings.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::tile {

/// A block of the same warps in which the tiles of some rings are counted from its beginning. It contains all
/// operations of these warps that produce or consume tiles of the rings.
struct RingRole {
  Block *block;
  SmallVector<Operation *> operations; ///< tile.produce and tile.consume, in order
};
/// Finds the roles of a kernel; fails if a role both produces a ring and consumes its tiles. Branches
/// separate roles if no other branch of the enclosing block uses their rings.
FailureOr<SmallVector<RingRole>> findRingRoles(func::FuncOp kernel);

/// The numbers of a role's tiles, carried by the loops and branches around its produces and consumes. Rings
/// that are produced or consumed in the same blocks are counted together.
class RingCounters {
public:
  explicit RingCounters(const RingRole &role);
  /// Walks the role: `lower` replaces the produces and consumes of one block.
  using Lower = function_ref<void(RingCounters &, ArrayRef<Operation *>)>;
  void run(Lower lower);

  // The following members are for `lower`.
  /// Returns the number of the tile.
  Value tileOf(Operation *op) const { return values[tiles.lookup(ringOf(op))]; }
  /// Returns the parity of the number of the ring's tiles cleared so far; may be set.
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
  DenseMap<Value, unsigned> tiles, cleared; ///< indices of each ring into `values`
  SmallVector<Value> values;                ///< values at the current position of the walk
};

} // namespace mlir::tile

#endif

//===- RingCounters.h - Which of a ring's tiles it is -----------*- C++ -*-===//
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_RINGCOUNTERS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_RINGCOUNTERS_H

#include "Rings.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::tile {

/// A block in which the same warps do all that is done to some rings: their tiles are counted from its
/// beginning.
struct RingRole {
  Block *block;
  SmallVector<Operation *> operations; ///< fills and takes, in order
};
/// Branches part roles where no ring of theirs is anyone else's in the block around.
void findRingRoles(Block &block, ArrayRef<Operation *> operations, SmallVectorImpl<RingRole> &roles);

/// The numbers of a role's tiles, carried by the loops and branches around fills and takes. Rings that are
/// filled or taken in the same blocks are counted together.
class RingCounters {
public:
  explicit RingCounters(const RingRole &role);
  /// Walks the role: `lower` replaces the fills and takes of one block.
  using Lower = function_ref<void(RingCounters &, ArrayRef<Operation *>)>;
  void run(Lower lower);

  // What follows is for `lower`.
  /// Number of the tile.
  Value tileOf(Operation *op) const { return values[tiles.lookup(ringOf(op))]; }
  /// Parity of how many of the ring's tiles were cleared so far; may be set.
  Value &clearedOf(Operation *op) { return values[cleared.lookup(ringOf(op))]; }

private:
  SmallVector<unsigned> numbersOf(ArrayRef<Operation *> operations) const;
  SmallVector<Operation *> within(Operation *op) const;
  void enter(Block &block, ArrayRef<Operation *> operations);
  void pass(Operation *op);
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

//===- Slice.h - Copies of a part of a program ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A slice of some operations of a block is those that are asked for, what they
// are computed from, and the loops and branches around them, with only those
// carried values and results that somebody in the slice needs. Who needs a value
// that a loop carries, needs what the loop starts with and what it yields; what
// all iterations hand on unchanged is not carried at all.
//
// Loops are scf.for and branches scf.if: any other operation is in a slice with
// all of its regions, or not.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_SLICE_H
#define ATTN_DIALECT_TILE_TRANSFORMS_SLICE_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::tile {

class Slice {
public:
  /// Nothing yet of the operations from `first` to `last`, which stand in one block.
  Slice(Operation *first, Operation *last) : first(first), last(last) {}

  /// Adds an operation, which no other than loops and branches may surround, and all that it needs.
  void add(Operation *op);
  /// Adds what a value is computed from.
  void add(Value value);
  /// Adds all operations that do more than compute what they return.
  void addEffects();
  /// Whether something in the slice is computed from the value.
  bool needs(Value value) const { return needed.contains(value); }
  ArrayRef<Operation *> getOperations() const { return operations.getArrayRef(); }

  /// Asked for each operation that is to be copied: whether it has written something in its place.
  using Instead = function_ref<bool(OpBuilder &, Operation &, IRMapping &)>;

  /// `mapping` gets to know the copies.
  void cloneTo(OpBuilder &b, IRMapping &mapping, Instead instead = nullptr) const;
  /// Copies one operation, if it is in the slice.
  void clone(OpBuilder &b, Operation &op, IRMapping &mapping, Instead instead = nullptr) const;

private:
  bool isOfPart(Operation *op) const;
  void addEffectsOf(Operation &op);
  void addOne(Operation *op);
  void closeUp();
  void need(Value value);
  void needCarried(scf::ForOp loop, unsigned number);

  void cloneLoop(OpBuilder &b, scf::ForOp loop, IRMapping &mapping, Instead instead) const;
  void cloneBranch(OpBuilder &b, scf::IfOp branch, IRMapping &mapping, Instead instead) const;
  /// The block's operations, and a yield of those values whose numbers are in `kept`.
  void cloneBody(OpBuilder &b, Block &body, ArrayRef<unsigned> kept, IRMapping &mapping,
                 Instead instead) const;

  Operation *first, *last;
  llvm::SetVector<Operation *> operations;
  DenseSet<Value> needed;
  SmallVector<Value> open; ///< needed, but what they are computed from has not been looked at
};

} // namespace mlir::tile

#endif

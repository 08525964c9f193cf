//===- Slice.h - Copies of a part of a program ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A slice of some operations of a block contains the requested operations, their inputs, transitively, and
// the loops and branches around them. These keep only the carried values and results that the slice needs. If
// a carried value is needed, so are its initial value and its yielded value. A value that all iterations pass
// on unchanged is not carried at all.
//
// Loops are scf.for and branches scf.if: any other operation is in a slice with all of its regions, or not at
// all.
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
  /// Makes an empty slice of the operations from `first` to `last`, which are in one block.
  Slice(Operation *first, Operation *last) : first(first), last(last) {}

  /// Adds an operation and all its inputs. Only loops and branches may enclose it.
  void add(Operation *op);
  /// Adds the operations that compute a value.
  void add(Value value);
  /// Adds all operations with effects.
  void addEffects();
  /// Whether something in the slice is computed from the value.
  bool needs(Value value) const { return needed.contains(value); }
  ArrayRef<Operation *> getOperations() const { return operations.getArrayRef(); }

  /// Called for each operation to copy; returns whether it has written a replacement.
  using Instead = function_ref<bool(OpBuilder &, Operation &, IRMapping &)>;

  /// Copies the slice; `mapping` receives the copies.
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
  /// Copies the block's operations, and a yield of the values with numbers in `kept`.
  void cloneBody(OpBuilder &b, Block &body, ArrayRef<unsigned> kept, IRMapping &mapping,
                 Instead instead) const;

  Operation *first, *last;
  llvm::SetVector<Operation *> operations;
  DenseSet<Value> needed;
  SmallVector<Value> open; ///< needed values whose operations are not added yet
};

} // namespace mlir::tile

#endif

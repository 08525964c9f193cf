//===- RowCopy.h - What append, move and gather have in common --*- C++ -*-===//
//
// Rows of keys and values are copied from places to places: slots of a cache that
// a list names, or the rows of two tensors in their order.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ROWCOPY_H
#define ATTN_DIALECT_ATTN_IR_ROWCOPY_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

struct RowCopy {
  Operation *op;
  Value cache;
  Value from, to; ///< lists of slots; null where the rows of `k` and `v` are read, or written, in order
  Value k, v;     ///< append: what is written; gather: what is read; move: null

  KVType type() const { return cast<KVType>(cache.getType()); }
  /// append, move or gather.
  StringRef name() const { return op->getName().stripDialect(); }
};

/// What the operation copies; empty where it is no operation on a cache.
std::optional<RowCopy> rowCopyOf(Operation *op);
/// That of the first such operation of a function. `readSignature` sees to it that there is one only.
std::optional<RowCopy> findRowCopy(func::FuncOp func);

} // namespace mlir::attn

#endif

//===- RowCopy.h - What operations on a cache have in common ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of keys and values are copied from places to places: slots of a cache that
// a list names, or the rows of two tensors in their order. Where the two store
// numbers differently, they are converted on the way.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ROWCOPY_H
#define ATTN_DIALECT_ATTN_IR_ROWCOPY_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

struct RowCopy {
  Operation *op;
  Value cache;          ///< whose slots are read or, where none are, written
  Value into = {};      ///< requantize: the cache whose slots are written
  Value from, to;       ///< lists of slots; null where the rows of `k` and `v` are read, or written, in order
  Value k = {}, v = {}; ///< append: what is written; gather: what is read
  Value status = {};    ///< where numbers that have no code are counted, if they are

  KVType type() const { return cast<KVType>(cache.getType()); }
  /// The cache whose slots `to` lists.
  Value written() const { return into ? into : cache; }
  /// append, move, gather or requantize.
  StringRef name() const { return op->getName().stripDialect(); }
};

/// What the operation copies; empty where it is no operation on a cache.
std::optional<RowCopy> rowCopyOf(Operation *op);
/// That of the first such operation of a function. `readSignature` sees to it that there is one only.
std::optional<RowCopy> findRowCopy(func::FuncOp func);

} // namespace mlir::attn

#endif

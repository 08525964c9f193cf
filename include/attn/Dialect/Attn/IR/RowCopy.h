//===- RowCopy.h - Common parts of operations on a cache --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of keys and values are copied from one list to another. A list is the slots of a cache that a tensor
// names, or the rows of two tensors in their order. If the formats of the two differ, rows are converted
// during the copy.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_ROWCOPY_H
#define ATTN_DIALECT_ATTN_IR_ROWCOPY_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

struct RowCopy {
  Operation *op;
  Value cache;          ///< whose slots are read or, if none are, written
  Value into = {};      ///< requantize: the cache whose slots are written
  Value from, to;       ///< lists of slots; null if the rows of `k` and `v` are read, or written, in order
  Value k = {}, v = {}; ///< append: the new rows; gather: the results
  Value status = {};    ///< counts numbers that cannot be quantized; may be null

  KVType type() const { return cast<KVType>(cache.getType()); }
  /// The cache whose slots `to` lists.
  Value written() const { return into ? into : cache; }
  /// Returns append, move, gather or requantize.
  StringRef name() const { return op->getName().stripDialect(); }
};

/// Returns the copy of the operation; empty if it is no operation on a cache.
std::optional<RowCopy> rowCopyOf(Operation *op);
/// Returns the copy of the first such operation of a function. `readSignature` checks that there is no other.
std::optional<RowCopy> findRowCopy(func::FuncOp func);

} // namespace mlir::attn

#endif

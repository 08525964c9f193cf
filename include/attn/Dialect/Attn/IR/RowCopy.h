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

#include <array>

namespace mlir::attn {

/// The preparation of keys and queries on their way into a cache. Values are null where a clause is absent.
struct Prologue {
  Value q = {}, rotated = {};        ///< queries, and where they are written
  Value kNorm = {}, qNorm = {};      ///< weights
  Value cos = {}, sin = {};          ///< tables
  Value positions = {};              ///< of rows
  std::optional<float> epsilon = {}; ///< of norms
  int64_t first = 0;                 ///< the first feature of keys that turns
  bool interleaved = false;          ///< features 2 * i and 2 * i + 1 are a pair
  bool strided = false;              ///< a launch gives strides, although nothing changes keys

  /// Whether keys are normalized or rotated.
  bool changesKeys() const { return kNorm || cos; }
  /// Whether rows are only copied or quantized, and lie densely.
  bool isEmpty() const { return !changesKeys() && !strided; }
  /// Its values, for changes.
  std::array<Value *, 7> values() { return {&q, &rotated, &kNorm, &qNorm, &cos, &sin, &positions}; }
};

struct RowCopy {
  Operation *op;
  Value cache;            ///< whose slots are read or, if none are, written
  Value into = {};        ///< requantize: the cache whose slots are written
  Value from, to;         ///< lists of slots; null if the rows of `k` and `v` are read, or written, in order
  Value k = {}, v = {};   ///< append: the new rows; gather: the results
  Value status = {};      ///< counts numbers that cannot be quantized; may be null
  Prologue prologue = {}; ///< of an append

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

//===- Parts.h - The rows and tokens that an operation names ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows are *packed*: row p of KV head h is query row p / G, query head h*G + p
// % G, so that the heads of a group share every key they read. With head
// classes, a task names an ordinal, and `ordinal_heads` its KV head. In the
// store of one class, the head of an ordinal is its index among the ordinals of
// the class.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_PARTS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_PARTS_H

#include "PlanAccess.h"

namespace mlir::attn {

/// The value that a staged value is a part of; a value that is not staged is returned as it is.
Value unstaged(Value part);
/// The copy of that name of a staged value; null if it has none.
Value copyOf(Value part, Copy name);

/// The rows of a task, as attn.rows names them.
class RowsPart {
public:
  /// `rows`: an attn.rows, or an attn.staged of it.
  RowsPart(KernelBuilder &b, FormAttr form, Value rows);

  Value begin() { return op.getBegin(); }
  Value count() { return op.getCount(); }
  Value end() { return b.add(begin(), count()); }
  Value head() { return op.getHead(); }
  /// `heads`: the query heads of packed rows, those of a KV head or a part of them. `headsNumber`: the index
  /// of these heads among all such parts.
  int64_t heads() { return op.getPartHeads().value_or(form.getGroup()); }
  Value headsNumber();
  /// The first rows of this warp and of its warpgroup, counted from the task's first row.
  Value first() { return op.getFirst(); }
  Value group() { return op.getGroup(); }
  /// The number of this warp's lines that are rows, or more than it has lines.
  Value left() { return b.sub(count(), first()); }

  /// The query row and query head of a packed row.
  std::pair<Value, Value> unpack(Value packed);
  /// The packed row of a line of this warp; lines past the task's last row repeat it.
  Value packedRow(Value line) { return b.min(b.add(b.add(begin(), first()), line), b.sub(end(), b.i32(1))); }
  /// The index of a packed row in a dense tensor of query rows and heads.
  Value slotOf(Value packed, Type type);
  /// The index of a line of this warp in such a tensor.
  Value slotOfLine(Value line) { return slotOf(b.add(begin(), b.add(first(), line)), b.getI64Type()); }
  /// The index of the LSE and the delta of a packed row, for kernels with stationary tokens. The heads that
  /// fill a tile's lines evenly lie together. The numbers of a tile of rows are then contiguous, and copies
  /// of them touch few cache lines.
  Value numberSlotOf(Value packed, Type type);
  /// The element of the output at which a row of the task begins.
  Value outputIndex(Value row, Type element) { return lineOf("o", b.add(begin(), row), element); }
  /// The element at which a packed row begins in a tensor of rows and heads, which may have strides.
  Value lineOf(StringRef tensor, Value packed, Type element);
  Value copy(Copy name) { return copyOf(value, name); }

  RowsOp op;

private:
  KernelBuilder &b;
  FormAttr form;
  Value value;
};

/// LSEs of rows, one per line of this warp; lines past the last row get +inf.
Value lseOfRows(KernelBuilder &b, RowsPart &rows, Value lse);

/// The tokens of a tile, as attn.tokens names them; null if the value is not an attn.tokens.
TokensOp tokensOf(Value part);
/// The index of the rows' head among the heads of the tokens' store.
Value placeOf(KernelBuilder &b, RowsPart &rows, TokensOp tokens);
/// The name of a tensor of a region.
std::string tensorOf(Value kv, StringRef part);
/// Whether a segment is a list of single tokens (see runtime/src/plan/Lists.cpp).
inline Value isList(KernelBuilder &b, TokensOp tokens) { return b.less(tokens.getInstance(), b.i32(0)); }

} // namespace mlir::attn

#endif

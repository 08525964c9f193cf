//===- Parts.h - The rows and tokens that an operation names ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows are *packed*: row p of KV head h is query row p / G, query head
// h*G + p % G, so that the heads of a group share every key they read. Where
// heads have classes, a task names an ordinal, and `ordinal_heads` its KV head. In the
// store of one class an ordinal's head is the one after the class's ordinals before it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_PARTS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_PARTS_H

#include "PlanAccess.h"

namespace mlir::attn {

/// What a staged value, or one that is staged already, is a part of.
Value unstaged(Value part);
/// A staged value's copy of a name; null where it has none.
Value copyOf(Value part, Copy name);

/// The rows of a task, as attn.rows says.
class RowsPart {
public:
  /// `rows`: attn.rows, or what is staged of it.
  RowsPart(KernelBuilder &b, FormAttr form, Value rows);

  Value begin() { return op.getBegin(); }
  Value count() { return op.getCount(); }
  Value end() { return b.add(begin(), count()); }
  Value head() { return op.getHead(); }
  /// Query heads of packed rows, a KV head's or a part of them, and the number of these heads among all such.
  int64_t heads() { return op.getPartHeads().value_or(form.getGroup()); }
  Value headsNumber();
  /// This warp's first row, and its warpgroup's, counted from the task's.
  Value first() { return op.getFirst(); }
  Value group() { return op.getGroup(); }
  /// How many of this warp's lines are rows, or more than it has lines.
  Value left() { return b.sub(count(), first()); }

  /// Query row and query head of a packed row.
  std::pair<Value, Value> unpack(Value packed);
  /// Packed row of a line of this warp; lines past the task's last repeat it.
  Value packedRow(Value line) { return b.min(b.add(b.add(begin(), first()), line), b.sub(end(), b.i32(1))); }
  /// Where a packed row lies in a tensor of query rows and heads that lies densely.
  Value slotOf(Value packed, Type type);
  /// The same of a line of this warp.
  Value slotOfLine(Value line) { return slotOf(b.add(begin(), b.add(first(), line)), b.getI64Type()); }
  /// Says where the LSE and the delta of a packed row lie for kernels that hold tokens. The heads that fill a
  /// tile's lines evenly lie together: numbers of a tile of rows lie behind one another, and copies of them
  /// ask for few lines.
  Value numberSlotOf(Value packed, Type type);
  /// Element of the output where a row of the task begins.
  Value outputIndex(Value row);
  Value copy(Copy name) { return copyOf(value, name); }

  RowsOp op;

private:
  KernelBuilder &b;
  FormAttr form;
  Value value;
};

/// LSEs of rows, per line of this warp, and of lines behind the last row: +inf.
Value lseOfRows(KernelBuilder &b, RowsPart &rows, Value lse);

/// The tokens of a tile, as attn.tokens says; null where that is not what a value is.
TokensOp tokensOf(Value part);
/// The rows' head among those of the tokens' store.
Value placeOf(KernelBuilder &b, RowsPart &rows, TokensOp tokens);
/// The name of a tensor of a region.
std::string tensorOf(Value kv, StringRef part);
/// Whether a segment is a list of single tokens (see runtime/src/plan/Lists.cpp).
inline Value isList(KernelBuilder &b, TokensOp tokens) { return b.less(tokens.getInstance(), b.i32(0)); }

} // namespace mlir::attn

#endif

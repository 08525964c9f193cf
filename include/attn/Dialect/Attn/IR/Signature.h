//===- Signature.h - The tensors of a function ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which argument of a function plays which part, and under which name files,
// Python and the manifest know it. Part follows from use and type, names come
// from the attributes `attn.name` and `attn.dims`.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_SIGNATURE_H
#define ATTN_DIALECT_ATTN_IR_SIGNATURE_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

enum class Role {
  Query,   ///< `q`
  KV,      ///< a KV operand; its tensors are called `<name>.k_pages`, `<name>.lengths`, ...
  Sinks,   ///< `sink_logits`
  Tensor,  ///< read by a score region
  Classes, ///< `classes`, the class of each KV head
  Rows,    ///< `k` or `v`, what an append writes
  Slots,   ///< `slots`, or `from` and `to`
  Status,  ///< `status`, where an operation on a cache counts
  Pages,   ///< of an operation on a table of pages: `table`, `counts`, `tokens`, `free`, `span`, `keep`, ...
};

/// The manifest's word for a role: query, kv, sink, tensor, classes, rows, slots, status, pages.
StringRef stringifyRole(Role role);

/// Files and kernels call the results of a function's second attention, over the first region alone, by these
/// names.
inline constexpr StringLiteral firstOutput = "first_o", firstLse = "first_lse";

struct Argument {
  Role role;
  unsigned index;
  Type type;
  std::string name;
  /// Names of the dynamic dimensions: rows of a query; instances and tokens of a KV operand; those a tensor
  /// has. Of a cache function: layers and pages (packed: tokens) of the cache, layers and rows of rows.
  SmallVector<std::string> dims;
};

struct Signature {
  /// In the order of the function's arguments.
  SmallVector<Argument> arguments;
  bool returnsLse = false, returnsFirst = false;

  const Argument *find(StringRef name) const;
  const Argument &query() const;
};

/// The attentions of a function: `last` over all regions, and, or null, `first` over the first of them alone,
/// whose results the function returns behind the last one's.
struct Attends {
  AttendOp last, first;
};
/// An error where there is none, or more that a kernel could compute in one pass.
FailureOr<Attends> findAttends(func::FuncOp func);

/// Reads the signature at the problem or the online level. Emits an error that names the argument where a
/// name is missing, taken twice, reserved, or not the one that its role requires, and where the function
/// returns anything but the output and, behind it, the LSE (of two attentions, both of each). A function with
/// an operation on a cache holds nothing else, and returns what it gathers; one with an operation on a table
/// of pages returns nothing.
FailureOr<Signature> readSignature(func::FuncOp func);

} // namespace mlir::attn

#endif

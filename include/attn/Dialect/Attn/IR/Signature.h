//===- Signature.h - The tensors of a function ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The role of each argument of a function, and its name in files, Python and the manifest. The role follows
// from use and type; names come from the attributes `attn.name` and `attn.dims`.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_ATTN_IR_SIGNATURE_H
#define ATTN_DIALECT_ATTN_IR_SIGNATURE_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

enum class Role {
  Query,       ///< `q`
  KV,          ///< a KV operand; its tensors are called `<name>.k_pages`, `<name>.lengths`, ...
  Sinks,       ///< `sink_logits`
  Tensor,      ///< read by a score region
  Classes,     ///< `classes`, the class of each KV head
  Rows,        ///< `k` or `v`, the new rows of an append
  Slots,       ///< `slots`, or `from` and `to`
  Status,      ///< `status`, to which an operation on a cache adds counts
  Pages,       ///< of an operation on page tables: `table`, `counts`, `tokens`, `free`, `span`, `keep`, ...
  Gate,        ///< `gate`
  OutputScale, ///< `output_scale`
};

/// Returns the manifest's word for a role: query, kv, sink, tensor, classes, rows, slots, status, pages,
/// gate, output_scale.
StringRef stringifyRole(Role role);

/// The name in files and kernels of the scales of an output, one for each row and head.
inline constexpr StringLiteral outputScales = "output_scales";
/// Names in files and kernels of the results of a function's second attention, over the first region alone.
inline constexpr StringLiteral firstOutput = "first_o", firstLse = "first_lse";

struct Argument {
  Role role;
  unsigned index;
  Type type;
  std::string name;
  /// Names of the dynamic dimensions: rows of a query; instances and tokens of a KV operand; all of a tensor.
  /// In a function on a cache: layers and pages (packed: tokens) of the cache, layers and rows of rows.
  SmallVector<std::string> dims;
};

struct Signature {
  /// In the order of the function's arguments.
  SmallVector<Argument> arguments;
  bool returnsLse = false, returnsFirst = false;

  const Argument *find(StringRef name) const;
  const Argument &query() const;
};

/// The attentions of a function. `last` covers all regions. `first`, which may be null, covers only the first
/// region; the function returns its results after those of `last`.
struct Attends {
  AttendOp last, first;
};
/// Finds the attentions of a function. Fails if there is none, or if one pass of a kernel cannot compute all.
FailureOr<Attends> findAttends(func::FuncOp func);

/// Reads the signature at the problem or the online level. Emits an error that names the argument if a name
/// is missing, taken twice, reserved, or not the one that its role requires. The function may return only the
/// output, then the LSE (both of each of two attentions) and the scales of the output. A function with an
/// operation on a cache holds nothing else, and returns the gathered rows; a function with an operation on
/// page tables returns nothing.
FailureOr<Signature> readSignature(func::FuncOp func);

} // namespace mlir::attn

#endif

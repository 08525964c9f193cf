//===- Reference.h - The float64 meaning of attn.attend ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an attention *is*, token by token in double precision, from the text of
// the problem and the tensors as stored: the yardstick of every kernel, every
// device and every schedule. It shares no code with the lowering: it reads the
// operation, walks each instance of each region in order, asks for each pair of
// a row and a token whether the row sees it, and adds the token to the row's
// softmax. Only the obvious is fast: 16-bit keys and values are widened once
// per chunk of tokens, and score regions run over a chunk, not over a number.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_REFERENCE_REFERENCE_H
#define ATTN_REFERENCE_REFERENCE_H

#include "attn_rt/tensor/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

struct ReferenceResult {
  ::attn::rt::Tensor output; ///< f64 [rows, q_heads, value_dim]
  ::attn::rt::Tensor lse;    ///< f64 [rows, q_heads]; there even where the function does not return it
  /// Where the function asks for it (attn.significance), of each KV operand "<name>.significance", f64,
  /// shaped as its keys without their features or, where it is paged, [instances, heads, pages of an
  /// instance, tokens of a page]: what each token was worth to the rows that count, zero where none saw it.
  ::attn::rt::TensorMap significance;
};

/// Evaluates the one attention of `func`, at the problem level, on tensors named as in design §2. Tensors
/// that may be left out (q_start, q_pos, <arg>.rows, <arg>.pos0, <arg>.lengths of a packed store) have their
/// defaults. Queries, sinks, tables, and keys and values that are no codes may also be given in f64: then
/// nothing is rounded, which derivatives by differences need. A tensor that is missing, mistyped or points
/// outside another is an error that names it. The result's bits do not depend on `threads`.
::attn::rt::Result<ReferenceResult> evaluateReference(func::FuncOp func, const ::attn::rt::TensorMap &tensors,
                                                      unsigned threads = 2);

/// The same of the attention over the first region alone, in a function that has it beside the one over all.
::attn::rt::Result<ReferenceResult> evaluateFirst(func::FuncOp func, const ::attn::rt::TensorMap &tensors,
                                                  unsigned threads = 2);

/// The derivatives of sum(o * do) + sum(lse * dlse), in f64, for `do` and, where it is there, `dlse` among
/// the tensors: "dq"; of each KV operand "<name>.dk" and "<name>.dv", shaped as its keys and values, zero
/// where no row looks; "dsink_logits"; and "d<table>" of each tensor that the score region reads. o and lse
/// are this reference's own. A row that sees nothing has and adds none. Paged stores and codes are refused.
/// The result's bits do not depend on `threads`.
::attn::rt::Result<::attn::rt::TensorMap>
evaluateGradients(func::FuncOp func, const ::attn::rt::TensorMap &tensors, unsigned threads = 2);

/// What an operation on a cache makes of these tensors, row by row in the order of its lists: of one that
/// writes a cache its keys and values, whole, with their metadata; of a gather its rows, every byte 0xff
/// where one is skipped. Bytes are copied, and codes made by arithmetic that is defined to the bit, so a
/// kernel's results must be these bytes.
::attn::rt::Result<::attn::rt::TensorMap> evaluateRowCopy(func::FuncOp func,
                                                          const ::attn::rt::TensorMap &tensors);

} // namespace mlir::attn

#endif

//===- Reference.h - The float64 meaning of attn.attend ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The meaning of an attention, token by token in double precision, from the text of the problem and the
// tensors as stored: the yardstick of every kernel, every device and every schedule. It shares no code with
// the lowering. It reads the operation and walks each instance of each region in order. For each pair of a
// row and a visible token it adds the token to the row's softmax. Only two things are fast: 16-bit keys and
// values are widened once per chunk of tokens, and score regions run over a chunk instead of a number.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_REFERENCE_REFERENCE_H
#define ATTN_REFERENCE_REFERENCE_H

#include "attn_rt/tensor/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace mlir::attn {

struct ReferenceResult {
  ::attn::rt::Tensor output; ///< f64 [rows, q_heads, value_dim]
  ::attn::rt::Tensor lse;    ///< f64 [rows, q_heads]; set even if the function does not return it
  /// f64 [rows, q_heads] if the function returns the scales of its output, else none.
  std::optional<::attn::rt::Tensor> outputScales;
  /// If the function asks for it (attn.significance), "<name>.significance" of each KV operand, f64: the sum
  /// of each token's weights over the rows that count, zero if no row saw it. It has the shape of the keys
  /// without their features or, for a paged store, [instances, heads, pages of an instance, tokens of a
  /// page].
  ::attn::rt::TensorMap significance;
};

/// Evaluates the one attention of `func`, at the problem level, on tensors with the names of the manifest.
/// Optional tensors (q_start, q_pos, <arg>.rows, <arg>.pos0, <arg>.lengths of a packed store) have defaults.
/// Queries, sinks, tables, and keys and values that are not quantized may also be f64: then nothing is
/// rounded, which numerical derivatives need. A tensor that is missing, mistyped or points outside another is
/// an error that names it. The result's bits do not depend on `threads`.
::attn::rt::Result<ReferenceResult> evaluateReference(func::FuncOp func, const ::attn::rt::TensorMap &tensors,
                                                      unsigned threads = 2);

/// Evaluates the attention over the first region alone, in a function that also has one over all regions.
::attn::rt::Result<ReferenceResult> evaluateFirst(func::FuncOp func, const ::attn::rt::TensorMap &tensors,
                                                  unsigned threads = 2);

/// Computes the derivatives of sum(o * do) + sum(lse * dlse), in f64, for `do` and, if present, `dlse` among
/// the tensors. Results: "dq"; "<name>.dk" and "<name>.dv" of each KV operand, shaped as its keys and values,
/// zero where no row looks; "dsink_logits"; and "d<table>" of each tensor that the score region reads. o and
/// lse are this reference's own. A row that sees nothing gets and adds zero. Paged and quantized stores are
/// refused. The result's bits do not depend on `threads`.
::attn::rt::Result<::attn::rt::TensorMap>
evaluateGradients(func::FuncOp func, const ::attn::rt::TensorMap &tensors, unsigned threads = 2);

/// Evaluates an operation on a cache, row by row in the order of its lists. If it writes a cache, the results
/// are the whole keys and values with their metadata; for a gather they are its rows, with every byte of a
/// skipped row 0xff. Bytes are copied, and quantization is defined to the bit, so a kernel's results must
/// equal these bytes.
::attn::rt::Result<::attn::rt::TensorMap> evaluateRowCopy(func::FuncOp func,
                                                          const ::attn::rt::TensorMap &tensors);

} // namespace mlir::attn

#endif

//===- Verify.h - Common parts of verifiers ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages read "expected X, got Y", and end with the nearest legal value if there is one.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_LIB_DIALECT_ATTN_IR_VERIFY_H
#define ATTN_LIB_DIALECT_ATTN_IR_VERIFY_H

#include "attn/Dialect/Attn/IR/Attn.h"

namespace mlir::attn::detail {

using EmitError = function_ref<InFlightDiagnostic()>;

/// More heads than this are rejected as a mistake; products of heads stay far inside i32.
constexpr int64_t kMaxHeads = 4096;

LogicalResult verifyHeads(EmitError emitError, StringRef what, int64_t heads);
/// The features up to which every multiple of 8 is legal.
inline constexpr int64_t mostSimpleDim = 256;
/// Verifies the features of a query or a key: a multiple of 8 from 8 to 256, or of 32 up to 576.
LogicalResult verifyKeyDim(EmitError emitError, StringRef what, int64_t dim);
/// Verifies the features of a value: a multiple of 8 from 8 to 256, or of 128 up to 512. Warps that share
/// rows have slices of whole panels.
LogicalResult verifyValueDim(EmitError emitError, StringRef what, int64_t dim);
/// The largest legal number of features of a value that is no larger than `most`.
int64_t nearestValueDim(int64_t most);
LogicalResult verifyElement(EmitError emitError, StringRef what, Type type);

/// Verifies keys or values: an element type with a format, and a dim that copies can handle.
LogicalResult verifyStored(EmitError emitError, StringRef what, Type type, int64_t dim);
/// Verifies [rows, heads, dim] with dynamic rows in f16 or bf16.
LogicalResult verifyQuery(Operation *op, StringRef what, Type type);
/// Verifies that the query can attend to the region: ratio of heads, dimension and element types.
LogicalResult verifyRegion(Operation *op, RankedTensorType query, KVType region, int64_t heads);
/// Verifies that a store of one class's heads names a declared class, and that other stores name none.
LogicalResult verifyRegionClass(Operation *op, KVType region, StringAttr name, HeadClassesAttr classes);
/// Returns the KV heads of an attention with this region: the region's own or, if it holds those of a class,
/// the number of elements of the tensor that assigns heads. 0 if neither is known.
int64_t kvHeadsOf(KVType region, Value classes);
LogicalResult verifyOutput(Operation *op, Type output, int64_t heads, int64_t valueDim);
LogicalResult verifyLse(Operation *op, Type lse, int64_t heads);
LogicalResult verifySinks(Operation *op, Type sinks, int64_t heads);
/// Verifies a gate: a number for each element of the output, or for each of its rows and heads. Its element
/// type is `element` or, if none is given, the output's; beside an output of f8E4M3FN it is f16 or bf16.
LogicalResult verifyGate(Operation *op, Type gate, Type output, Type element = {});
/// Verifies that an output of f8E4M3FN, and no other, has a scale, or scales if `returnsScales`. `scale` may
/// be null.
LogicalResult verifyOutputScale(Operation *op, Value scale, Type output, bool returnsScales);
/// Verifies the scales of an output: one for each row and head, of values that one warp holds.
LogicalResult verifyOutputScales(Operation *op, Type scales, int64_t heads, int64_t valueDim);
/// Verifies that classes and the tensor that assigns heads to them are both present, or both absent.
LogicalResult verifyClasses(Operation *op, Value tensor, HeadClassesAttr classes, int64_t heads);
LogicalResult verifyScale(Operation *op, APFloat scale);
LogicalResult verifyScore(Operation *op, Region &score);
/// Verifies the `name` region of a policy: the scalars that it takes, and its terminator.
LogicalResult verifyPolicy(Operation *op, Region &region, StringRef name, TypeRange expected,
                           StringRef terminator);

} // namespace mlir::attn::detail

#endif

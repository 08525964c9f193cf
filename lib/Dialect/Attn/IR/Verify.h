//===- Verify.h - What the verifiers share ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages read "expected X, got Y", and end with the nearest legal value
// where there is one.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_LIB_DIALECT_ATTN_IR_VERIFY_H
#define ATTN_LIB_DIALECT_ATTN_IR_VERIFY_H

#include "attn/Dialect/Attn/IR/Attn.h"

namespace mlir::attn::detail {

using EmitError = function_ref<InFlightDiagnostic()>;

/// More heads than this are taken for a mistake; products of them stay far inside i32.
constexpr int64_t kMaxHeads = 4096;

LogicalResult verifyHeads(EmitError emitError, StringRef what, int64_t heads);
/// A number of features: a multiple of 8 from 8 to 256.
LogicalResult verifyDim(EmitError emitError, StringRef what, int64_t dim);
LogicalResult verifyElement(EmitError emitError, StringRef what, Type type);

/// Keys or values in an element type that stands for a format, of a dim that copies can take.
LogicalResult verifyStored(EmitError emitError, StringRef what, Type type, int64_t dim);
/// [rows, heads, dim] with dynamic rows in f16 or bf16.
LogicalResult verifyQuery(Operation *op, StringRef what, Type type);
/// That the query can attend to the region: ratio of heads, dimension and element types.
LogicalResult verifyRegion(Operation *op, RankedTensorType query, KVType region, int64_t heads);
/// That the store of one class's heads belongs to a class that is declared, and no other store does.
LogicalResult verifyRegionClass(Operation *op, KVType region, StringAttr name, HeadClassesAttr classes);
/// KV heads of an attention with this region: its own or, where it holds those of a class, one for each
/// element of the tensor that assigns them. 0 where neither tells.
int64_t kvHeadsOf(KVType region, Value classes);
LogicalResult verifyOutput(Operation *op, Type output, int64_t heads, int64_t valueDim);
LogicalResult verifyLse(Operation *op, Type lse, int64_t heads);
LogicalResult verifySinks(Operation *op, Type sinks, int64_t heads);
/// That classes and the tensor that assigns heads to them are there together, or neither.
LogicalResult verifyClasses(Operation *op, Value tensor, HeadClassesAttr classes, int64_t heads);
LogicalResult verifyScale(Operation *op, APFloat scale);
LogicalResult verifyScore(Operation *op, Region &score);
/// The `name` region of a policy: scalars that it takes, and the operation that ends it.
LogicalResult verifyPolicy(Operation *op, Region &region, StringRef name, TypeRange expected,
                           StringRef terminator);

} // namespace mlir::attn::detail

#endif

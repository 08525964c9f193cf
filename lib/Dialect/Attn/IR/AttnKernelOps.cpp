//===- AttnKernelOps.cpp - Online operations in a kernel ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace mlir::attn;

LogicalResult OneOfOp::verify() {
  SmallVector<UpdateOp> updates;
  for (Value state : getStates())
    updates.push_back(state.getDefiningOp<UpdateOp>());
  if (updates.empty() || llvm::is_contained(updates, UpdateOp()))
    return emitOpError("expected results of attn.update");
  for (UpdateOp update : updates)
    if (update.getState() != updates.front().getState() || update.getQuery() != updates.front().getQuery())
      return emitOpError("expected updates of one state by the same rows");
  return success();
}

LogicalResult FormAttr::verify(function_ref<InFlightDiagnostic()> emitError, Mmas mmas, Stationary,
                               int64_t rows, int64_t keys, int64_t heads, int64_t kvHeads, int64_t keyDim,
                               int64_t valueDim, int64_t keyTile, int64_t valueTile, Type element, FormTraits,
                               Type codes, FloatAttr unit) {
  if (mmas == Mmas::Started)
    return emitError() << "expected mmas to be mma or wgmma, got started";
  if (rows < 1 || keys < 1)
    return emitError() << "expected a warp to hold rows and tokens, got " << rows << " and " << keys;
  if (kvHeads < 1 || heads < 1 || heads % kvHeads != 0)
    return emitError() << "expected heads to be a multiple of kv_heads, got " << heads << " and " << kvHeads;
  // Warps that share rows have slices of the values.
  bool isSlice = valueDim > mlir::attn::detail::mostSimpleDim && valueTile > 0 && valueDim % valueTile == 0;
  if (keyDim < 1 || valueDim < 1 || keyTile < keyDim || (valueTile < valueDim && !isSlice))
    return emitError() << "expected tiles with features for " << keyDim << " and " << valueDim << ", got "
                       << keyTile << " and " << valueTile;
  if (!element.isF16() && !element.isBF16())
    return emitError() << "expected elements of f16 or bf16, got " << element;
  if (codes && !codes.isInteger())
    return emitError() << "expected codes to be integers, got " << codes;
  if (unit && !unit.getType().isF32())
    return emitError() << "expected a unit of f32, got " << unit;
  return success();
}

void StagedOp::build(OpBuilder &builder, OperationState &state, Value part, ArrayRef<Copy> names,
                     ValueRange copies) {
  SmallVector<Attribute> attributes;
  for (Copy name : names)
    attributes.push_back(CopyAttr::get(builder.getContext(), name));
  build(builder, state, part.getType(), part, copies, builder.getArrayAttr(attributes));
}

LogicalResult StagedOp::verify() {
  if (getNames().size() != getCopies().size())
    return emitOpError("expected a name for each copy, got ")
           << getNames().size() << " for " << getCopies().size();
  return success();
}

SmallVector<Value> StagedOp::all(Copy name) {
  SmallVector<Value> found;
  for (auto [each, copy] : llvm::zip_equal(getNames().getAsRange<CopyAttr>(), getCopies()))
    if (each.getValue() == name)
      found.push_back(copy);
  if (auto again = getPart().getDefiningOp<StagedOp>())
    llvm::append_range(found, again.all(name));
  return found;
}

Value StagedOp::copy(Copy name) {
  SmallVector<Value> found = all(name);
  return found.empty() ? Value() : found.front();
}

LogicalResult WriteOp::verify() {
  if (!getRows() == !getRow())
    return emitOpError("expected either rows of a task or a row of the output");
  if (failed(detail::verifyOutputScale(*this, getOutputScale(), getOutput().getType(), getOutputScales())))
    return failure();
  if (getGate())
    return detail::verifyGate(*this, getGate().getType(), getOutput().getType());
  return success();
}

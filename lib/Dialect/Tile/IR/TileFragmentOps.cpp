//===- TileFragmentOps.cpp - Verifiers of operations on elements ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::tile;

static SmallVector<Type> elementsOf(ValueRange fragments) {
  return llvm::map_to_vector(fragments,
                             [](Value value) { return cast<FragmentType>(value.getType()).getElement(); });
}

/// Verifies that inputs of an elementwise operation have the result's axes, or one of them.
static LogicalResult verifyBroadcast(Operation *op, ValueRange inputs, FragmentType result) {
  auto isPacked = [](FragmentType type) {
    return type.getLayout() == Layout::Lhs || type.getLayout() == Layout::Rhs;
  };
  if (isPacked(result) ||
      llvm::any_of(inputs, [&](Value v) { return isPacked(cast<FragmentType>(v.getType())); }))
    return op->emitOpError(
        "has no scalars in a fragment of layout 'lhs' or 'rhs': elements share a register");
  for (Value input : inputs) {
    auto type = cast<FragmentType>(input.getType());
    for (auto [axis, size] : llvm::zip(type.getAxes(), type.getSizes())) {
      auto it = llvm::find(result.getAxes(), axis);
      if (it == result.getAxes().end())
        return op->emitOpError("input has axis '") << stringifyAxis(axis) << "', which the result lacks";
      if (result.getSizes()[it - result.getAxes().begin()] != size)
        return op->emitOpError("expected the extents along '") << stringifyAxis(axis) << "' to agree";
    }
    bool same = type.getRank() == result.getRank();
    if (same && type.getOrder() != result.getOrder())
      return op->emitOpError("expected features in the result's order, got ") << type << " for " << result;
    if (same && type.getAxes() != result.getAxes())
      return op->emitOpError("expected the axes in the result's order, got ") << type << " for " << result;
    Layout expected = same                                       ? result.getLayout()
                      : type.getAxes()[0] == result.getAxes()[0] ? Layout::Row
                                                                 : Layout::Col;
    if (expected != Layout::Unassigned && !mayHaveLayout(type, expected))
      return op->emitOpError("expected an input of layout '")
             << stringifyLayout(expected) << "', got " << type;
  }
  return success();
}

LogicalResult SplatOp::verify() {
  FragmentType fragment = getFragment().getType();
  bool packed = fragment.getLayout() == Layout::Lhs || fragment.getLayout() == Layout::Rhs;
  if (packed && !mlir::attn::isMultiplied(fragment.getElement()))
    return emitOpError("expected elements of f16 or bf16 in layout 'lhs' or 'rhs', got ") << fragment;
  if (getValue().getType() != fragment.getElement())
    return emitOpError("expected a scalar of ") << fragment.getElement() << ", got " << getValue().getType();
  return success();
}

LogicalResult AnyOp::verify() {
  FragmentType source = getSource().getType();
  if (source.getRank() == 1 && source.getElement().isInteger(1))
    return success();
  return emitOpError("expected one axis of i1, got ") << source;
}

bool AnyLineOp::mayCheck(SharedType tile) {
  constexpr int64_t lanes = 32, bits = 32;
  return tile.getCols() == 1 && tile.getElement().getIntOrFloatBitWidth() == bits &&
         tile.getRows() % lanes == 0 && !tile.getSwizzled() && !tile.getBoxes();
}
LogicalResult AnyLineOp::verify() {
  SharedType tile = getTile().getType();
  if (mayCheck(tile))
    return success();
  return emitOpError("expected a tile of one column of 32 bits, with a multiple of 32 lines, got ") << tile;
}
LogicalResult AnyLineOp::verifyRegions() {
  return verifyBody(*this, getCondition(), getTile().getType().getElement(),
                    IntegerType::get(getContext(), 1));
}

LogicalResult LaneCoordinatesOp::verify() {
  FragmentType offsets = getOffsets().getType();
  if (offsets.getRank() == 1 && offsets.getElement().isInteger(32))
    return success();
  return emitOpError("expected one axis of i32, got ") << offsets;
}

LogicalResult CoordinatesOp::verify() {
  FragmentType fragment = getFragment().getType();
  if (fragment.getRank() == 1 && fragment.getElement().isInteger(32))
    return success();
  return emitOpError("expected one axis of i32, got ") << fragment;
}

LogicalResult MapOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("expected at least one result");
  auto first = cast<FragmentType>(getResults().front().getType());
  for (Value result : getResults())
    if (auto type = cast<FragmentType>(result.getType());
        type.getAxes() != first.getAxes() || type.getSizes() != first.getSizes() ||
        type.getLayout() != first.getLayout() || type.getOrder() != first.getOrder())
      return emitOpError("expected results of one shape and layout, got ") << first << " and " << type;
  return verifyBroadcast(*this, getInputs(), first);
}
LogicalResult MapOp::verifyRegions() {
  return verifyBody(*this, getBody(), elementsOf(getInputs()), elementsOf(getResults()));
}

LogicalResult MaskOp::verify() {
  if (getScores().getType() != getResult().getType() || !getScores().getType().getElement().isF32())
    return emitOpError("expected scores and result of one f32 fragment type, got ")
           << getScores().getType() << " and " << getResult().getType();
  return verifyBroadcast(*this, getInputs(), getResult().getType());
}
LogicalResult MaskOp::verifyRegions() {
  return verifyBody(*this, getVisible(), elementsOf(getInputs()), IntegerType::get(getContext(), 1));
}

LogicalResult ReduceOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (source.getRank() != 2 || !source.getElement().isF32() || !mayHaveLayout(source, Layout::Acc))
    return emitOpError("expected an accumulator of f32 with two axes, got ") << source;
  int64_t kept = result.getAxes()[0] == source.getAxes()[0] ? 0 : 1;
  if (result.getRank() != 1 || result.getAxes()[0] != source.getAxes()[kept] ||
      result.getSizes()[0] != source.getSizes()[kept] || result.getElement() != source.getElement() ||
      !mayHaveLayout(result, kept == 0 ? Layout::Row : Layout::Col))
    return emitOpError("expected the first axis of ")
           << source << " along rows or the second along columns as result, got " << result;
  if (result.getPartial() && getKind() != Combine::Add)
    return emitOpError("only sums can be partial, got '") << stringifyCombine(getKind()) << "'";
  return success();
}

LogicalResult CompleteOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (!source.getPartial() || result.getPartial() || !source.getElement().isF32() ||
      source.getAxes() != result.getAxes() || source.getSizes() != result.getSizes() ||
      source.getElement() != result.getElement() || source.getLayout() != result.getLayout())
    return emitOpError("expected a partial fragment of f32 and the same one complete, got ")
           << source << " and " << result;
  return success();
}

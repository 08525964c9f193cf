//===- TileOps.cpp - Verifiers of the tile dialect ------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::tile;

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"

LogicalResult GatherOp::verify() {
  size_t count = getTargets().size();
  if (count == 0)
    return emitOpError("expected at least one target");
  if (getSources().size() != count || getOrigins().size() != count || getStrides().size() != count)
    return emitOpError("expected as many sources, origins and strides as targets (")
           << count << "), got " << getSources().size() << ", " << getOrigins().size() << " and "
           << getStrides().size();
  int64_t rows = cast<SharedType>(getTargets()[0].getType()).getRows();
  for (auto [source, target] : llvm::zip(getSources(), getTargets())) {
    auto tile = cast<SharedType>(target.getType());
    if (cast<BufferType>(source.getType()).getElement() != tile.getElement())
      return emitOpError("expected the element type of source and target to agree, got ")
             << source.getType() << " and " << tile;
    if (tile.getRows() != rows)
      return emitOpError("expected all targets to have ") << rows << " lines, got " << tile.getRows();
  }
  if (getSlot().getNumArguments() != 1 || !getSlot().getArgument(0).getType().isInteger(32))
    return emitOpError("expected a region with one i32 argument, the line");
  return success();
}

LogicalResult MapOp::verify() {
  if (getBody().getNumArguments() < getInputs().size())
    return emitOpError("expected a region argument for each of the ")
           << getInputs().size() << " inputs, got " << getBody().getNumArguments();
  auto result = cast<FragmentType>(getResult().getType());
  for (Value input : getInputs()) {
    auto type = cast<FragmentType>(input.getType());
    for (auto [axis, size] : llvm::zip(type.getAxes(), type.getSizes())) {
      auto it = llvm::find(result.getAxes(), axis);
      if (it == result.getAxes().end())
        return emitOpError("input has axis '") << stringifyAxis(axis) << "', which the result lacks";
      if (result.getSizes()[it - result.getAxes().begin()] != size)
        return emitOpError("expected the extents along '") << stringifyAxis(axis) << "' to agree";
    }
  }
  return success();
}

LogicalResult DotOp::verify() {
  auto rhs = getRhs().getType();
  auto acc = getAcc().getType();
  Axis lhsRow, contracted;
  int64_t rows, depth;
  if (auto fragment = dyn_cast<FragmentType>(getLhs().getType())) {
    if (fragment.getRank() != 2)
      return emitOpError("expected a left operand with two axes, got ") << fragment;
    lhsRow = fragment.getAxes()[0], contracted = fragment.getAxes()[1];
    rows = fragment.getSizes()[0], depth = fragment.getSizes()[1];
  } else if (auto shared = dyn_cast<SharedType>(getLhs().getType())) {
    if (!getLine())
      return emitOpError("a left operand in shared memory needs the line it starts at");
    lhsRow = shared.getRowAxis(), contracted = shared.getColAxis();
    rows = acc.getSizes()[0], depth = shared.getCols();
  } else {
    return emitOpError("expected a fragment or a shared tile on the left, got ") << getLhs().getType();
  }
  bool overCols = rhs.getColAxis() == contracted, overRows = rhs.getRowAxis() == contracted;
  if (!overCols && !overRows)
    return emitOpError("operands share no axis to contract: '") << stringifyAxis(contracted) << "' is not in " << rhs;
  int64_t rhsDepth = overCols ? rhs.getCols() : rhs.getRows();
  Axis rhsKept = overCols ? rhs.getRowAxis() : rhs.getColAxis();
  int64_t width = overCols ? rhs.getRows() : rhs.getCols();
  if (rhsDepth != depth)
    return emitOpError("expected ") << depth << " along '" << stringifyAxis(contracted) << "', got " << rhsDepth;
  if (acc.getRank() != 2 || acc.getAxes()[0] != lhsRow || acc.getAxes()[1] != rhsKept || acc.getSizes()[0] != rows ||
      acc.getSizes()[1] != width || acc != getResult().getType())
    return emitOpError("expected accumulator and result of [")
           << stringifyAxis(lhsRow) << " " << rows << ", " << stringifyAxis(rhsKept) << " " << width << "], got "
           << acc;
  return success();
}

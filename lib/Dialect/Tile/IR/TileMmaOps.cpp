//===- TileMmaOps.cpp - Verifiers of MMAs and of the merge of warps -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::tile;

namespace {
/// The left operand of an MMA, in registers or in memory.
struct LeftOperand {
  Axis row, contracted;
  int64_t rows, depth;
  Type element;
};

/// The right operand of an MMA, in memory or in registers.
struct RightOperand {
  Axis kept;
  int64_t width, depth;
};
} // namespace

/// Returns the left operand; empty, with an error, if it is illegal.
static std::optional<LeftOperand> leftOperand(MmaOp mma) {
  if (auto fragment = dyn_cast<FragmentType>(mma.getLhs().getType())) {
    if (fragment.getRank() != 2 || !mayHaveLayout(fragment, mma.getLeftLayout())) {
      mma.emitOpError("expected a left operand with two axes, got ") << fragment;
      return std::nullopt;
    }
    if (mma.getLine()) {
      mma.emitOpError("a left operand in registers has no line to start at");
      return std::nullopt;
    }
    return LeftOperand{fragment.getAxes()[0], fragment.getAxes()[1], fragment.getSizes()[0],
                       fragment.getSizes()[1], fragment.getElement()};
  }
  auto tile = cast<SharedType>(mma.getLhs().getType());
  int64_t rows = mma.getAcc().getType().getSizes()[0];
  if (!mma.getLine()) {
    mma.emitOpError("a left operand in shared memory needs the line it starts at");
    return std::nullopt;
  }
  if (rows > tile.getRows()) {
    mma.emitOpError("expected at most the ") << tile.getRows() << " lines of the tile, got " << rows;
    return std::nullopt;
  }
  return LeftOperand{tile.getRowAxis(), tile.getColAxis(), rows, tile.getCols(), tile.getElement()};
}

/// Returns the right operand; empty, with an error, if it cannot be contracted over that axis.
static std::optional<RightOperand> rightOperand(MmaOp mma, Axis contracted) {
  if (auto fragment = dyn_cast<FragmentType>(mma.getRhs().getType())) {
    if (fragment.getRank() == 2 && fragment.getAxes()[1] == contracted &&
        mayHaveLayout(fragment, Layout::Rhs))
      return RightOperand{fragment.getAxes()[0], fragment.getSizes()[0], fragment.getSizes()[1]};
    mma.emitOpError("expected a right operand of two axes, '")
        << stringifyAxis(contracted) << "' the second, got " << fragment;
    return std::nullopt;
  }
  auto tile = cast<SharedType>(mma.getRhs().getType());
  if (tile.getColAxis() == contracted)
    return RightOperand{tile.getRowAxis(), tile.getRows(), tile.getCols()};
  if (tile.getRowAxis() == contracted)
    return RightOperand{tile.getColAxis(), std::min(tile.getCols(), mma.getAcc().getType().getSizes().back()),
                        tile.getRows()};
  mma.emitOpError("operands share no axis to contract: '")
      << stringifyAxis(contracted) << "' is not in " << tile;
  return std::nullopt;
}

/// Verifies that features in runs have the same order in both operands, or in the operand and the result that
/// keeps them.
static LogicalResult verifyOrders(MmaOp mma, Axis contracted) {
  auto orderOf = [](Value value) {
    auto fragment = dyn_cast<FragmentType>(value.getType());
    return fragment ? fragment.getOrder() : FeatureOrder();
  };
  FeatureOrder right = orderOf(mma.getRhs()), none;
  if (mma.transposesQueries() && contracted == Axis::Key) { // the left operand's features are kept
    if (right || mma.getAcc().getType().getOrder() != orderOf(mma.getLhs()))
      return mma.emitOpError("expected features in the order of the left operand, ")
             << mma.getLhs().getType() << ", got " << mma.getAcc().getType();
    return success();
  }
  bool contracts = contracted == Axis::Feature;
  if ((isa<FragmentType>(mma.getLhs().getType()) && orderOf(mma.getLhs()) != (contracts ? right : none)) ||
      mma.getAcc().getType().getOrder() != (contracts ? none : right))
    return mma.emitOpError("expected features in the order of the right operand, ")
           << mma.getRhs().getType() << ", got " << mma.getLhs().getType() << " and "
           << mma.getAcc().getType();
  return success();
}

/// Verifies a right operand of which a part of the columns is read.
static LogicalResult verifyColumn(MmaOp mma, Axis contracted) {
  if (!mma.getColumn())
    return success();
  auto tile = dyn_cast<SharedType>(mma.getRhs().getType());
  int64_t columns = mma.getAcc().getType().getSizes().back();
  int64_t panel = tile ? 1024 / tile.getElement().getIntOrFloatBitWidth() : 1;
  if (tile && tile.getRowAxis() == contracted && !tile.getBoxes() && columns % panel == 0 &&
      columns <= tile.getCols())
    return success();
  return mma.emitOpError("expected a part of the columns of a shared tile in whole panels of ")
         << panel << ", got " << columns << " of " << mma.getRhs().getType();
}

LogicalResult MmaOp::verify() {
  auto acc = getAcc().getType();
  std::optional<LeftOperand> lhs = leftOperand(*this);
  if (!lhs)
    return failure();
  Type rhsElement = isa<FragmentType>(getRhs().getType())
                        ? cast<FragmentType>(getRhs().getType()).getElement()
                        : cast<SharedType>(getRhs().getType()).getElement();
  if (!mlir::attn::isMultiplied(lhs->element) || rhsElement != lhs->element || !acc.getElement().isF32())
    return emitOpError("expected operands of one type, f16 or bf16, and an accumulator of f32, got ")
           << lhs->element << ", " << rhsElement << " and " << acc.getElement();
  std::optional<RightOperand> rhs = rightOperand(*this, lhs->contracted);
  if (!rhs)
    return failure();
  if (failed(verifyColumn(*this, lhs->contracted)))
    return failure();
  if (rhs->depth != lhs->depth)
    return emitOpError("expected ") << lhs->depth << " along '" << stringifyAxis(lhs->contracted) << "', got "
                                    << rhs->depth;
  if (acc.getRank() != 2 || acc.getAxes()[0] != lhs->row || acc.getAxes()[1] != rhs->kept ||
      acc.getSizes()[0] != lhs->rows || acc.getSizes()[1] != rhs->width || acc != getResult().getType() ||
      !mayHaveLayout(acc, Layout::Acc))
    return emitOpError("expected accumulator and result of [")
           << stringifyAxis(lhs->row) << " " << lhs->rows << ", " << stringifyAxis(rhs->kept) << " "
           << rhs->width << "], got " << acc;
  if (failed(verifyOrders(*this, lhs->contracted)))
    return failure();
  if (transposesQueries() &&
      (!isa<FragmentType>(getLhs().getType()) || !isa<FragmentType>(getRhs().getType())))
    return emitOpError("with a result of ") << rhs->width << " columns takes operands in registers";
  if (lhs->rows % 16 != 0 || lhs->depth % 16 != 0 || (rhs->width % 16 != 0 && !transposesQueries()))
    return emitOpError("expected multiples of 16 along all axes, got ")
           << lhs->rows << " x " << rhs->width << ", contracted over " << lhs->depth;
  return success();
}

LogicalResult ReduceWarpsOp::verify() {
  FragmentType type = getSource().getType();
  if (type.getRank() != 1 || type.getSizes()[0] != 16 || !type.getElement().isF32() || type.getPartial() ||
      !mayHaveLayout(type, Layout::Row) || type != getResult().getType())
    return emitOpError("expected complete numbers of f32, one of each of 16 rows, got ")
           << type << " -> " << getResult().getType();
  uint64_t bytes = llvm::SaturatingMultiply(uint64_t(getWarps()), uint64_t(16 * 4));
  if (uint64_t(getScratch().getType().getBytes()) < bytes)
    return emitOpError("expected ") << bytes << " bytes of scratch, got "
                                    << getScratch().getType().getBytes();
  return success();
}

LogicalResult MergeWarpsOp::verify() {
  FragmentType acc = getAcc().getType(), merged = getMergedAcc().getType();
  bool turned =
      acc.getRank() == 2 && acc.getSizes()[1] == ScheduleAttr::fewRows && acc.getSizes()[0] % 16 == 0;
  if (acc.getRank() != 2 || !(turned || (acc.getSizes()[0] == 16 && acc.getSizes()[1] % 8 == 0)) ||
      !acc.getElement().isF32() || !mayHaveLayout(acc, Layout::Acc))
    return emitOpError(
               "expected an accumulator of f32 with 16 rows and a multiple of 8 columns, or 8 columns "
               "and a multiple of 16 rows, got ")
           << acc;
  int64_t rows = acc.getSizes()[turned], columns = acc.getSizes()[!turned];
  if (merged.getAxes()[0] != acc.getAxes()[turned] || merged.getAxes()[1] != acc.getAxes()[!turned] ||
      merged.getSizes()[0] != 16 || merged.getSizes()[1] % 8 != 0 ||
      merged.getElement() != acc.getElement() || merged.getLayout() != acc.getLayout())
    return emitOpError("expected a merged accumulator with the axes of ") << acc << ", got " << merged;
  // Sizes come from a text and have no limit: their products may overflow.
  auto times = [](uint64_t a, uint64_t b) { return llvm::SaturatingMultiply(a, b); };
  if (times(merged.getSizes()[1], getWarps()) < uint64_t(columns))
    return emitOpError("expected ") << getWarps() << " warps to cover " << columns << " columns, got "
                                    << merged.getSizes()[1] << " for each";
  auto isOfRows = [&](Value value, int64_t size, Layout layout) {
    auto type = cast<FragmentType>(value.getType());
    return type.getRank() == 1 && type.getAxes()[0] == merged.getAxes()[0] && type.getSizes()[0] == size &&
           type.getElement().isF32() && !type.getPartial() && mayHaveLayout(type, layout);
  };
  for (Value value : {getMax(), getSum()})
    if (!isOfRows(value, rows, turned ? Layout::Col : Layout::Row))
      return emitOpError("expected max and sum to be complete, one f32 per row, got ") << value.getType();
  for (Value value : {getMergedMax(), getMergedSum()})
    if (!isOfRows(value, 16, Layout::Row))
      return emitOpError("expected max and sum to be complete, one f32 per row, got ") << value.getType();
  uint64_t bytes = times(times(getWarps(), rows), llvm::SaturatingAdd(times(columns, 4), uint64_t(8)));
  if (uint64_t(getScratch().getType().getBytes()) < bytes)
    return emitOpError("expected ") << bytes << " bytes of scratch, got "
                                    << getScratch().getType().getBytes();
  return success();
}

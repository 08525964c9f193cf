//===- StepOps.cpp - An update, step by step ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/StepOps.h"
#include "VisibilitySyntax.h"

using namespace mlir;
using namespace mlir::attn;
using tile::Axis;
using tile::FragmentType;

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnStepOps.cpp.inc"

static bool hasAxes(Type type, std::initializer_list<Axis> axes) {
  auto fragment = cast<FragmentType>(type);
  return fragment.getRank() == int64_t(axes.size()) &&
         llvm::all_of(axes, [&](Axis axis) { return llvm::is_contained(fragment.getAxes(), axis); });
}

bool mlir::attn::isOfPairs(Type type) {
  return cast<FragmentType>(type).getElement().isF32() && hasAxes(type, {Axis::Query, Axis::Key});
}
bool mlir::attn::isOfRows(Type type) { return hasAxes(type, {Axis::Query}); }
bool mlir::attn::isOfTokens(Type type) { return hasAxes(type, {Axis::Key}); }
bool mlir::attn::isOfRowsOrPairs(Type type) { return isOfRows(type) || isOfPairs(type); }
bool mlir::attn::isOfQueries(Type type) { return hasAxes(type, {Axis::Query, Axis::Feature}); }
bool mlir::attn::isOfFeatures(Type type) {
  return cast<FragmentType>(type).getElement().isF32() &&
         (hasAxes(type, {Axis::Query, Axis::Feature}) || hasAxes(type, {Axis::Key, Axis::Feature}));
}

LogicalResult ScoresOp::verify() {
  if (getBegin() && getBegin().getType() != getScores().getType())
    return emitOpError("expected the addend to have the type of the scores, got ") << getBegin().getType();
  if (getTokenScales() && !getTokenScales().getType().getElement().isF32())
    return emitOpError("expected scales of tokens of f32, got ") << getTokenScales().getType();
  const bool rowsFirst = getScores().getType().getAxes().front() == Axis::Query;
  if (getLine() && !isa<tile::SharedType>((rowsFirst ? getRows() : getTokens()).getType()))
    return emitOpError("expected a line of a shared tile, and the left operand is a fragment");
  return success();
}

LogicalResult GroupSumsOp::verify() {
  if (getSums().empty() || (getSums().size() > 1 && !getGroup()))
    return emitOpError("expected a sum, or sums and the number of features of a group, got ")
           << getSums().size() << " sums";
  return success();
}

LogicalResult GroupScoresOp::verify() {
  const size_t zeros = getZeros().size();
  if (getScales().empty() || (zeros && getScales().size() != zeros) || zeros != getSums().size())
    return emitOpError("expected a scale for each group, and a zero and a sum of rows or neither, got ")
           << getScales().size() << ", " << getZeros().size() << " and " << getSums().size();
  if (getScales().size() > 1 && !getGroup())
    return emitOpError("expected the number of features of a group, as there are several");
  return success();
}

LogicalResult DequantizeOp::verify() {
  if (!getZeros().empty() && getScales().size() != getZeros().size())
    return emitOpError("expected a zero for each scale, got ")
           << getScales().size() << " and " << getZeros().size();
  if (!getScales().empty() && !getResult().getType().getElement().isF16())
    return emitOpError("expected f16 for quantized elements with scales, got ") << getResult().getType();
  if (getTiny() && !getScales().empty())
    return emitOpError("expected no scales for tiny elements");
  if (getBlocks().has_value() != !getWords().empty() || (getMost() && !getBlocks()))
    return emitOpError("expected blocks and the words of their scales together");
  return success();
}

LogicalResult ScoreFnOp::verifyRegions() {
  Block &block = getScore().front();
  Builder b(getContext());
  Type i32 = b.getI32Type();
  if (block.getArgumentTypes() != TypeRange({b.getF32Type(), i32, i32, i32}) || !isa<YieldOp>(block.back()))
    return emitOpError(
        "expected a region of a score, the query head and two positions that ends with attn.yield");
  const int64_t reads = llvm::count_if(block, llvm::IsaPred<tile::ReadOp>);
  for (int64_t read : getReads())
    if (read < 0 || read >= reads)
      return emitOpError("expected numbers of the region's ") << reads << " reads, got " << read;
  if (getNumResults() != 1 && getNumResults() != 2 + getReads().size())
    return emitOpError("expected scores alone, or with their derivative and that of each read, got ")
           << getNumResults() << " results";
  return success();
}

LogicalResult LiftOp::verify() {
  auto scores = dyn_cast<FragmentType>(getScoresType());
  if (!scores || !isOfPairs(scores))
    return emitOpError("expected the type of scores, f32 with the axes query and key, got ")
           << getScoresType();
  if (isOfPairs(getResult().getType()) && getResult().getType() != scores)
    return emitOpError("expected a result per row, or of the type of scores, got ") << getResult().getType();
  return success();
}

LogicalResult MaskOp::verify() {
  SmallVector<int64_t> ends;
  getVisibility().collectEnds(ends);
  if (ends.size() != getEnds().size())
    return emitOpError("expected ") << ends.size() << " ends, as many as the visibility has sized terms, got "
                                    << getEnds().size();
  if (!getFront() && !getBehind())
    return success();
  if (getFront() && getBehind())
    return emitOpError("expected front or behind, or neither for both sides");
  if (isConnective(getVisibility().getKind()))
    return emitOpError("expected one interval, as it hides one side, got ") << getVisibility();
  if (!getPartial() || !getBegin())
    return emitOpError("expected a condition and a begin, as it hides one side");
  return success();
}

LogicalResult SoftmaxStepOp::verify() {
  if (getFixed() ? getDecay() || getMoved() || getLift() : !getDecay() || !getMoved())
    return emitOpError("expected a decay and whether it is not 1, unless units are fixed");
  if (getLift() && isOfPairs(getLift().getType()) && getLift().getType() != getScores().getType())
    return emitOpError("expected a lift per row, or of the type of scores, got ") << getLift().getType();
  return success();
}

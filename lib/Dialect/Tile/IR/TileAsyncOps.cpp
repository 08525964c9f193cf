//===- TileAsyncOps.cpp - Verifiers of TMA and asynchronous MMAs ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Support/Elements.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

/// Verifies that a TMA copy of a tile has a map for each width of its panels.
static LogicalResult verifyMaps(Operation *op, ValueRange maps, SharedType tile) {
  int64_t bytes = tile.getLineBytes();
  if (bytes % 32 != 0)
    return op->emitOpError("expected lines of a multiple of 32 bytes, got ") << tile;
  size_t widths = llvm::popcount(static_cast<uint64_t>(bytes % 128 / 32)) + (bytes >= 128 ? 1 : 0);
  if (maps.size() != widths)
    return op->emitOpError("expected a map for each of ")
           << widths << " widths of panels of " << bytes << " bytes, got " << maps.size();
  for (Value map : maps)
    if (cast<TensorMapType>(map.getType()).getRank() < 4)
      return op->emitOpError("expected maps of at least four axes, got ") << map.getType();
  return success();
}

LogicalResult InitBarriersOp::verify() {
  if (getBarriers().size() == getCounts().size() && !getCounts().empty())
    return success();
  return emitOpError("expected a count for each of the barriers (")
         << getBarriers().size() << "), got " << getCounts().size();
}

LogicalResult ProduceOp::verify() {
  SharedType tile = getRing().getType().getTile();
  Block &copies = getCopies().front();
  if (getTile().getType() != tile || copies.getNumArguments() != 1 || copies.getArgument(0).getType() != tile)
    return emitOpError("expected the ring's tile as argument and result, ") << tile;
  return success();
}

LogicalResult ConsumeOp::verify() {
  if (getTile().getType() == getRing().getType().getTile())
    return success();
  return emitOpError("expected the ring's tile, ")
         << getRing().getType().getTile() << ", got " << getTile().getType();
}

LogicalResult AheadOp::verify() {
  Block &body = getBody().front();
  auto yield = body.empty() ? YieldOp() : dyn_cast<YieldOp>(body.back());
  if (body.getArgumentTypes() != getOperation()->getOperandTypes() || !yield ||
      yield.getValues().getTypes() != getOperation()->getResultTypes())
    return emitOpError("expected a region from ") << getAt().getType() << " to " << getValue().getType();
  return success();
}

LogicalResult TmaLoadOp::verify() {
  if (!getBarriers() != !getIndex())
    return emitOpError("expected barriers and an index, or neither");
  SharedType tile = getTarget().getType();
  int64_t lines = getLines();
  if (tile.holdsCodes())
    return emitOpError("supports only the hardware's swizzles, which quantized tiles do not have, ")
           << tile << "; tile.gather can";
  if (lines < 8 || lines % 8 != 0 || tile.getRows() % lines != 0 || tile.getRows() / lines > 32)
    return emitOpError("expected boxes of a multiple of 8 lines, at most 32 of which make the ")
           << tile.getRows() << " lines of the tile, got " << lines;
  if (getNext() && lines != tile.getRows())
    return emitOpError("expected a tile of one box, ")
           << tile.getRows() << " lines, beside a next slot, got " << lines;
  if (failed(verifyMaps(*this, getMaps(), tile)))
    return failure();
  if (getPanel() && (getPadded() || *getPanel() < 0 || tile.getLineBytes() % 128 != 0))
    return emitOpError(
               "expected panels of 128 bytes, from panel 0 or a later one on, in lines that are not padded, "
               "got ")
           << tile << " from " << *getPanel();
  if (tile.getBoxes() && tile.getBoxes() != lines)
    return emitOpError("expected the tile's boxes of ") << tile.getBoxes() << " lines, got " << lines;
  return success();
}

/// Verifies a tile of metadata: pairs of a scale and a zero for some groups of features.
static LogicalResult verifyMeta(WidenTileOp widen, SharedType meta, SharedType of, int64_t mostGroups) {
  const int64_t groups = meta.getCols() / 2;
  if (meta.getElement().isF16() && meta.getCols() % 2 == 0 && llvm::isPowerOf2_64(groups) &&
      groups <= mostGroups && !meta.getSwizzled() && !meta.getBoxes() &&
      meta.getRowAxis() == of.getRowAxis() && meta.getRows() == of.getRows())
    return success();
  return widen.emitOpError("expected a scale and a zero of f16 for ")
         << (mostGroups > 1 ? "1, 2 or 4 groups of features" : "all features") << " of each of "
         << of.getRows() << " lines, got " << meta;
}

LogicalResult WidenTileOp::verify() {
  constexpr int64_t panel = 64, mostFeatures = 128, lines = 8, mostGroups = 4;
  SharedType source = getSource().getType(), target = getTarget().getType();
  Type codes = source.getElement(), element = target.getElement();
  if (target.getRowAxis() != source.getRowAxis() || target.getRows() != source.getRows() ||
      target.getColAxis() != source.getColAxis() || target.getCols() != source.getCols() || target.getBoxes())
    return emitOpError("expected a target with the lines and columns of ") << source << ", got " << target;
  if (element.isF32()) {
    if (getMeta())
      return emitOpError("expected no factors of metadata, got ") << getMeta().getType();
    return verifyMeta(*this, source, source, /*mostGroups=*/1);
  }
  const bool integers =
      codes.isSignlessInteger(8) || codes.isSignlessInteger(4) || codes.isSignlessInteger(2);
  if (!element.isF16() || !(integers || isa<Float8E4M3FNType, Float8E5M2Type>(codes)))
    return emitOpError("expected integers of 8, 4 or 2 bits, e4m3 or e5m2 that become f16, got ")
           << source << " and " << target;
  if (source.getRows() % lines != 0 || source.getCols() % panel != 0 || source.getCols() > mostFeatures ||
      source.getBoxes())
    return emitOpError("expected a multiple of 8 lines, of 64 or 128 features, got ") << source;
  if (getMeta() && !integers)
    return emitOpError("expected scales and zeros of integers alone, got ") << source;
  return getMeta() ? verifyMeta(*this, getMeta().getType(), source, mostGroups) : success();
}

LogicalResult WidenLinesOp::verify() {
  constexpr int64_t panel = 64, lines = 8, valuesOfRegisters = 16 * 32;
  SharedType target = getTarget().getType();
  if (!isa<Float8E4M3FNType>(getCodes()) || !mlir::attn::isMultiplied(target.getElement()))
    return emitOpError("expected e4m3 that becomes f16 or bf16, got ") << getCodes() << " and " << target;
  if (target.getRows() % lines != 0 || target.getCols() % panel != 0 || target.getBoxes())
    return emitOpError("expected a multiple of 8 lines, of a multiple of 64 features, got ") << target;
  const int64_t all = target.getRows() * target.getCols(),
                each = static_cast<int64_t>(getHeld().size()) * valuesOfRegisters;
  if (each == 0 || all % each != 0)
    return emitOpError("expected some warps to hold the ")
           << all << " values of " << target << ", 512 in each register vector, got " << getHeld().size()
           << " of them";
  return success();
}

LogicalResult TmaStoreOp::verify() {
  if (getTile().getType().getBoxes())
    return emitOpError("expected a tile in one box, got ") << getTile().getType();
  if (getAdds() && !getTile().getType().getElement().isF32())
    return emitOpError("adds tiles of f32, got ") << getTile().getType();
  if (getPanel() && getPadded())
    return emitOpError("expected a part of the panels or lines that are padded, got both");
  return verifyMaps(*this, getMaps(), getTile().getType());
}

LogicalResult OverlayOp::verify() {
  SharedType tile = getTile().getType(), result = getResult().getType();
  int64_t bytes = tile.getBoxLines() * tile.getLineBytes();
  if (result.getBytes() > bytes)
    return emitOpError("expected a tile of at most the ")
           << bytes << " bytes of a box of " << tile << ", got " << result << " with " << result.getBytes();
  return success();
}

/// Verifies that numbers of lines go to a tile of one column.
static LogicalResult verifyNumbers(StageOp stage) {
  SharedType tile = stage.getTile().getType();
  FragmentType fragment = stage.getFragment().getType();
  if (tile.getElement().isF32() && tile.getCols() == 1 && fragment.getElement().isF32() &&
      fragment.getAxes()[0] == tile.getRowAxis() && fragment.getSizes()[0] == 16 && tile.getRows() >= 16 &&
      !fragment.getPartial() && mayHaveLayout(fragment, Layout::Row))
    return success();
  return stage.emitOpError("expected a number of f32 for each of 16 rows, and a tile of one column, got ")
         << fragment << " and " << tile;
}

LogicalResult StageOp::verify() {
  SharedType tile = getTile().getType();
  FragmentType fragment = getFragment().getType();
  if (fragment.getRank() == 1)
    return verifyNumbers(*this);
  if (!mlir::attn::isMultiplied(tile.getElement()) && !tile.getElement().isF32())
    return emitOpError("expected a tile of f16, bf16 or f32, got ") << tile;
  if (tile.getElement().isF32() && tile.getCols() % 32 != 0)
    return emitOpError("expected lines of whole panels of f32, got ") << tile;
  if (!fragment.getElement().isF32() || fragment.getRank() != 2 ||
      (fragment.getLayout() != Layout::Unassigned && fragment.getLayout() != Layout::Acc))
    return emitOpError("expected an accumulator of f32, got ") << fragment;
  if (fragment.getSizes()[1] != tile.getCols() || fragment.getSizes()[0] > tile.getRows() ||
      fragment.getSizes()[0] % 16 != 0 || tile.getCols() % 16 != 0 || tile.getBoxes())
    return emitOpError("expected whole lines, a multiple of 16 of them, of a tile in one piece, got ")
           << fragment << " and " << tile;
  return success();
}

/// Verifies uses: started results belong to the tensor cores until they are finished.
static LogicalResult verifyStartedUses(Operation *op, Value started) {
  for (OpOperand &use : started.getUses()) {
    Operation *user = use.getOwner();
    if (isa<WaitMmasOp>(user))
      continue;
    if (auto next = dyn_cast<StartMmaOp>(user))
      if (next.getAcc() == started)
        continue;
    if (auto branch = dyn_cast<scf::IfOp>(user->getParentOp()); branch && isa<scf::YieldOp>(user)) {
      if (use.getOperandNumber() >= branch.getNumResults())
        continue; // the branch's own result is checked
      if (failed(verifyStartedUses(op, branch.getResult(use.getOperandNumber()))))
        return failure();
      continue;
    }
    InFlightDiagnostic diagnostic = op->emitOpError("result is used before tile.wait_mmas");
    diagnostic.attachNote(user->getLoc()) << "used here";
    return diagnostic;
  }
  return success();
}

bool StartMmaOp::transposesLhs() {
  auto shared = dyn_cast<SharedType>(getLhs().getType());
  return shared && shared.getColAxis() == getResult().getType().getAxes()[0];
}

/// Verifies a left operand whose columns are the rows of the result, and a right operand of which a part is
/// read.
static LogicalResult verifyParts(StartMmaOp op, int64_t width) {
  auto lhs = dyn_cast<SharedType>(op.getLhs().getType());
  int64_t columns = op.getResult().getType().getSizes()[1], rows = 16 * ScheduleAttr::groupWarps;
  if (op.transposesLhs() && (op.getLine() || lhs.getCols() != rows || lhs.getBoxes()))
    return op.emitOpError("expected a transposed left operand to have no line and ")
           << rows << " columns in one piece, got " << lhs;
  if (!op.getColumn())
    return success();
  SharedType rhs = op.getRhs().getType();
  int64_t panel = 1024 / rhs.getElement().getIntOrFloatBitWidth();
  if (rhs.getColAxis() != op.getResult().getType().getAxes()[1] || rhs.getBoxes() || width < columns ||
      rhs.getCols() < panel || (panel % columns != 0 && columns % panel != 0) || columns % 8 != 0)
    return op.emitOpError("expected a part of the columns of a tile in whole panels of ")
           << panel << ", got " << columns << " of " << rhs;
  return success();
}

LogicalResult StartMmaOp::verify() {
  SharedType rhs = getRhs().getType();
  FragmentType result = getResult().getType();
  if (result.getRank() != 2)
    return emitOpError("expected a result with two axes, got ") << result;
  Axis contracted;
  int64_t depth;
  if (auto fragment = dyn_cast<FragmentType>(getLhs().getType())) {
    if (fragment.getRank() != 2 || fragment.getAxes()[0] != result.getAxes()[0])
      return emitOpError("expected a left operand whose first axis is the result's, got ") << fragment;
    contracted = fragment.getAxes()[1], depth = fragment.getSizes()[1];
  } else if (auto shared = dyn_cast<SharedType>(getLhs().getType())) {
    if (!getLine() && !transposesLhs())
      return emitOpError("a left operand in shared memory needs the line it starts at");
    contracted = transposesLhs() ? shared.getRowAxis() : shared.getColAxis();
    depth = transposesLhs() ? shared.getRows() : shared.getCols();
  } else {
    return emitOpError("expected a fragment or a shared tile on the left, got ") << getLhs().getType();
  }
  bool overCols = rhs.getColAxis() == contracted;
  if (!overCols && rhs.getRowAxis() != contracted)
    return emitOpError("operands share no axis to contract: '")
           << stringifyAxis(contracted) << "' is not in " << rhs;
  if ((overCols ? rhs.getCols() : rhs.getRows()) != depth)
    return emitOpError("expected ") << depth << " along '" << stringifyAxis(contracted) << "' of " << rhs;
  if (std::optional<int64_t> some = getDepth(); some && (*some <= 0 || *some % 16 != 0 || *some > depth))
    return emitOpError("expected a depth of a multiple of 16 up to ") << depth << ", got " << *some;
  if (auto lhs = dyn_cast<SharedType>(getLhs().getType()); lhs && lhs.getBoxes() && lhs.getBoxes() != 64)
    return emitOpError("expected a warpgroup's 64 lines in each box of the left operand, got ") << lhs;
  int64_t width = overCols ? rhs.getRows() : rhs.getCols();
  if (overCols && rhs.getBoxes())
    return emitOpError("expected lines in one piece where they are read along the other axis, got ") << rhs;
  if (failed(verifyParts(*this, width)))
    return failure();
  if (getColumn() || (!overCols && result.getSizes()[1] < width))
    width = result.getSizes()[1];
  if (result.getSizes()[0] != 16 || result.getSizes()[1] != width)
    return emitOpError("expected a result of 16 rows per warp and ") << width << " columns, got " << result;
  if (overCols && (width % 8 != 0 || width > 256))
    return emitOpError("expected a multiple of 8 up to 256 columns, got ") << width;
  if (getAcc() && getAcc().getType() != result)
    return emitOpError("expected accumulator and result to have one type");
  return verifyStartedUses(*this, getResult());
}

LogicalResult WgmmaOp::verify() {
  size_t registers = getN() / 2;
  if (getN() % 8 != 0 || getN() < 8 || getN() > 256)
    return emitOpError("expected n a multiple of 8 from 8 to 256, got ") << getN();
  if (!mlir::attn::isMultiplied(getElement()))
    return emitOpError("expected f16 or bf16, got ") << getElement();
  if (getResults().size() != registers || (!getAcc().empty() && getAcc().size() != registers))
    return emitOpError("expected ") << registers << " accumulators, got " << getAcc().size() << " and "
                                    << getResults().size() << " results";
  if (getLhsTransposed() && !getLhsDescriptor())
    return emitOpError("expected a left operand that is transposed to be in shared memory");
  if (getLhs().size() != (getLhsDescriptor() ? 0u : 4u))
    return emitOpError("expected four registers or a descriptor on the left, got ")
           << getLhs().size() << " registers";
  return success();
}

//===- TileSharedOps.cpp - Verifiers of copies to shared memory -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

using namespace mlir;
using namespace mlir::tile;

LogicalResult RingStageOp::verify() {
  if (getTile().getType() == getRing().getType().getTile())
    return success();
  return emitOpError("expected the ring's tile, ")
         << getRing().getType().getTile() << ", got " << getTile().getType();
}

LogicalResult GatherOp::verify() {
  size_t count = getTargets().size();
  if (count == 0)
    return emitOpError("expected at least one target");
  if (getStrides().has_value() == !getPitches().empty())
    return emitOpError("expected the distances of slots as strides or as pitches, got ")
           << (getStrides() ? "both" : "neither");
  size_t distances = getStrides() ? getStrides()->size() : getPitches().size();
  if (getSources().size() != count || getOrigins().size() != count || distances != count)
    return emitOpError("expected as many sources, origins and strides as targets (")
           << count << "), got " << getSources().size() << ", " << getOrigins().size() << " and "
           << distances;
  if (!getPitches().empty() && getFactor())
    return emitOpError("expected a factor beside strides, got it beside pitches");
  if (getPage().has_value() != (getApart() != nullptr) || (getPage() && !getStrides()))
    return emitOpError("expected the size of pages together with their distance, and strides");
  if (getPage() && !llvm::isPowerOf2_64(*getPage()))
    return emitOpError("expected pages of a power of two of slots, got ") << *getPage();
  if (getFeatures() && getFeatures()->size() != count)
    return emitOpError("expected the features of ") << count << " sources, got " << getFeatures()->size();
  int64_t rows = cast<SharedType>(getTargets()[0].getType()).getRows();
  for (auto [i, source, target] : llvm::enumerate(getSources(), getTargets())) {
    auto tile = cast<SharedType>(target.getType());
    int64_t features = getFeatures() ? (*getFeatures())[i] : tile.getCols();
    // Lines shorter than a chunk are copied whole.
    int64_t chunk = std::min<int64_t>(128 / tile.getElement().getIntOrFloatBitWidth(), tile.getCols());
    if (tile.getLineBytes() < 16 && tile.getLineBytes() != 4 && tile.getLineBytes() != 8)
      return emitOpError("expected lines of 4 or 8 bytes, or of a multiple of 16, got ") << tile;
    if (features < chunk || features > tile.getCols() || (getFeatures() && features % chunk != 0))
      return emitOpError("expected features in chunks of ")
             << chunk << ", at most the " << tile.getCols() << " of a line, got " << features;
    // Distances in bytes find parts of lines whose parts differ in type.
    Type stored = cast<BufferType>(source.getType()).getElement();
    if (stored != tile.getElement() && !(stored.isInteger(8) && !getPitches().empty()))
      return emitOpError("expected the element type of source and target to agree, got ")
             << source.getType() << " and " << tile;
    if (tile.getBoxes())
      return emitOpError("cannot gather into a tile cut into boxes, ") << tile << "; tile.tma_load can";
    if (tile.getRows() != rows)
      return emitOpError("expected all targets to have ") << rows << " lines, got " << tile.getRows();
    if (getStrides() && (*getStrides())[i] < features)
      return emitOpError("expected a stride of at least a line's ")
             << features << " elements, got " << (*getStrides())[i];
  }
  return success();
}

LogicalResult GatherOp::verifyRegions() {
  if (getSlots() && !getSlot().empty())
    return emitOpError("expected slots from a lookup or a region that computes them, got both");
  if (getSlots())
    return success();
  if (getSlot().empty())
    return emitOpError("expected slots from a lookup or a region that computes them, got neither");
  Type i32 = IntegerType::get(getContext(), 32);
  return verifyBody(*this, getSlot(), i32, i32);
}

LogicalResult FetchLinesOp::verify() {
  constexpr int64_t features = 16, lanes = 32;
  if (Type element = getSource().getType().getElement(); element.getIntOrFloatBitWidth() != 8)
    return emitOpError("expected a source of 8-bit values, got ") << element;
  const int64_t all = getLines() * getPanels() * runsOfPanel * features, each = features * lanes,
                warps = getHeld().empty() ? 0 : all / each / static_cast<int64_t>(getHeld().size());
  if (warps == 0 || warps * static_cast<int64_t>(getHeld().size()) * each != all ||
      getLines() % (warps * linesOfStep) != 0 || getLines() > warps * lanes)
    return emitOpError(
               "expected results of 16 features for each lane of some warps, 8, 16, 24 or 32 lines for "
               "each warp, got ")
           << getHeld().size() << " for " << getLines() << " lines of " << getPanels() << " panels";
  return success();
}

LogicalResult LookupBoxesOp::verifyRegions() {
  Type i32 = IntegerType::get(getContext(), 32);
  return verifyBody(*this, getSlot(), i32, i32);
}

LogicalResult LookupOp::verifyRegions() {
  Type i32 = IntegerType::get(getContext(), 32);
  return verifyBody(*this, getSlot(), i32, i32);
}

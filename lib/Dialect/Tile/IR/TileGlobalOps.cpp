//===- TileGlobalOps.cpp - Verifiers of accesses to global memory ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Support/Elements.h"

#include "attn/Dialect/Tile/IR/Signals.h"
#include "attn_rt/tensor/Store.h"

using namespace mlir;
using namespace mlir::tile;

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileSignalOps.cpp.inc"

LogicalResult ReadOp::verify() {
  if (getValue().getType() == getBuffer().getType().getElement())
    return success();
  return emitOpError("expected an element of the buffer, ")
         << getBuffer().getType().getElement() << ", got " << getValue().getType();
}

LogicalResult ScanOp::verify() {
  int64_t warps = getWarps(), bytes = getScratch().getType().getBytes(), values = getValues().size();
  if (values == 0 || static_cast<int64_t>(getBefore().size()) != values)
    return emitOpError("expected two sums of each value, and one value at least");
  if (warps > 32)
    return emitOpError("expected at most 32 warps, got ") << warps;
  if (bytes < 4 * warps * values)
    return emitOpError("expected scratch of ") << 4 * warps * values << " bytes, got " << bytes;
  return success();
}

static LogicalResult verifyIntegers(Operation *op, BufferType buffer) {
  if (buffer.getElement().isInteger(32))
    return success();
  return op->emitOpError("expected a buffer of i32, got ") << buffer;
}

LogicalResult AddToOp::verify() { return verifyIntegers(*this, getBuffer().getType()); }
LogicalResult SignalOp::verify() { return verifyIntegers(*this, getBuffer().getType()); }
LogicalResult WaitSignalOp::verify() { return verifyIntegers(*this, getBuffer().getType()); }
LogicalResult SemaphorePostOp::verify() { return verifyIntegers(*this, getBuffer().getType()); }
LogicalResult SemaphoreWaitOp::verify() { return verifyIntegers(*this, getBuffer().getType()); }

LogicalResult WriteOp::verify() {
  Type value = getValue().getType(), element = getBuffer().getType().getElement();
  if (value == element || (value.isF32() && mlir::attn::isMultiplied(element)))
    return success();
  return emitOpError("expected ") << element << " or an f32 that is rounded to it, got " << value;
}

/// Whether stores round numbers of f32 to this type; e4m3 is also clamped.
static bool isRoundedTo(Type element) {
  return mlir::attn::isMultiplied(element) || isa<Float8E4M3FNType>(element);
}

static LogicalResult verifyAdjacent(Operation *op, ValueRange values, Type element, bool mayRound) {
  if (values.size() != 2 && values.size() != 4)
    return op->emitOpError("expected two or four elements, got ") << values.size();
  for (Type type : values.getTypes())
    if (type != element && !(mayRound && type.isF32() && isRoundedTo(element)))
      return op->emitOpError("expected elements of the buffer, ") << element << ", got " << type;
  return success();
}

LogicalResult ReadAdjacentOp::verify() {
  return verifyAdjacent(*this, getValues(), getBuffer().getType().getElement(), /*mayRound=*/false);
}

LogicalResult WriteAdjacentOp::verify() {
  return verifyAdjacent(*this, getValues(), getBuffer().getType().getElement(), /*mayRound=*/true);
}

LogicalResult PackOp::verify() {
  if (!getElement().isF16() && !getElement().isBF16() && !isa<Float8E4M3FNType>(getElement()))
    return emitOpError("expected elements of f16, bf16 or f8E4M3FN, got ") << getElement();
  const size_t count = 32 / getElement().getIntOrFloatBitWidth();
  if (getValues().size() != count)
    return emitOpError("expected ") << count << " numbers for a word of " << getElement() << ", got "
                                    << getValues().size();
  return success();
}

LogicalResult RecordOp::verify() {
  if (!getBuffer().getType().getElement().isInteger(32))
    return emitOpError("expected a buffer of i32, got ") << getBuffer().getType();
  if (getNumResults() < 1 || getNumResults() > 32)
    return emitOpError("expected 1 to 32 fields, got ") << getNumResults();
  if (!getFirst().empty() && getFirst().size() != getNumResults())
    return emitOpError("expected all ")
           << getNumResults() << " fields of the first iteration, or none, got " << getFirst().size();
  return success();
}

LogicalResult PackedSlotOp::verify() {
  size_t pitches = getPitches().size();
  if (pitches != 0 && pitches != 2)
    return emitOpError("expected the pitch of rows and the pitch of heads, got ") << pitches << " pitches";
  if (getHeads().has_value() == (pitches == 2))
    return emitOpError("expected either the number of heads of a row or two pitches");
  if (getBytes().has_value() != (pitches == 2))
    return emitOpError("expected the bytes of a piece with pitches, and only with them");
  return success();
}

LogicalResult PagedSlotOp::verify() {
  if (!getTable().getType().getElement().isInteger(32))
    return emitOpError("expected a table of i32, got ") << getTable().getType();
  if (!::attn::rt::Store::isPageSize(getPage()))
    return emitOpError("expected the page to hold ")
           << ::attn::rt::Store::pageSizes.data() << " tokens, got " << getPage()
           << "; nearest legal: " << ::attn::rt::Store::nearestPageSizes(getPage());
  return success();
}

LogicalResult ReadRangeOp::verify() {
  if (getBuffer().getType().getElement().isInteger(32))
    return success();
  return emitOpError("expected a buffer of i32, got ") << getBuffer().getType();
}

/// Verifies a region from a line to an integer of 32 or 64 bits.
static LogicalResult verifyNumbers(Operation *op, Region &numbers) {
  auto yield = numbers.front().empty() ? YieldOp() : dyn_cast<YieldOp>(numbers.front().back());
  bool narrow = yield && llvm::all_of(yield->getOperandTypes(), [](Type type) { return type.isInteger(32); });
  return verifyBody(op, numbers, IntegerType::get(op->getContext(), 32),
                    IntegerType::get(op->getContext(), narrow ? 32 : 64));
}

LogicalResult LoadVectorOp::verify() {
  FragmentType fragment = getFragment().getType();
  if (fragment.getRank() == 1 && fragment.getElement() == getBuffer().getType().getElement())
    return success();
  return emitOpError("expected one axis of the buffer's elements, ")
         << getBuffer().getType().getElement() << ", got " << fragment;
}
LogicalResult LoadVectorOp::verifyRegions() { return verifyNumbers(*this, getIndex()); }

LogicalResult StoreOp::verify() {
  FragmentType fragment = getFragment().getType();
  Type element = getBuffer().getType().getElement();
  bool rounds = isRoundedTo(element);
  if (!fragment.getElement().isF32() || fragment.getPartial() ||
      !mayHaveLayout(fragment, fragment.getRank() == 2 ? Layout::Acc : fragment.getLayout()))
    return emitOpError("expected a complete fragment of f32, got ") << fragment;
  if (!element.isF32() && !(rounds && fragment.getRank() == 2))
    return emitOpError("expected a buffer of f32")
           << (fragment.getRank() == 2 ? ", f16, bf16 or f8E4M3FN" : "") << ", got " << getBuffer().getType();
  if (fragment.getRank() == 2 &&
      (fragment.getSizes()[0] % 16 != 0 || fragment.getSizes()[1] % (rounds ? 16 : 8) != 0))
    return emitOpError("expected a multiple of 16 lines and of ")
           << (rounds ? 16 : 8) << " columns, got " << fragment;
  if (fragment.getRank() == 1 && (getColumn() || getColumns()))
    return emitOpError("a fragment with one axis has no columns");
  return success();
}
LogicalResult StoreOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

LogicalResult LoadLinesOp::verify() {
  FragmentType fragment = getFragment().getType();
  if (!fragment.getElement().isF32() || fragment.getPartial() || fragment.getOrder() ||
      !mayHaveLayout(fragment, fragment.getRank() == 2 ? Layout::Acc : fragment.getLayout()))
    return emitOpError("expected a complete fragment of f32, got ") << fragment;
  if (!getBuffer().getType().getElement().isF32())
    return emitOpError("expected a buffer of f32, got ") << getBuffer().getType();
  if (fragment.getRank() == 2 && (fragment.getSizes()[0] % 16 != 0 || fragment.getSizes()[1] % 8 != 0))
    return emitOpError("expected a multiple of 16 lines and of 8 columns, got ") << fragment;
  if (fragment.getRank() == 1 && (getColumn() || getColumns()))
    return emitOpError("a fragment with one axis has no columns");
  return success();
}
LogicalResult LoadLinesOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

/// Verifies a fragment whose lanes hold whole units of four registers.
static LogicalResult verifyLanes(Operation *op, FragmentType fragment, BufferType buffer) {
  if (!fragment.getElement().isF32() || fragment.getPartial() || fragment.getRank() != 2 ||
      !mayHaveLayout(fragment, Layout::Acc))
    return op->emitOpError("expected a complete fragment of f32 with two axes, got ") << fragment;
  if (!buffer.getElement().isF32())
    return op->emitOpError("expected a buffer of f32, got ") << buffer;
  if (fragment.getSizes()[0] % 16 != 0 || fragment.getSizes()[1] % 8 != 0)
    return op->emitOpError("expected a multiple of 16 lines and of 8 columns, got ") << fragment;
  return success();
}

LogicalResult StoreLanesOp::verify() {
  return verifyLanes(*this, getFragment().getType(), getBuffer().getType());
}
LogicalResult LoadLanesOp::verify() {
  return verifyLanes(*this, getFragment().getType(), getBuffer().getType());
}

LogicalResult LoadFeaturesOp::verify() {
  FragmentType fragment = getFragment().getType();
  if (!fragment.getElement().isF32() || fragment.getPartial() || fragment.getRank() != 2 ||
      !mayHaveLayout(fragment, Layout::Acc))
    return emitOpError("expected an accumulator of f32 with two axes, got ") << fragment;
  if (!mlir::attn::isMultiplied(getBuffer().getType().getElement()))
    return emitOpError("expected a buffer of f16 or bf16, got ") << getBuffer().getType();
  if (fragment.getSizes()[0] % 16 != 0 || fragment.getSizes()[1] % 16 != 0)
    return emitOpError("expected a multiple of 16 lines and of 16 columns, got ") << fragment;
  return success();
}
LogicalResult LoadFeaturesOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

LogicalResult LoadSumsOp::verify() {
  FragmentType fragment = getFragment().getType();
  if (!fragment.getElement().isF32() || fragment.getPartial() || fragment.getRank() != 2 ||
      !mayHaveLayout(fragment, Layout::Acc) || fragment.getOrder())
    return emitOpError("expected a complete fragment of f32 with two axes, got ") << fragment;
  if (!getBuffer().getType().getElement().isF32())
    return emitOpError("expected a buffer of f32, got ") << getBuffer().getType();
  if (fragment.getSizes()[0] % 16 != 0 || fragment.getSizes()[1] % 32 != 0 || getStride() % 32 != 0)
    return emitOpError("expected multiples of 16 lines and 32 columns, got ")
           << fragment << " with slots " << getStride() << " elements apart";
  return success();
}
LogicalResult LoadSumsOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

LogicalResult StoreScoresOp::verify() {
  FragmentType fragment = getFragment().getType();
  Type element = getBuffer().getType().getElement();
  if (!fragment.getElement().isF32() || fragment.getPartial() || fragment.getRank() != 2 ||
      !mayHaveLayout(fragment, Layout::Acc))
    return emitOpError("expected a complete fragment of f32 with two axes, got ") << fragment;
  if (!element.isInteger(16))
    return emitOpError("expected a buffer of i16, got ") << getBuffer().getType();
  const Axis *queries = llvm::find(fragment.getAxes(), Axis::Query);
  if (queries == fragment.getAxes().end() || !llvm::is_contained(fragment.getAxes(), Axis::Key))
    return emitOpError("expected queries and keys, got ") << fragment;
  int64_t rows = fragment.getSizes()[queries - fragment.getAxes().begin()], group = getGroup();
  if (group < 1 || group > rows)
    return emitOpError("expected a group of 1 to ") << rows << " heads, got " << group;
  return success();
}
LogicalResult StoreScoresOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

LogicalResult ScatterOp::verify() {
  SharedType tile = getTile().getType();
  int64_t count = getCount();
  if (getBuffer().getType().getElement() != tile.getElement())
    return emitOpError("expected the element type of tile and tensor to agree, got ")
           << tile << " and " << getBuffer().getType();
  if (tile.getBoxes())
    return emitOpError("expected a tile in one piece, got ") << tile;
  int64_t chunk = 128 / tile.getElement().getIntOrFloatBitWidth();
  if (int64_t columns = getColumns().value_or(chunk);
      columns < chunk || columns > tile.getCols() || columns % chunk != 0)
    return emitOpError("expected columns in chunks of ")
           << chunk << ", at most the " << tile.getCols() << " of a line, got " << columns;
  if (count < 8 || count % 8 != 0 || tile.getRows() % count != 0)
    return emitOpError("expected a multiple of 8 lines that divides the tile's ")
           << tile.getRows() << ", got " << count;
  return success();
}
LogicalResult ScatterOp::verifyRegions() { return verifyNumbers(*this, getSlot()); }

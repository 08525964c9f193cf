//===- TileOperandOps.cpp - Verifiers of MMA operands ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::tile;

/// Whether the fragment has eight lines, as a right operand of few rows.
static bool isOfFewRows(FragmentType fragment) {
  return fragment.getRank() == 2 && fragment.getSizes()[0] == ScheduleAttr::fewRows;
}

LogicalResult LoadOp::verify() {
  SharedType tile = getTile().getType();
  FragmentType fragment = getFragment().getType();
  int64_t bits = tile.getElement().getIntOrFloatBitWidth();
  bool right = isOfFewRows(fragment) && bits == 16;
  if (bits > 32 || fragment.getElement() != tile.getElement())
    return emitOpError("expected tile and fragment of one element type of 8, 16 or 32 bits, got ")
           << tile << " and " << fragment;
  if (fragment.getRank() != 2 || fragment.getAxes()[0] != tile.getRowAxis() ||
      fragment.getAxes()[1] != tile.getColAxis() || fragment.getSizes()[1] != tile.getCols() ||
      fragment.getSizes()[0] > tile.getRows() || (fragment.getSizes()[0] % 16 != 0 && !right) ||
      tile.getCols() * bits % 256 != 0)
    return emitOpError("expected whole lines, a multiple of 16 of them, of ") << tile << ", got " << fragment;
  if (!mayHaveLayout(fragment, right ? Layout::Rhs : Layout::Lhs))
    return emitOpError("expected layout '") << (right ? "rhs" : "lhs") << "', got " << fragment;
  return success();
}

LogicalResult LoadRhsOp::verify() {
  SharedType tile = getTile().getType();
  FragmentType fragment = getFragment().getType();
  if (!tile.holdsCodes() || fragment.getElement() != tile.getElement())
    return emitOpError("expected tile and fragment of one quantized type, of 8 bits or less, got ")
           << tile << " and " << fragment;
  if (tile.getBoxes())
    return emitOpError("cannot read a tile cut into boxes, ") << tile;
  auto isTile = [&](unsigned rows, unsigned cols) {
    const bool fits =
        cols == 0 ? fragment.getSizes()[cols] <= tile.getCols() : fragment.getSizes()[cols] == tile.getCols();
    return fragment.getAxes()[rows] == tile.getRowAxis() && fragment.getAxes()[cols] == tile.getColAxis() &&
           fragment.getSizes()[rows] == tile.getRows() && fits;
  };
  if (fragment.getRank() != 2 || !(isTile(0, 1) || isTile(1, 0)) || tile.getRows() % 16 != 0 ||
      tile.getCols() % 16 != 0 || fragment.getSizes()[0] % 16 != 0)
    return emitOpError("expected all of ")
           << tile << " or, where they are kept, its first columns, multiples of 16 along both axes, got "
           << fragment;
  if (!mayHaveLayout(fragment, Layout::Rhs))
    return emitOpError("expected layout 'rhs', got ") << fragment;
  if (int64_t group = getGroup().value_or(16); group < 16 || group % 16 != 0 || tile.getCols() % group != 0)
    return emitOpError("expected groups of a multiple of 16 that divides the tile's ")
           << tile.getCols() << " features, got " << group;
  return success();
}

LogicalResult LoadColumnsOp::verify() {
  SharedType tile = getTile().getType();
  int64_t bytes = tile.getLineBytes();
  Type element = tile.getElement();
  if (tile.getSwizzled() || tile.getBoxes() || (bytes != 4 && bytes != 8 && bytes != 16) ||
      !(element.isF16() || element.isBF16() || element.isF32() || element.isSignlessInteger(32)))
    return emitOpError("expected a tile with lines of 4, 8 or 16 bytes of f16, bf16, f32 or i32, got ")
           << tile;
  if (static_cast<int64_t>(getNumResults()) != tile.getCols())
    return emitOpError("expected as many results as ") << tile << " has columns, got " << getNumResults();
  for (Type type : getResultTypes())
    if (auto column = cast<FragmentType>(type);
        column.getRank() != 1 || column.getAxes()[0] != tile.getRowAxis() ||
        column.getSizes()[0] != tile.getRows() || column.getElement() != element || column.getPartial())
      return emitOpError("expected a fragment over the lines of ") << tile << ", got " << column;
  return success();
}

LogicalResult CastOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (source.getRank() != 2 || !source.getElement().isF32() || !mayHaveLayout(source, Layout::Acc))
    return emitOpError("expected an accumulator of f32 with two axes, got ") << source;
  bool turns = source.getAxes() != result.getAxes();
  if (!mlir::attn::isMultiplied(result.getElement()) ||
      !mayHaveLayout(result, turns ? Layout::Rhs : Layout::Lhs))
    return emitOpError("expected a ")
           << (turns ? "right" : "left") << " operand of f16 or bf16, got " << result;
  if (result.getRank() != 2 || source.getAxes()[0] != result.getAxes()[turns] ||
      source.getAxes()[1] != result.getAxes()[!turns] || source.getSizes()[0] != result.getSizes()[turns] ||
      source.getSizes()[1] != result.getSizes()[!turns])
    return emitOpError("expected source and result of the same axes, got ") << source << " and " << result;
  if (source.getSizes()[0] % 16 != 0 || source.getSizes()[1] % (turns ? 8 : 16) != 0)
    return emitOpError("expected multiples of 16 along both axes, got ") << source;
  return success();
}

LogicalResult ConvertOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (source.getPartial() || result.getPartial())
    return emitOpError("moves complete elements only, got ") << source << " and " << result;
  if (source.getLayout() == Layout::Rhs || result.getLayout() == Layout::Rhs)
    return emitOpError("moves no elements of layout 'rhs': right operands come from memory; got ")
           << source << " and " << result;
  int64_t bits = source.getElement().getIntOrFloatBitWidth();
  if (source.getElement() != result.getElement() || (bits != 8 && bits != 16 && bits != 32))
    return emitOpError("expected one element type of 8, 16 or 32 bits, got ") << source << " and " << result;
  auto extents = [](FragmentType type) {
    SmallVector<std::pair<Axis, int64_t>> pairs;
    for (auto [axis, size] : llvm::zip_equal(type.getAxes(), type.getSizes()))
      pairs.emplace_back(axis, size);
    llvm::sort(pairs);
    return pairs;
  };
  if (extents(source) != extents(result))
    return emitOpError("expected source and result of the same axes, got ") << source << " and " << result;
  return success();
}

/// Whether it is a quantized type that `tile.widen` takes.
static bool isCode(Type type) {
  return isa<Float8E4M3FNType, Float8E5M2Type, Float4E2M1FNType>(type) || type.isSignlessInteger(8) ||
         type.isSignlessInteger(4) || type.isSignlessInteger(2);
}

/// Verifies scales of blocks: one word for four scales of a token.
static LogicalResult verifyBlocks(WidenOp widen) {
  BlocksAttr blocks = widen.getBlocksAttr();
  FragmentType source = widen.getSource().getType();
  if (!blocks) {
    if (widen.getWords().empty() && !widen.getMost())
      return success();
    return widen.emitOpError("expected #tile.blocks beside scales of blocks");
  }
  const bool ofPowers = isa<Float8E8M0FNUType>(blocks.getScale());
  const int64_t features = source.getFeatureAxis();
  if (!isa<FloatType>(source.getElement()) || features < 0 || !widen.getScales().empty())
    return widen.emitOpError("expected blocks of floats along features, without other factors, got ")
           << source;
  if (static_cast<int64_t>(widen.getWords().size()) != llvm::divideCeil(blocks.getCount(), 4))
    return widen.emitOpError("expected a word for four of ")
           << blocks.getCount() << " blocks, got " << widen.getWords().size();
  if ((blocks.getCount() - 1) * blocks.getSize() >= source.getSizes()[features])
    return widen.emitOpError("expected at most as many blocks as there are features, got ") << blocks;
  if (ofPowers != static_cast<bool>(widen.getMost()) || (ofPowers && features != 0))
    return widen.emitOpError(
        "expected the largest exponent beside powers of two, and these where features are kept");
  SmallVector<Value> tokens(widen.getWords());
  if (Value most = widen.getMost())
    tokens.push_back(most);
  for (Value each : tokens)
    if (auto type = cast<FragmentType>(each.getType());
        type.getRank() != 1 || type.getAxes()[0] != source.getAxes()[1 - features] ||
        type.getSizes()[0] != source.getSizes()[1 - features] || !type.getElement().isSignlessInteger(32) ||
        type.getPartial() || !mayHaveLayout(type, features == 0 ? Layout::Col : Layout::Row))
      return widen.emitOpError("expected an i32 for each token, got ") << type;
  return success();
}

LogicalResult BlocksAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t count, int64_t size,
                                 Type scale) {
  if (count < 1 || size < 16 || !llvm::isPowerOf2_64(size))
    return emitError() << "expected blocks of a power of two of features, 16 or more, got " << count << " of "
                       << size;
  if (!isa<Float8E4M3FNType, Float8E8M0FNUType>(scale))
    return emitError() << "expected scales of f8E4M3FN or f8E8M0FNU, got " << scale;
  return success();
}

LogicalResult WidenOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (!isCode(source.getElement()) || !mlir::attn::isMultiplied(result.getElement()))
    return emitOpError("expected f8E4M3FN, f8E5M2, f4E2M1FN, i8, i4 or i2 to become f16 or bf16, got ")
           << source << " and " << result;
  if (source.getAxes() != result.getAxes() || source.getSizes() != result.getSizes() ||
      source.getRank() != 2 || !mayHaveLayout(source, Layout::Rhs) || !mayHaveLayout(result, Layout::Rhs) ||
      source.getOrder() != result.getOrder())
    return emitOpError("expected right operands of the same axes, got ") << source << " and " << result;
  if (!getZeros().empty() && getZeros().size() != getScales().size())
    return emitOpError("expected as many terms as factors, ")
           << getScales().size() << ", got " << getZeros().size();
  if (getTiny() && !isa<Float4E2M1FNType>(source.getElement()) &&
      (isa<FloatType>(source.getElement()) || !getScales().empty() || !result.getElement().isF16()))
    return emitOpError("expected tiny elements of e2m1, or of integers to f16 without factors, got ")
           << source << " and " << result;
  int64_t groups = getScales().size();
  if (groups && source.getSizes()[0] % (16 * groups) != 0)
    return emitOpError("expected factors of groups of a multiple of 16 rows, got ")
           << groups << " for " << source.getSizes()[0] << " rows";
  if (failed(verifyBlocks(*this)))
    return failure();
  SmallVector<Value> columns(getScales());
  llvm::append_range(columns, getZeros());
  for (Value column : columns)
    if (auto type = cast<FragmentType>(column.getType());
        type.getRank() != 1 || type.getAxes()[0] != source.getAxes()[1] ||
        type.getSizes()[0] != source.getSizes()[1] || type.getElement() != result.getElement() ||
        type.getPartial() || !mayHaveLayout(type, Layout::Col))
      return emitOpError("expected factors and terms of columns, in the result's element type, got ") << type;
  return success();
}

LogicalResult RestoreOp::verify() {
  FragmentType source = getSource().getType();
  if (!isCode(getCodes()) || isa<FloatType>(getCodes()))
    return emitOpError("expected quantized elements of i8, i4 or i2, got ") << getCodes();
  if (source != getResult().getType() || source.getRank() != 2 || source.getFeatureAxis() != 0 ||
      !source.getElement().isF32() || !mayHaveLayout(source, Layout::Acc))
    return emitOpError("expected an accumulator of f32, features its rows, and the same as result, got ")
           << source << " and " << getResult().getType();
  return success();
}

LogicalResult PanelsOp::verify() {
  SharedType tile = getTile().getType(), result = getResult().getType();
  constexpr int64_t panel = 128;
  if (tile.getBoxes() || result.getBoxes())
    return emitOpError("expected tiles in one piece, got ") << tile << " and " << result;
  if (result.getRowAxis() != tile.getRowAxis() || result.getColAxis() != tile.getColAxis() ||
      result.getRows() != tile.getRows() || result.getElement() != tile.getElement() ||
      result.getCols() > tile.getCols())
    return emitOpError("expected columns of all lines of ") << tile << ", got " << result;
  if (result.getLineBytes() % panel != 0 && result.getLineBytes() % panel != tile.getLineBytes() % panel)
    return emitOpError("expected panels of ")
           << panel << " bytes, or the last ones of " << tile << ", got " << result;
  if (result.getSwizzled() != tile.getSwizzled())
    return emitOpError("expected both tiles swizzled, or neither, got ") << tile << " and " << result;
  return success();
}

/// Whether the fragment is an operand of queries for an MMA.
static bool isOfQueries(FragmentType type) {
  return type.getRank() == 2 && mayHaveLayout(type, isOfFewRows(type) ? Layout::Rhs : Layout::Lhs);
}

LogicalResult BalanceOp::verify() {
  FragmentType source = getSource().getType();
  if (!isCode(getCodes()) || isa<FloatType>(getCodes()))
    return emitOpError("expected quantized elements of i8, i4 or i2, got ") << getCodes();
  if (source != getResult().getType() || !source.getElement().isF16() || source.getFeatureAxis() != 1 ||
      !isOfQueries(source))
    return emitOpError("expected queries of f16, and the same as result, got ")
           << source << " and " << getResult().getType();
  return success();
}

LogicalResult NarrowOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  if (!mlir::attn::isMultiplied(source.getElement()) || !result.getElement().isF16() ||
      source.getAxes() != result.getAxes() || source.getSizes() != result.getSizes() ||
      source.getOrder() != result.getOrder() || source.getLayout() != result.getLayout() ||
      !isOfQueries(source))
    return emitOpError("expected queries of bf16 or f16 and the same of f16, got ")
           << source << " and " << result;
  return success();
}

LogicalResult NarrowTileOp::verify() {
  SharedType tile = getTile().getType();
  constexpr int64_t rows = 16;
  if (!mlir::attn::isMultiplied(tile.getElement()) || tile.getRows() != rows || tile.getCols() % 32 != 0 ||
      tile.getBoxes())
    return emitOpError("expected ") << rows
                                    << " lines of bf16 or f16 in one piece, of a multiple of 32 columns, got "
                                    << tile;
  if (getQueries().getType().getBytes() != tile.getBytes())
    return emitOpError("expected the ")
           << tile.getBytes() << " bytes of the tile, got " << getQueries().getType();
  return success();
}

LogicalResult LoadLhsOp::verify() {
  FragmentType fragment = getFragment().getType();
  constexpr int64_t rows = 16, run = 64, columnBytes = 32;
  if (fragment.getRank() != 2 || fragment.getSizes()[0] != rows || !fragment.getElement().isF16() ||
      !mayHaveLayout(fragment, Layout::Lhs) || fragment.getFeatureAxis() != 1)
    return emitOpError("expected ") << rows << " queries of f16 in layout 'lhs', got " << fragment;
  if (getFirst() % run != 0 || static_cast<int64_t>(getFirst() + fragment.getSizes()[1]) * columnBytes >
                                   getQueries().getType().getBytes())
    return emitOpError("expected columns from a multiple of ")
           << run << " on, within " << getQueries().getType() << ", got " << fragment.getSizes()[1]
           << " from " << getFirst() << " on";
  return success();
}

LogicalResult PartOp::verify() {
  FragmentType source = getSource().getType(), result = getResult().getType();
  auto isPacked = [](FragmentType type) {
    return mayHaveLayout(type, Layout::Lhs) || mayHaveLayout(type, Layout::Rhs) ||
           mayHaveLayout(type, Layout::Acc);
  };
  if (source.getRank() != 2 || !isPacked(source) || source.getLayout() != result.getLayout() ||
      source.getOrder() != result.getOrder() || source.getAxes() != result.getAxes() ||
      source.getElement() != result.getElement() || source.getSizes()[0] != result.getSizes()[0])
    return emitOpError("expected an operand or an accumulator of an MMA and columns of it, got ")
           << source << " and " << result;
  int64_t first = getFirst(), size = result.getSizes()[1];
  if (first % 16 != 0 || size % 16 != 0 || first + size > source.getSizes()[1])
    return emitOpError("expected blocks of 16 of the ")
           << source.getSizes()[1] << " columns, got " << size << " from " << first << " on";
  return success();
}

LogicalResult JoinOp::verify() {
  FragmentType result = getResult().getType();
  if (getSources().empty())
    return emitOpError("expected at least one accumulator");
  auto first = cast<FragmentType>(getSources().front().getType());
  if (first.getRank() != 2 || !first.getElement().isF32() || !mayHaveLayout(first, Layout::Acc) ||
      !llvm::all_equal(getSources().getTypes()))
    return emitOpError("expected accumulators of one type, got ") << getSources().getTypes();
  if (result.getRank() != 2 || result.getAxes() != first.getAxes() ||
      result.getElement() != first.getElement() || result.getLayout() != first.getLayout() ||
      result.getOrder() != first.getOrder() || result.getSizes()[0] != first.getSizes()[0] ||
      result.getSizes()[1] != first.getSizes()[1] * static_cast<int64_t>(getSources().size()))
    return emitOpError("expected the columns of ")
           << getSources().size() << " times " << first << ", got " << result;
  return success();
}

//===- RowBoxes.cpp - Rows that the copy engine moves ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TileCopies.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Packed rows: the heads of a group, then the next query row.
SmallVector<Value> TileCopies::rowMaps(StringRef buffer, SharedType tile, int64_t dim) {
  int64_t group = chain.group(), lines = tile.getBoxLines();
  std::string ofRow = rt::strideName(std::string_view(buffer), 0);
  std::string ofHead = rt::strideName(std::string_view(buffer), 1);
  return tensorMaps((buffer + ".map").str(), buffer, tile, lines, MapAxis{group, {}, 1, group, ofHead},
                    {1, {"rows"}, 1, lines / group, ofRow}, dim, {chain.kvHeads(), {}, group, 1, ofHead});
}

void TileCopies::fetchQueries(Value target) {
  auto tile = cast<SharedType>(target.getType());
  Value row = b.div(packedBegin, chain.group());
  if (int64_t lines = tile.getBoxes())
    row = b.add(row, b.mul(LaneIdOp::create(b, b.getI32Type()), b.i32(lines / chain.group())));
  FetchOp::create(b, rowMaps("q", tile, chain.keyDim()), row, kvHead, target, Value(), Value(),
                  tile.getBoxLines(), isPadded(tile, chain.keyDim()));
}

void TileCopies::fetchRows(StringRef name, Value target) {
  auto tile = cast<SharedType>(target.getType());
  int64_t group = chain.group(), lines = tile.getBoxLines(),
          dim = name == "q" ? chain.keyDim() : chain.valueDim();
  int64_t bytes = dim * chain.element().getIntOrFloatBitWidth() / 8;
  SmallVector<Value> maps =
      tensorMaps((name + ".map").str(), name, tile, lines, MapAxis{group, {}, bytes, group, ""},
                 {1, {"rows"}, chain.queryHeads() * bytes, lines / group, ""}, dim,
                 {chain.kvHeads(), {}, group * bytes, 1, ""});
  FetchOp::create(b, maps, b.div(packedBegin, group), kvHead, target, Value(), Value(), lines,
                  isPadded(tile, dim));
}

void TileCopies::sendOutput(Value output, Value queries, Value firstRow, Value barrier) {
  int64_t lines = cast<SharedType>(queries.getType()).getBoxLines();
  SharedType type = sharedType(Axis::Query, lines, chain.paddedValueDim());
  Value tile = OverlayOp::create(b, type, queries, firstRow);
  Value line = b.sub(warpRow, firstRow), left = b.sub(packedCount, firstRow);
  StageOp::create(b, output, tile, line);
  FenceAsyncOp::create(b);
  MeetOp::create(b, barrier, lines / rows * 32);
  auto whole = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::sge, left, b.i32(lines)),
                                 /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(whole.elseYield());
  auto scatter = ScatterOp::create(b, tile, line, rows, left, b.buffer("o", chain.element()), outputColumns(),
                                   /*stride=*/1);
  b.fill(scatter.getSlot(), {b.getI32Type()},
         [&](ValueRange row) { return outputIndex(b.add(firstRow, row[0])); });
  b.setInsertionPoint(whole.thenYield());
  auto first = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, line, b.i32(0)));
  b.setInsertionPoint(first.thenYield());
  SendOp::create(b, rowMaps("o", type, chain.valueDim()), b.div(b.add(packedBegin, firstRow), chain.group()),
                 kvHead, tile, /*panel=*/Value(), /*adds=*/false, isPadded(type, chain.valueDim()));
}

void TileCopies::sendSums(Value tile, Value firstRow, Value panel) {
  auto type = cast<SharedType>(tile.getType());
  int64_t group = chain.group(), lines = type.getRows(), features = chain.paddedKeyDim();
  int64_t bytes = features * type.getElement().getIntOrFloatBitWidth() / 8;
  std::string name = rowSums.str();
  SmallVector<Value> maps = tensorMaps(name + ".map", name, type, lines, MapAxis{group, {}, bytes, group, ""},
                                       {1, {"rows"}, chain.queryHeads() * bytes, lines / group, ""}, features,
                                       {chain.kvHeads(), {}, group * bytes, 1, ""});
  SendOp::create(b, maps, b.div(b.add(packedBegin, firstRow), group), kvHead, tile, panel, /*adds=*/true,
                 /*padded=*/false);
}

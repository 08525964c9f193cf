//===- StoreRows.cpp - Results that the copy engine takes ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StoreRows.h"
#include "TensorMaps.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void mlir::attn::tmaStoreOutput(KernelBuilder &b, FormAttr form, RowsPart &rows, Value output, Value queries,
                                Value firstRow, Value barrier) {
  int64_t lines = cast<SharedType>(queries.getType()).getBoxLines(), features = form.getValueDim();
  auto type = SharedType::get(b.getContext(), Axis::Query, lines, Axis::Feature, form.getValueTile(),
                              form.getElement(), /*swizzled=*/false, /*boxes=*/0);
  Value tile = OverlayOp::create(b, type, queries, firstRow);
  Value line = b.sub(rows.first(), firstRow), left = b.sub(rows.count(), firstRow);
  StageOp::create(b, output, tile, line);
  FenceAsyncOp::create(b);
  NamedBarrierSyncOp::create(b, barrier, lines / form.getRows() * 32);
  auto whole = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::sge, left, b.i32(lines)),
                                 /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(whole.elseYield()); // rows past the task's last belong to other blocks
  auto columns = isPadded(type, features) ? b.getI64IntegerAttr(features) : IntegerAttr();
  auto scatter = ScatterOp::create(b, tile, line, form.getRows(), left, b.buffer("o", form.getElement()),
                                   columns, /*stride=*/1);
  b.fill(scatter.getSlot(), {b.getI32Type()},
         [&](ValueRange row) { return rows.outputIndex(b.add(firstRow, row[0]), form.getElement()); });
  b.setInsertionPoint(whole.thenYield());
  auto first = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, line, b.i32(0)));
  b.setInsertionPoint(first.thenYield());
  TmaStoreOp::create(b, rowMaps(b, form, rows, "o", type, features, /*dense=*/false),
                     b.div(b.add(rows.begin(), firstRow), rows.heads()), rows.headsNumber(), tile,
                     /*panel=*/Value(),
                     /*adds=*/false, isPadded(type, features));
}

void mlir::attn::tmaStoreSums(KernelBuilder &b, FormAttr form, RowsPart &rows, Value tile, Value firstRow,
                              Value panel) {
  auto type = cast<SharedType>(tile.getType());
  TmaStoreOp::create(b, rowMaps(b, form, rows, rowSums, type, form.getKeyFeatures(), /*dense=*/true),
                     b.div(b.add(rows.begin(), firstRow), rows.heads()), rows.headsNumber(), tile, panel,
                     /*adds=*/true, /*padded=*/false);
}

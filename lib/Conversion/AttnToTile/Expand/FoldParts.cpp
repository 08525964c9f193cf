//===- FoldParts.cpp - Parts of sixteen rows, one after the other ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A task of several parts keeps the total of its rows in memory, where another
// kernel would find the parts: an accumulator has no registers for both. A lane
// reads what it wrote, so nothing waits. A warp that has all columns keeps its
// outputs as lanes hold them. LSEs are one or two numbers, and stay in registers.
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/RowFold.h"
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// If warps share the columns, all of them have these rows, and one warp writes the LSEs of results.
FragmentExpansion::Columns FragmentExpansion::columnsOf(Value output, Value lines) {
  Columns columns{Value(), IntegerAttr(), lines};
  int64_t features = cast<FragmentType>(output.getType()).getSizes()[1], all = features;
  if (schedule.getSplitKeys()) {
    Value warp = WarpIdOp::create(b, b.getI32Type());
    columns.first = b.mul(warp, b.i32(features)), all = features * schedule.getWarps();
    columns.lseLines = b.select(b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)), lines, b.i32(0));
  } else if (schedule.getSlices() > 1) {
    columns.first = firstFeature(), all = features * schedule.getSlices();
    columns.lseLines = firstSliceLines(lines);
  }
  if (all != form.getValueDim())
    columns.count = b.getI64IntegerAttr(form.getValueDim());
  return columns;
}

void FragmentExpansion::keepParts(KeepOp keep) {
  RowsPart rows(b, form, keep.getRows());
  ValueRange pieces = piecesOf(keep.getOutput());
  Value lines = b.i32(form.getRows()); // totals have room for all lines, and no branch for the last
  Columns columns = columnsOf(pieces[0], lines);
  Value total = b.add(keep.getPart(), rows.first());
  auto slotOf = [&](Value line) { return b.add(total, line); };
  if (columns.areAll())
    StoreLanesOp::create(b, pieces[0], planArray(b, PlanArray::PartialO), firstElementOf(total));
  else
    storeLines(pieces[0], planArray(b, PlanArray::PartialO), lines, columns.first, columns.count,
               form.getValueDim(), slotOf);
}

/// The element at which the outputs of a row with this index begin.
Value FragmentExpansion::firstElementOf(Value row) { return b.mul(b.wide(row), b.i64(form.getValueDim())); }

FragmentExpansion::Results FragmentExpansion::foldParts(FoldOp fold) {
  RowsPart rows(b, form, fold.getRows());
  ValueRange pieces = piecesOf(fold.getOutput());
  auto outType = cast<FragmentType>(pieces[0].getType()), lseType = cast<FragmentType>(pieces[1].getType());
  Value lines = b.i32(form.getRows());
  auto branch = scf::IfOp::create(b, TypeRange{outType, lseType}, fold.getStored(), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, pieces);
  b.setInsertionPointToStart(branch.thenBlock());
  Columns columns = columnsOf(pieces[0], lines);
  Value total = b.add(fold.getPart(), rows.first());
  Value stored = planArray(b, PlanArray::PartialO), before;
  if (columns.areAll()) {
    before = LoadLanesOp::create(b, outType, stored, firstElementOf(total));
  } else {
    auto load =
        LoadLinesOp::create(b, outType, stored, lines, columns.first, columns.count, form.getValueDim());
    b.fill(load.getSlot(), {b.getI32Type()}, [&](ValueRange line) { return b.add(total, line[0]); });
    before = load;
  }
  Value lse = piecesOf(fold.getBefore())[1];
  ResultRange ofRows = b.mapAll({lseType, lseType, lseType}, ValueRange{lse, pieces[1]},
                                [&](ValueRange v) { return foldLse(b, v[0], v[1]); });
  Value output = b.map(outType, ValueRange{before, ofRows[0], pieces[0], ofRows[1]},
                       [&](ValueRange v) { return foldOutput(b, v[0], v[1], v[2], v[3]); });
  scf::YieldOp::create(b, ValueRange{output, ofRows[2]});
  return {branch.getResult(0), branch.getResult(1)};
}

FragmentExpansion::Results FragmentExpansion::foldSinks(FoldOp fold) {
  ValueRange pieces = piecesOf(fold.getOutput());
  Value output = pieces[0], lse = pieces[1];
  auto outType = cast<FragmentType>(output.getType()), lseType = cast<FragmentType>(lse.getType());
  if (!fold.getSinks())
    return {output, lse};
  Value sinks = sinkLogitsOf(fold.getSinks(), fold.getRows(), lseType);
  ResultRange ofRows = b.mapAll({lseType, lseType, lseType}, ValueRange{lse, sinks},
                                [&](ValueRange v) { return foldLse(b, v[0], v[1]); });
  output = b.map(outType, ValueRange{output, ofRows[0], ofRows[1]},
                 [&](ValueRange v) { return foldOutput(b, v[0], v[1], b.f32(0), v[2]); });
  return {output, ofRows[2]};
}

//===- WriteResults.cpp - Outputs and LSEs of sixteen rows leave a kernel --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Stage/StoreRows.h"
#include "Expansion.h"
#include "Gate.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void FragmentExpansion::storeLines(Value fragment, Value buffer, Value lines, Value column,
                                   IntegerAttr columns, int64_t stride, function_ref<Value(Value)> slotOf) {
  auto op = StoreOp::create(b, fragment, buffer, lines, column, columns, stride);
  b.fill(op.getSlot(), {b.getI32Type()}, [&](ValueRange line) { return slotOf(line[0]); });
}

/// The lines of which this warp writes the LSEs: none if another warp has the first slice of their values.
Value FragmentExpansion::firstSliceLines(Value lines) {
  return b.select(b.compare(arith::CmpIPredicate::eq, valueSlice(), b.i32(0)), lines, b.i32(0));
}

void FragmentExpansion::writeFirst(mlir::attn::WriteOp write) {
  RowsPart rows(b, form, write.getRows());
  ValueRange output = piecesOf(write.getOutput());
  Value lines = rows.left();
  auto slotOf = [&](Value line) { return rows.slotOfLine(line); };
  bool padded = form.getValueTile() * schedule.getSlices() != form.getValueDim();
  Value column = firstFeature(), lseLines = column ? firstSliceLines(lines) : lines;
  storeLines(output[0], b.buffer(firstOutput, form.getElement()), lines, column,
             padded ? b.getI64IntegerAttr(form.getValueDim()) : IntegerAttr(), form.getValueDim(), slotOf);
  storeLines(output[1], b.buffer(firstLse, b.getF32Type()), lseLines, Value(), IntegerAttr(), 1, slotOf);
}

Value FragmentExpansion::gated(Value output, Value gate, RowsPart &rows, const Columns &columns) {
  auto type = cast<FragmentType>(output.getType());
  auto tensor = cast<RankedTensorType>(gate.getType());
  StringRef name = argumentName(gate);
  Value buffer = b.buffer(name, tensor.getElementType()), factors;
  const bool byFeature = tensor.getRank() == 3;
  if (byFeature) {
    auto load = LoadFeaturesOp::create(b, type, buffer, columns.first, columns.count);
    b.fill(load.getSlot(), {b.getI32Type()}, [&](ValueRange line) {
      return rows.lineOf(name, rows.packedRow(line[0]), tensor.getElementType());
    });
    factors = load;
  } else {
    auto ofRows = b.fragment({Axis::Query}, {type.getSizes()[0]}, tensor.getElementType());
    auto load = LoadVectorOp::create(b, ofRows, buffer);
    b.fill(load.getIndex(), {b.getI32Type()},
           [&](ValueRange line) { return rows.slotOf(rows.packedRow(line[0]), b.getI64Type()); });
    factors = b.map(ofRows.withElement(b.getF32Type()), ValueRange{load},
                    [&](ValueRange v) { return sigmoid(b, v[0]); });
  }
  return b.map(type, ValueRange{output, factors},
               [&](ValueRange v) { return gatedOutput(b, v[0], byFeature ? sigmoid(b, v[1]) : v[1]); });
}

/// Padding has no size, whatever it holds. If warps have columns of the same rows, they exchange maxima in
/// the memory in which they merged.
Value FragmentExpansion::scalesOf(Value output, const Columns &columns) {
  auto type = cast<FragmentType>(output.getType());
  Type f32 = b.getF32Type();
  FragmentType ofRows = b.fragment({Axis::Query}, {type.getSizes()[0]}, f32);
  auto size = [&](ValueRange v) -> Value { return math::AbsFOp::create(b, v[0]); };
  Value sizes;
  if (columns.count) {
    FragmentType ofColumns = b.fragment({Axis::Feature}, {type.getSizes()[1]}, b.getI32Type());
    Value numbers = CoordinatesOp::create(b, ofColumns, columns.first ? columns.first : b.i32(0));
    sizes = b.map(type, ValueRange{output, numbers}, [&](ValueRange v) {
      return b.select(b.less(v[1], b.i32(columns.count.getInt())), size(v), b.f32(0));
    });
  } else {
    sizes = b.map(type, output, size);
  }
  Value largest = ReduceOp::create(b, ofRows, Combine::Max, sizes);
  if (schedule.getSplitKeys()) {
    MergeWarpsOp merged;
    b.kernel.walk([&](MergeWarpsOp op) { merged = op; });
    largest = ReduceWarpsOp::create(b, ofRows, Combine::Max, largest, merged.getScratch(), merged.getWarp(),
                                    merged.getWarps());
  }
  return b.map(ofRows, largest, [&](ValueRange v) { return scaleOfLargest(b, v[0]); });
}

void FragmentExpansion::writeResults(mlir::attn::WriteOp write) {
  RowsPart rows(b, form, write.getRows());
  Value output = piecesOf(write.getOutput())[0], lse = piecesOf(write.getOutput())[1];
  Value part = write.getPart(), lines = rows.left();
  Columns ofWarp = columnsOf(output, lines);
  auto [column, columns, lseLines] = ofWarp;
  auto partialRow = [&](Value line) { return b.add(b.add(part, rows.first()), line); };
  Value isPart = b.compare(arith::CmpIPredicate::sge, part, b.i32(0));
  Type element = getElementTypeOrSelf(write.getOutput());
  Value outBuffer = b.buffer("o", element), partBuffer = planArray(b, PlanArray::PartialO),
        partLse = planArray(b, PlanArray::PartialLse);
  auto branch = scf::IfOp::create(b, isPart, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  storeLines(output, partBuffer, lines, column, columns, form.getValueDim(), partialRow);
  storeLines(lse, partLse, lseLines, Value(), IntegerAttr(), 1, partialRow);
  b.setInsertionPoint(branch.elseYield());
  if (Value gate = write.getGate())
    output = gated(output, gate, rows, ofWarp);
  Value scales;
  if (write.getOutputScales()) {
    scales = scalesOf(output, ofWarp);
    Value factors = b.map(cast<FragmentType>(scales.getType()), scales,
                          [&](ValueRange v) { return inverseScale(b, v[0]); });
    output = b.map(cast<FragmentType>(output.getType()), ValueRange{output, factors},
                   [&](ValueRange v) { return scaledOutput(b, v[0], v[1]); });
  } else if (Value scale = write.getOutputScale()) {
    Value factor = inverseScale(b, readScale(b, scale));
    output = b.map(cast<FragmentType>(output.getType()), output,
                   [&](ValueRange v) { return scaledOutput(b, v[0], factor); });
  }
  if (schedule.storesResultsByTma()) {
    // Warpgroups sync at named barriers after those of ping-pong.
    Value barrier = b.add(b.i32(1 + schedule.getConsumers()), b.div(rows.group(), ScheduleAttr::groupRows));
    tmaStoreOutput(b, form, rows, output, rows.copy(Copy::Query), rows.group(), barrier);
  } else {
    storeLines(output, outBuffer, lines, column, columns, 1,
               [&](Value line) { return rows.outputIndex(b.add(rows.first(), line), element); });
  }
  auto slotOf = [&](Value line) { return rows.slotOfLine(line); };
  if (write.getLse())
    storeLines(lse, b.buffer("lse", b.getF32Type()), lseLines, Value(), IntegerAttr(), 1, slotOf);
  if (scales)
    storeLines(scales, b.buffer(outputScales, b.getF32Type()), lseLines, Value(), IntegerAttr(), 1, slotOf);
}

//===- ExpandOnLanes.cpp - Online operations on one row -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Kernel/PlanAccess.h"
#include "AttnToTile/Kernel/RowFold.h"
#include "Gate.h"
#include "OnlineModels.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

LaneExpansion::LaneExpansion(StateType type, func::FuncOp kernel)
    : b(kernel), dim(type.getValueDim()), partsAtOnce(tile::mergeScheduleAttr.get(kernel).getParts()),
      slices(tile::mergeScheduleAttr.get(kernel).getSlices()) {
  b.setInsertionPointToStart(&kernel.front());
  lane = LaneIdOp::create(b, b.getI32Type());
  leads = b.compare(arith::CmpIPredicate::eq, lane, b.i32(0));
  Value first = b.mul(lane, b.i32(4));
  if (slices > 1) { // a block has whole rows
    Value slice = b.rem(WarpIdOp::create(b, b.getI32Type()), slices);
    leads = arith::AndIOp::create(b, leads, b.compare(arith::CmpIPredicate::eq, slice, b.i32(0)));
    first = b.add(first, b.mul(slice, b.i32(chunks() * 128)));
  }
  for (int64_t chunk = 0; chunk < chunks(); ++chunk) {
    columns.push_back(b.add(first, b.i32(chunk * 128)));
    wideColumns.push_back(b.wide(columns.back()));
  }
}

LogicalResult mlir::attn::expandOnLanes(InitOp init, LaneExpansion &e) {
  if (init.getSinks())
    return init.emitOpError("has no form where a warp holds one row: sinks are counted where rows begin");
  SmallVector<Value> empty(4 * e.chunks() + 2, e.b.f32(0)); // max, sum, columns
  empty[0] = e.b.f32(-infinity);
  become(e.b, init.getState(), empty);
  return success();
}

/// A stored state stands for its number, its LSE and the count of states until it is merged.
LogicalResult mlir::attn::expandOnLanes(StoredOp stored, LaneExpansion &e) {
  become(e.b, stored.getState(), {stored.getNumber(), stored.getLse(), stored.getCount()});
  return success();
}

/// The element at which a stored state begins.
static Value originOf(LaneExpansion &e, Value number, Value which) {
  return e.b.mul(e.b.wide(FromLaneOp::create(e.b, number, which)), e.b.i64(e.dim));
}

/// Reads this lane's columns of a stored state.
static SmallVector<Value> readStored(LaneExpansion &e, Value origin) {
  KernelBuilder &b = e.b;
  Type f32 = b.getF32Type();
  Value partO = planArray(b, PlanArray::PartialO);
  SmallVector<Value> values;
  for (int64_t c = 0; c < e.chunks(); ++c) {
    // Lanes past the last column read that column again and drop the result.
    Value safe = e.isRagged(c) ? b.wide(b.min(e.columns[c], b.i32(e.dim - 4))) : e.wideColumns[c];
    auto read = ReadAdjacentOp::create(b, SmallVector<Type>(4, f32), partO, b.add(origin, safe));
    llvm::append_range(values, read.getValues());
  }
  return values;
}

/// Adds the columns of `count` stored states to `columns`, each times its weight. The lane with a state's
/// number holds its weight.
static SmallVector<Value> addStored(LaneExpansion &e, Value number, Value weight, Value count,
                                    ValueRange columns) {
  KernelBuilder &b = e.b;
  auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(1), columns);
  tile::unrollAttr.set(loop, b.getI64IntegerAttr(e.partsAtOnce)); // a round costs one latency
  OpBuilder::InsertionGuard inner(b);
  b.setInsertionPointToStart(loop.getBody());
  Value which = loop.getInductionVar();
  Value origin = originOf(e, number, which);
  Value share = FromLaneOp::create(b, weight, which);
  SmallVector<Value> sums;
  for (auto [value, sum] : llvm::zip(readStored(e, origin), loop.getRegionIterArgs()))
    sums.push_back(math::FmaOp::create(b, value, share, sum));
  scf::YieldOp::create(b, sums);
  return SmallVector<Value>(loop.getResults());
}

/// Folds `count` stored states, one after the other, with the LSE and the columns of those before.
static SmallVector<Value> foldStored(LaneExpansion &e, Value number, Value lse, Value count,
                                     ValueRange before) {
  KernelBuilder &b = e.b;
  auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(1), before);
  // Factors are in registers beside the parts.
  tile::unrollAttr.set(loop, b.getI64IntegerAttr(std::max<int64_t>(e.partsAtOnce / 2, 1)));
  OpBuilder::InsertionGuard inner(b);
  b.setInsertionPointToStart(loop.getBody());
  Value which = loop.getInductionVar();
  SmallVector<Value> part = readStored(e, originOf(e, number, which));
  SmallVector<Value> factors = foldLse(b, loop.getRegionIterArg(0), FromLaneOp::create(b, lse, which));
  SmallVector<Value> next{factors[2]};
  for (auto [value, soFar] : llvm::zip(part, loop.getRegionIterArgs().drop_front()))
    next.push_back(foldOutput(b, soFar, factors[0], value, factors[1]));
  scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

/// Merges with stored states. They are stored as outputs and LSEs, so their sums are 1 in their units.
LogicalResult mlir::attn::expandOnLanes(MergeOp merge, LaneExpansion &e) {
  KernelBuilder &b = e.b;
  Type f32 = b.getF32Type();
  if (piecesOf(merge.getRhs()).size() != 3)
    return merge.emitOpError("expected stored states as the other side where a warp holds one row");
  SmallVector<Value> state(piecesOf(merge.getLhs()));
  ValueRange stored = piecesOf(merge.getRhs());
  Value number = stored[0], count = stored[2];
  Value lse = b.select(b.less(e.lane, count), stored[1], b.f32(-infinity));
  if (numericsAttr.isOn(b.kernel)) { // the LSE is the maximum, and outputs are normalised
    SmallVector<Value> before(state);
    before.erase(before.begin() + 1);
    SmallVector<Value> next = foldStored(e, number, lse, b.min(count, b.i32(32)), before);
    next.insert(next.begin() + 1, state[1]);
    become(b, merge.getResult(), next);
    return success();
  }
  Value max = arith::MaxNumFOp::create(b, state[0], ReduceLanesOp::create(b, f32, Combine::Max, lse));
  Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, max, b.f32(-infinity));
  Value base = b.select(nothing, b.f32(0), max);
  auto relative = [&](Value value) -> Value {
    Value distance = arith::SubFOp::create(b, value, base);
    return math::Exp2Op::create(b, arith::MulFOp::create(b, distance, b.f32(log2e)));
  };
  Value weight = relative(lse), decay = relative(state[0]);
  Value sum = math::FmaOp::create(b, state[1], decay, ReduceLanesOp::create(b, f32, Combine::Add, weight));
  SmallVector<Value> columns;
  for (Value column : ArrayRef(state).drop_front(2))
    columns.push_back(arith::MulFOp::create(b, column, decay));
  SmallVector<Value> next{max, sum};
  llvm::append_range(next, addStored(e, number, weight, b.min(count, b.i32(32)), columns));
  become(b, merge.getResult(), next);
  return success();
}

LogicalResult mlir::attn::expandOnLanes(FinishOp finish, LaneExpansion &e) {
  KernelBuilder &b = e.b;
  SmallVector<Value> state(piecesOf(finish.getState()));
  Value max = state[0], sum = state[1];
  if (numericsAttr.isOn(b.kernel)) {
    become(b, finish.getOutput(), ArrayRef(state).drop_front(2));
    if (finish.getLse())
      become(b, finish.getLse(), max);
    return success();
  }
  Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, sum, b.f32(0)); // a NaN counts as some
  Value inverse = b.select(some, ReciprocalOp::create(b, sum), b.f32(0));
  SmallVector<Value> output;
  for (Value column : ArrayRef(state).drop_front(2))
    output.push_back(arith::MulFOp::create(b, column, inverse));
  become(b, finish.getOutput(), output);
  if (Value lse = finish.getLse()) {
    Value log = arith::MulFOp::create(b, math::Log2Op::create(b, sum), b.f32(1 / log2e));
    become(b, lse, b.select(some, arith::AddFOp::create(b, max, log), b.f32(-infinity)));
  }
  return success();
}

/// Multiplies this lane's columns of a row by the sigmoid of the gate.
static void gateColumns(LaneExpansion &e, mlir::attn::WriteOp write, Value row,
                        MutableArrayRef<Value> columns) {
  KernelBuilder &b = e.b;
  auto type = cast<RankedTensorType>(write.getGate().getType());
  Type element = type.getElementType();
  StringRef name = argumentName(write.getGate());
  Value buffer = b.buffer(name, element);
  if (type.getRank() == 2) {
    Value factor = sigmoid(b, b.read(buffer, write.getRow()));
    for (Value &column : columns)
      column = gatedOutput(b, column, factor);
    return;
  }
  Value begin = b.stridedSlot(name, row, b.i32(0), type.getDimSize(1), element.getIntOrFloatBitWidth() / 8,
                              b.getI64Type());
  for (int64_t c = 0; c < e.chunks(); ++c) {
    Value safe = e.isRagged(c) ? b.wide(b.min(e.columns[c], b.i32(e.dim - 4))) : e.wideColumns[c];
    auto read = ReadAdjacentOp::create(b, SmallVector<Type>(4, element), buffer, b.add(begin, safe));
    for (int64_t i = 0; i < 4; ++i)
      columns[4 * c + i] = gatedOutput(b, columns[4 * c + i], sigmoid(b, read.getValues()[i]));
  }
}

LogicalResult mlir::attn::expandOnLanes(WriteOp write, LaneExpansion &e) {
  KernelBuilder &b = e.b;
  Value row = write.getRow();
  if (!row)
    return write.emitOpError("expected a row of the output where a warp holds one");
  SmallVector<Value> output(piecesOf(write.getOutput()));
  auto type = cast<RankedTensorType>(write.getOutput().getType());
  Type element = type.getElementType();
  Value narrow = b.createOrFold<arith::TruncIOp>(b.getI32Type(), row);
  if (write.getGate())
    gateColumns(e, write, narrow, output);
  Value scale;
  if (write.getOutputScales()) {
    Value largest; // lanes without columns have those of others
    for (Value column : output) {
      Value size = math::AbsFOp::create(b, column);
      largest = largest ? arith::MaxNumFOp::create(b, largest, size).getResult() : size;
    }
    scale = scaleOfLargest(b, ReduceLanesOp::create(b, b.getF32Type(), Combine::Max, largest));
  } else if (Value given = write.getOutputScale()) {
    scale = readScale(b, given);
  }
  if (scale) {
    Value factor = inverseScale(b, scale);
    for (Value &column : output)
      column = scaledOutput(b, column, factor);
  }
  Value begin = b.stridedSlot("o", narrow, b.i32(0), type.getDimSize(1), element.getIntOrFloatBitWidth() / 8,
                              b.getI64Type());
  for (int64_t c = 0; c < e.chunks(); ++c) {
    auto writeChunk = [&] {
      WriteAdjacentOp::create(b, ArrayRef(output).slice(4 * c, 4), b.buffer("o", element),
                              b.add(begin, e.wideColumns[c]));
    };
    if (!e.isRagged(c)) {
      writeChunk();
      continue;
    }
    auto guarded = scf::IfOp::create(b, b.less(e.columns[c], b.i32(e.dim)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(guarded.thenYield());
    writeChunk();
  }
  Value lse = write.getLse();
  if (lse || write.getOutputScales()) {
    auto once = scf::IfOp::create(b, e.leads);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(once.thenYield());
    if (lse)
      tile::WriteOp::create(b, piecesOf(lse)[0], b.buffer("lse", b.getF32Type()), row);
    if (write.getOutputScales())
      tile::WriteOp::create(b, scale, b.buffer(outputScales, b.getF32Type()), row);
  }
  return success();
}

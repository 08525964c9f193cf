//===- FragmentExpansion.cpp - Rows, units and results of fragments --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "Expansion.h"
#include "ScoreBound.h"
#include "ScoreRegion.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// In log2. A sum of 2^31 exponentials of such scores is a number of f32, and each of them one of bf16.
static constexpr double fixedUnitBound = 80;

void FragmentExpansion::computeConstants() {
  if (chain.holdsTokens()) {
    Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(schedule.getProducerWarps()));
    warpToken = b.mul(warp, b.i32(keys));
    groupToken = b.mul(b.div(warp, ScheduleAttr::groupWarps), b.i32(ScheduleAttr::groupRows));
  }
  if (!foldsScales()) // else when the task's head is known
    setUnits();
  bool roomy = llvm::none_of(chain.updates, [](UpdateOp update) { // not so weights of codes, which are of f16
    return isa<CodesType>(update.getKv().getType().getValue());
  });
  // Beside wide outputs mma has no register for a unit that differs from 1; the running maximum has its
  // place.
  bool wide = schedule.getKind() == ScheduleKind::Mma && chain.valueDim() > 128;
  fixedUnit = roomy && !wide && !rawScores() &&
              elementOf(chain.element()).exponentBits >= elementOf(b.getF32Type()).exponentBits &&
              scoreBound(chain.updates.front().getScore().front()) * log2e <= fixedUnitBound;
}

void FragmentExpansion::setUnits(Value keyScale) {
  dotScale = keyScale ? arith::MulFOp::create(b, b.scale(), keyScale).getResult() : b.scale();
  scoreUnit = rawScores() ? dotScale : b.f32(lastFactor(chain.updates.front().getScore().front()));
  toLog2 = b.createOrFold<arith::MulFOp>(scoreUnit, b.f32(log2e));
}

void FragmentExpansion::readRows(RowsOp queryRows) {
  TaskView::setRows(queryRows);
  Type i32 = b.getI32Type();
  // Rows past the task's last repeat it: their positions must be readable, their results are dropped.
  auto positions = LoadVectorOp::create(b, rowsOf(i32), b.buffer("q_pos", i32));
  b.fill(positions.getIndex(), {i32}, [&](ValueRange line) { return unpack(packedRow(line[0])).first; });
  queryPosition = positions;
  queryHead = b.map(rowsOf(i32), ValueRange{CoordinatesOp::create(b, rowsOf(i32), b.i32(0))},
                    [&](ValueRange line) { return unpack(packedRow(line[0])).second; });
}

void FragmentExpansion::writeFirst(Results results) {
  Value lines = b.sub(packedCount, warpRow);
  auto store = [&](Value fragment, StringRef name, Type element, int64_t stride) {
    IntegerAttr columns = stride > 1 ? outputColumns() : IntegerAttr();
    auto op = StoreOp::create(b, fragment, b.buffer(name, element), lines, Value(), columns, stride);
    b.fill(op.getSlot(), {b.getI32Type()},
           [&](ValueRange line) { return slotOfRow(b.add(warpRow, line[0])); });
  };
  store(results.output, firstOutput, chain.element(), chain.valueDim());
  store(results.lse, firstLse, b.getF32Type(), 1);
}

void FragmentExpansion::writeResults(Results results, Value part, Value column, IntegerAttr columns,
                                     Value lseLines, function_ref<void(Value)> writeRows) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  auto [output, lse] = results;
  Value lines = b.sub(packedCount, warpRow);
  auto store = [&](Value fragment, Value buffer, Value lineCount, Value col, IntegerAttr cols, int64_t stride,
                   function_ref<Value(Value)> slot) {
    auto op = StoreOp::create(b, fragment, buffer, lineCount, col, cols, stride);
    b.fill(op.getSlot(), {i32}, [&](ValueRange line) { return slot(line[0]); });
  };
  auto partialRow = [&](Value line) { return b.add(b.add(part, warpRow), line); };
  auto rowSlot = [&](Value line) { return slotOfRow(b.add(warpRow, line)); };
  auto outIndex = [&](Value line) { return outputIndex(b.add(warpRow, line)); };
  Value isPart = b.compare(arith::CmpIPredicate::sge, part, b.i32(0));
  Value outBuffer = b.buffer("o", chain.element()), partBuffer = planArray(b, PlanArray::PartialO),
        partLse = planArray(b, PlanArray::PartialLse);
  auto branch = scf::IfOp::create(b, isPart, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  store(output, partBuffer, lines, column, columns, chain.valueDim(), partialRow);
  store(lse, partLse, lseLines, Value(), IntegerAttr(), 1, partialRow);
  b.setInsertionPoint(branch.elseYield());
  if (writeRows)
    writeRows(output);
  else
    store(output, outBuffer, lines, column, columns, 1, outIndex);
  if (chain.finish.getLse())
    store(lse, b.buffer("lse", f32), lseLines, Value(), IntegerAttr(), 1, rowSlot);
}

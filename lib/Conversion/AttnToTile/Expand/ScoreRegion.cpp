//===- ScoreRegion.cpp - Score regions of updates -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"

#include "AttnToTile/Kernel/LastFactor.h"
#include "AttnToTile/Kernel/ScoreTables.h"

#include "mlir/Analysis/SliceAnalysis.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

ScoreFnOp FragmentExpansion::scoreRegion(UpdateOp update, TypeRange types, Value scores, Value position,
                                         Value firstKey, ArrayRef<int64_t> reads) {
  Value head = copyOf(update.getQuery(), Copy::Head), pos0 = tokensOf(update.getKv()).getPos0();
  auto step =
      ScoreFnOp::create(b, types, scores, mmaScale(update.getQuery()), head, position, firstKey, pos0, reads);
  IRMapping mapping;
  update.getScore().cloneInto(&step.getScore(), mapping);
  OpBuilder::InsertionGuard guard(b);
  for (auto read : llvm::make_early_inc_range(step.getScore().getOps<mlir::attn::ReadOp>())) {
    b.setInsertionPoint(read);
    IRMapping here;
    for (Value index : read.getIndices())
      here.map(index, index);
    read.replaceAllUsesWith(readTable(b, read, here));
    read.erase();
  }
  return step;
}

Value FragmentExpansion::applyScoreRegion(UpdateOp update, Value scores, Value firstKey) {
  if (update.getScore().empty())
    return scores;
  ScoreFnOp step =
      scoreRegion(update, scores.getType(), scores, copyOf(update.getQuery(), Copy::Position), firstKey);
  dropLastFactor(step.getScore().front());
  return step.getResult(0);
}

Value FragmentExpansion::tablePlace(mlir::attn::ReadOp read, ValueRange headAndPosition) {
  IRMapping numbers;
  Block &region = *read->getBlock();
  numbers.map(region.getArgument(1), headAndPosition[0]);
  numbers.map(region.getArgument(2), headAndPosition[1]);
  SetVector<Operation *> before; // the operations that compute the indices
  BackwardSliceOptions ofRegion;
  ofRegion.inclusive = false;
  ofRegion.filter = [&](Operation *op) { return op->getBlock() == &region; };
  (void)getBackwardSlice(read.getOperation(), &before, ofRegion);
  for (Operation *op : before) {
    if (auto other = dyn_cast<mlir::attn::ReadOp>(op)) {
      numbers.map(other.getResult(), readTable(b, other, numbers));
      continue;
    }
    for (Value operand : op->getOperands())
      (void)inlined(b, operand, numbers);
    b.clone(*op, numbers);
  }
  return placeInTable(b, read, numbers);
}

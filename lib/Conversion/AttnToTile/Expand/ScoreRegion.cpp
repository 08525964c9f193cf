//===- ScoreRegion.cpp - Score regions of updates -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreRegion.h"
#include "Expansion.h"

#include "AttnToTile/Kernel/ConstantFactor.h"
#include "AttnToTile/Kernel/ScoreTables.h"

#include "mlir/Analysis/SliceAnalysis.h"

#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The last product, and what it multiplies.
static std::pair<arith::MulFOp, Value> lastProduct(Block &region, double &constant) {
  Value other;
  auto last = region.getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>();
  std::optional<double> found = last ? constantFactor(last, other) : std::nullopt;
  if (!found || !(*found > 0) || !std::isfinite(*found))
    return {};
  constant = *found;
  return {last, other};
}

double mlir::attn::lastFactor(Block &region) {
  double constant = 1;
  (void)lastProduct(region, constant);
  return constant;
}

void mlir::attn::dropLastFactor(Block &region) {
  double constant = 1;
  auto [product, other] = lastProduct(region, constant);
  if (!product)
    return;
  product.replaceAllUsesWith(other);
  product.erase();
}

ScoreFnOp FragmentExpansion::scoreRegion(UpdateOp update, TypeRange types, Value scores, Value firstKey,
                                         Value pos0, ArrayRef<int64_t> reads) {
  auto step = ScoreFnOp::create(b, types, scores, dotScale, queryHead, queryPosition, firstKey, pos0, reads);
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

Value FragmentExpansion::applyScoreRegion(UpdateOp update, Value scores, const Segment &segment,
                                          Value firstKey) {
  if (rawScores())
    return scores;
  ScoreFnOp step = scoreRegion(update, scores.getType(), scores, firstKey, segment.pos0);
  dropLastFactor(step.getScore().front());
  return step.getResult(0);
}

Value FragmentExpansion::tablePlace(mlir::attn::ReadOp read, ValueRange headAndPosition) {
  IRMapping numbers;
  Block &region = *read->getBlock();
  numbers.map(region.getArgument(1), headAndPosition[0]);
  numbers.map(region.getArgument(2), headAndPosition[1]);
  SetVector<Operation *> before; // what the indices are computed of
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

//===- GradientTile.cpp - A tile of rows and tokens, and gradients --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientTile.h"
#include "Log2.h"

#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Lines of a result of wgmma that a warp has.
static constexpr int64_t warpLines = 16;

TokensOp GradientTile::tokensOf(Value part) {
  if (auto staged = part.getDefiningOp<StagedOp>())
    part = staged.getPart();
  return part.getDefiningOp<TokensOp>();
}

Value GradientTile::slotOfToken(UpdateOp update, TokensOp tokens, Value line) {
  return TokenSlots(b, update).slotOf(tokens.getInstance(), e.kvHead, b.add(firstToken(tokens), line));
}

Value GradientTile::dotPairs(Value ofRows, Value ofTokens, bool lessDeltas) {
  Value lhs = held ? ofTokens : ofRows, rhs = held ? ofRows : ofTokens, begin;
  if (lessDeltas)
    begin = b.map(pairs(), e.rowDelta, [&](ValueRange v) -> Value { return arith::NegFOp::create(b, v[0]); });
  if (startsDots())
    return StartDotOp::create(b, pairs(), lhs, held ? e.groupToken : e.groupRow, rhs, Value(), begin);
  return DotOp::create(b, pairs(), lhs, held ? e.warpToken : e.warpRow, rhs, b.splat(b.f32(0), pairs()));
}

Value GradientTile::addDot(Value sum, Value ofPairs, Value other) {
  Value rounded = CastOp::create(b, pairs(e.chain.element()), ofPairs);
  if (startsDots())
    return StartDotOp::create(b, sum.getType(), rounded, Value(), other, Value(), sum);
  return DotOp::create(b, cast<FragmentType>(sum.getType()), rounded, Value(), other, sum);
}

/// Barriers at which the warps that compute meet: when they have exchanged gradients of scores, and when they
/// have multiplied those, so that others may take their place, and pieces are whole. That of the block is 0.
///
/// Where two tiles of gradients take turns, what is multiplied is overwritten two tiles later, and whoever
/// has come to `exchanged` meanwhile is done with it. A piece is its warpgroup's own: each has a barrier,
/// from `staged` on, at which its warps meet when it is whole. Which one is no constant, so ptxas counts all
/// sixteen barriers as used; there is one block.
static constexpr int64_t exchanged = 1, staged = 2;

Value GradientTile::startRowsPiece(Value scoreGradients, Value exchange, Value keys) {
  StageOp::create(b, scoreGradients, exchange, e.warpToken);
  FenceAsyncOp::create(b);
  FinishSendsOp::create(b); // of the tile before: all may write its place when all have met
  MeetOp::create(b, b.i32(exchanged), e.schedule.getWarps() * 32);
  FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {warpLines, pieceFeatures()}, b.getF32Type());
  if (!halvesRows())
    return StartDotOp::create(b, type, exchange, Value(), keys, firstFeature(), Value());
  auto whole = cast<SharedType>(exchange.getType());
  auto columns = SharedType::get(b.getContext(), Axis::Key, whole.getRows(), Axis::Query,
                                 ScheduleAttr::groupRows, whole.getElement(), false, 0);
  Value mine = OverlayOp::create(b, columns, exchange, b.mul(group(), b.i32(whole.getRows() / 2)));
  return StartDotOp::create(b, type, mine, Value(), keys, Value(), Value());
}

void GradientTile::addRowsPiece(Value piece, Value place) {
  // A warpgroup has 64 rows.
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(e.schedule.getProducerWarps()));
  Value first = b.mul(b.rem(warp, ScheduleAttr::groupWarps), b.i32(warpLines));
  auto type = cast<FragmentType>(piece.getType());
  Value firstRow = halvesRows() ? e.groupToken : b.i32(0);
  Value lines = CoordinatesOp::create(b, b.fragment({Axis::Query}, {warpLines}, b.getI32Type()),
                                      b.add(first, firstRow));
  // Behind the last are rows of others, to whom a NaN of these tokens is nothing.
  piece = b.map(type, ValueRange{piece, lines},
                [&](ValueRange v) -> Value { return b.select(b.less(v[1], e.packedCount), v[0], b.f32(0)); });
  auto whole = cast<SharedType>(place.getType());
  int64_t consumers = e.schedule.getConsumers();
  int64_t features = halvesRows() ? whole.getCols() : whole.getCols() / consumers;
  auto part = SharedType::get(b.getContext(), Axis::Query, ScheduleAttr::groupRows, Axis::Feature, features,
                              whole.getElement(), /*swizzled=*/false, /*boxes=*/0);
  Value mine = OverlayOp::create(b, part, place, b.mul(group(), b.i32(whole.getRows() / consumers)));
  StageOp::create(b, piece, mine, first);
  FenceAsyncOp::create(b);
  if (e.schedule.getExchanges() > 1)
    MeetOp::create(b, b.add(b.i32(staged), group()), ScheduleAttr::groupWarps * 32);
  else
    MeetOp::create(b, b.i32(staged), e.schedule.getWarps() * 32);
  auto one = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, first, b.i32(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenYield());
  constexpr int64_t panelBytes = 128;
  int64_t panels = llvm::divideCeil(part.getLineBytes(), panelBytes);
  e.sendSums(mine, firstRow, halvesRows() ? Value() : b.mul(group(), b.i32(panels)));
}

Value GradientTile::loadSums() {
  auto load = LoadSumsOp::create(b, accumulator(e.chain.paddedKeyDim()), b.buffer(rowSums, b.getF32Type()),
                                 b.sub(e.packedCount, e.warpRow), e.chain.paddedKeyDim());
  b.fill(load.getSlot(), {b.getI32Type()},
         [&](ValueRange line) { return e.slotOfRow(b.add(e.warpRow, line[0])); });
  return load;
}

SmallVector<Value> GradientTile::finish(ValueRange dots, int64_t pending) {
  if (!startsDots())
    return SmallVector<Value>(dots);
  return SmallVector<Value>(FinishDotsOp::create(b, dots.getTypes(), pending, dots).getResults());
}

Value GradientTile::weights(Value scores) {
  return b.map(pairs(), ValueRange{scores, e.rowLse}, [&](ValueRange v) -> Value {
    Value base = arith::NegFOp::create(b, v[1]);
    Value unit = e.rawScores() ? e.toLog2 : b.f32(log2e);
    return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], unit, base));
  });
}

Value GradientTile::scoreGradients(Value weights, Value products, Value slopes) {
  assert((e.rowDelta || !slopes) && "a score region's kernels read deltas");
  if (!e.rowDelta)
    return b.map(pairs(), {weights, products},
                 [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  SmallVector<Value> inputs{weights, products, e.rowDelta};
  if (slopes)
    inputs.push_back(slopes);
  return b.map(pairs(), inputs, [&](ValueRange v) -> Value {
    Value gradient = arith::MulFOp::create(b, v[0], arith::SubFOp::create(b, v[1], v[2]));
    return slopes ? timesSlope(gradient, v[0], v[3]) : gradient;
  });
}

Value GradientTile::timesSlopes(Value weights, Value slopes) {
  return b.map(pairs(), {weights, slopes},
               [&](ValueRange v) -> Value { return timesSlope(v[0], v[0], v[1]); });
}

Value GradientTile::timesSlope(Value number, Value weight, Value slope) {
  // A token that the row does not see may give the region any number, so its slope may be NaN.
  Value seen = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, weight, b.f32(0));
  return b.select(seen, arith::MulFOp::create(b, number, slope), b.f32(0));
}

void GradientTile::addEnds(VisibilityAttr visibility, Value position, int64_t &end,
                           SmallVectorImpl<Value> &ends) {
  if (visibility.getKind() == VisibilityKind::Sink) {
    ends.push_back(b.end(end++));
  } else if (VisibilityAttr::isSized(visibility.getKind())) {
    // Half the range of i32 is further than any context reaches; clamping keeps the difference in range.
    Value size = b.min(b.end(end++), b.i32(1 << 30));
    ends.push_back(b.sub(b.max(position, b.i32(-(1 << 30))), size));
  }
  for (VisibilityAttr part : visibility.getOperands())
    addEnds(part, position, end, ends);
}

SmallVector<Value> GradientTile::regionScores(UpdateOp update, TokensOp tokens, Value products,
                                              ArrayRef<TableRead> reads) {
  if (e.rawScores())
    return {products, Value()};
  Value token =
      CoordinatesOp::create(b, b.fragment({Axis::Key}, {e.keys}, b.getI32Type()), firstToken(tokens));
  SmallVector<Type> types(2 + reads.size(), pairs());
  return SmallVector<Value>(b.mapAll(
      types, {products, e.queryHead, e.queryPosition, token}, [&](ValueRange v) -> SmallVector<Value> {
        Value score = arith::MulFOp::create(b, v[0], e.dotScale), position = b.add(v[3], tokens.getPos0());
        return e.scoreAndSlopes(update.getScore().front(), {score, v[1], v[2], position}, reads);
      }));
}

Value GradientTile::seesAll(VisibilityAttr visibility, Value first, Value last, Value position,
                            ArrayRef<Value> &ends) {
  Value behind = b.add(last, b.i32(1)), all;
  bool isOr = visibility.getKind() == VisibilityKind::Or;
  if (!isOr && visibility.getKind() != VisibilityKind::And) {
    ArrayRef<Value> again = ends; // the terms are intervals
    Value sees = e.visible(visibility, first, position, behind, again);
    return b.createOrFold<arith::AndIOp>(sees, e.visible(visibility, last, position, behind, ends));
  }
  for (VisibilityAttr part : visibility.getOperands()) {
    Value sees = seesAll(part, first, last, position, ends);
    if (all)
      sees = isOr ? b.createOrFold<arith::OrIOp>(all, sees) : b.createOrFold<arith::AndIOp>(all, sees);
    all = sees;
  }
  return all;
}

Value GradientTile::masked(UpdateOp update, TokensOp tokens, std::optional<unsigned> operand, Value which,
                           Value scores) {
  if (!e.tokensFirst()) {
    Segment segment = TaskView::segmentOf(tokens);
    segment.operand = which;
    return e.maskScores(scores, operand, segment, firstToken(tokens));
  }
  // A token that there is not is behind what any row sees.
  constexpr int32_t behind = std::numeric_limits<int32_t>::max();
  Type i32 = b.getI32Type();
  FragmentType ofTokens = b.fragment({Axis::Key}, {e.keys}, i32);
  Value position =
      b.map(ofTokens, ValueRange{CoordinatesOp::create(b, ofTokens, firstToken(tokens))}, [&](ValueRange v) {
        return b.select(b.less(v[0], tokens.getEnd()), b.add(v[0], tokens.getPos0()), b.i32(behind));
      });
  auto endsOf = [&](Value row) {
    int64_t end = e.chain.firstEnd(*operand);
    SmallVector<Value> ends;
    addEnds(update.getVisibility(), row, end, ends);
    return ends;
  };
  Value first = b.add(firstToken(tokens), tokens.getPos0()), last = b.add(first, b.i32(e.keys - 1));
  Value hides = b.map(e.rowsOf(b.getI1Type()), ValueRange{e.queryPosition}, [&](ValueRange v) -> Value {
    SmallVector<Value> ends = endsOf(v[0]);
    ArrayRef<Value> left = ends;
    Value all = seesAll(update.getVisibility(), first, last, v[0], left);
    return b.createOrFold<arith::XOrIOp>(all, b.createOrFold<arith::ConstantIntOp>(1, 1));
  });
  Value tail = b.less(tokens.getEnd(), b.add(firstToken(tokens), b.i32(e.keys)));
  Value partial = b.createOrFold<arith::OrIOp>(tail, AnyOp::create(b, b.getI1Type(), hides));
  auto mask = MaskOp::create(b, pairs(), scores, ValueRange{position, e.queryPosition}, partial);
  b.fill(mask.getVisible(), {i32, i32}, [&](ValueRange v) -> Value {
    SmallVector<Value> ends = endsOf(v[1]);
    ArrayRef<Value> left = ends;
    return e.visible(update.getVisibility(), v[0], v[1], b.i32(behind), left);
  });
  return mask;
}

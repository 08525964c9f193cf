//===- GradientTile.cpp - A tile of rows and tokens, and gradients --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientTile.h"
#include "Log2.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Value GradientTile::weights(Value scores) {
  return b.map(pairs(), ValueRange{scores, e.rowLse}, [&](ValueRange v) -> Value {
    Value base = arith::NegFOp::create(b, v[1]);
    Value unit = e.rawScores() ? e.toLog2 : b.f32(log2e);
    return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], unit, base));
  });
}

Value GradientTile::scoreGradients(Value weights, Value products, Value slopes) {
  SmallVector<Value> inputs{weights, products, e.rowDelta};
  if (slopes)
    inputs.push_back(slopes);
  return b.map(pairs(), inputs, [&](ValueRange v) -> Value {
    Value gradient = arith::MulFOp::create(b, v[0], arith::SubFOp::create(b, v[1], v[2]));
    if (!slopes)
      return gradient;
    // Where nothing is seen a region has read anything, and its slope may be none.
    Value seen = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[0], b.f32(0));
    return b.select(seen, arith::MulFOp::create(b, gradient, v[3]), b.f32(0));
  });
}

Value GradientTile::sees(VisibilityAttr visibility, Value q, Value p, int64_t &end) {
  auto notLater = [&] { return b.compare(arith::CmpIPredicate::sle, p, q); };
  // Half the range of i32 is further than any context reaches; clamping keeps the difference in range.
  auto size = [&] { return b.min(b.end(end++), b.i32(1 << 30)); };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return b.createOrFold<arith::ConstantIntOp>(1, 1);
  case VisibilityKind::Causal:
    return notLater();
  case VisibilityKind::Window:
  case VisibilityKind::Recent: {
    Value first = b.sub(b.max(q, b.i32(-(1 << 30))), size());
    return b.createOrFold<arith::AndIOp>(b.compare(arith::CmpIPredicate::sgt, p, first), notLater());
  }
  case VisibilityKind::Sink:
    return b.less(p, b.end(end++));
  case VisibilityKind::Or:
  case VisibilityKind::And: {
    Value result;
    for (VisibilityAttr part : visibility.getOperands()) {
      Value seen = sees(part, q, p, end);
      if (!result)
        result = seen;
      else if (visibility.getKind() == VisibilityKind::Or)
        result = b.createOrFold<arith::OrIOp>(result, seen);
      else
        result = b.createOrFold<arith::AndIOp>(result, seen);
    }
    return result;
  }
  }
  llvm_unreachable("unknown visibility");
}

Value GradientTile::isPartial(TokensOp tokens) {
  if (held)
    return b.createOrFold<arith::ConstantIntOp>(1, 1);
  // The plan knows which tokens every row of the task sees.
  Value last = b.add(tokens.getFirst(), b.i32(e.keys));
  return b.createOrFold<arith::OrIOp>(b.less(tokens.getFirst(), tokens.getFullBegin()),
                                      b.less(tokens.getFullEnd(), last));
}

std::pair<Value, Value> GradientTile::regionScores(UpdateOp update, TokensOp tokens, Value products) {
  if (e.rawScores())
    return {products, Value()};
  Value token =
      CoordinatesOp::create(b, b.fragment({Axis::Key}, {e.keys}, b.getI32Type()), firstToken(tokens));
  ResultRange results = b.mapAll(
      {pairs(), pairs()}, {products, e.queryHead, e.queryPosition, token},
      [&](ValueRange v) -> SmallVector<Value> {
        Value score = arith::MulFOp::create(b, v[0], e.dotScale), position = b.add(v[3], tokens.getPos0());
        auto [number, slope] = e.scoreAndSlope(update.getScore().front(), {score, v[1], v[2], position});
        return {number, slope};
      });
  return {results[0], results[1]};
}

Value GradientTile::masked(UpdateOp update, TokensOp tokens, Value scores) {
  Type i32 = b.getI32Type();
  int64_t end = e.chain.firstEnd(llvm::find(e.chain.updates, update) - e.chain.updates.begin());
  Value token = CoordinatesOp::create(b, b.fragment({Axis::Key}, {e.keys}, i32), firstToken(tokens));
  auto mask = MaskOp::create(b, pairs(), scores, ValueRange{token, e.queryPosition}, isPartial(tokens));
  b.fill(mask.getVisible(), {i32, i32}, [&](ValueRange v) -> Value {
    Value exists = b.less(v[0], tokens.getEnd());
    return b.createOrFold<arith::AndIOp>(
        exists, sees(update.getVisibility(), v[1], b.add(v[0], tokens.getPos0()), end));
  });
  return mask;
}

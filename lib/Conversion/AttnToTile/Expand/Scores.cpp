//===- Scores.cpp - Score regions in a kernel -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A score region is a function of one score. Here it becomes code for a whole
// tile of them. Beside the dots a Hopper multiprocessor has time for some ten
// instructions per score, and the softmax takes five; so three things are done
// that make a soft cap, c * tanh(s / c), cheap:
//
// Constant factors cost nothing. Those in front merge with the scale, and one at
// the end becomes the unit in which the softmax gets its scores. Other products are
// what they say, rounded: they may decide what to_int or a comparison gives.
//
// tanh has a short form near 0. Computed exactly it takes two of the slow
// instructions of the special-function unit where the exponential of the softmax
// is one. But a cap is there for the few scores that run away; nearly all
// arguments are small. Where all those of a warp's tile lie within shortRange, an
// odd polynomial serves, as exact as the long form; its coefficients have taken in
// the factors, so it costs six instructions. Any other tile takes the long form.
// `fastmath<afn>` asks for the hardware's tanh.approx instead, and gets it.
//
// Scores below the cap need no maximum. Where sums of their exponentials cannot leave
// f32, and weights are bf16, which has its range, the softmax keeps none (ScoreBound.h
// finds the cap, softmax does without).
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Constant factors of scores, the region's own and ours, may become one.
static constexpr auto mergesFactors = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;

/// tanh x = x P(x^2), minimax within shortRange: absolute error 1.3e-7. Highest power first.
static constexpr double shortRange = 0.5;
static constexpr double shortTanh[] = {-0.0433724834, 0.1314514565, -0.3332065522, 0.9999976762};

/// Seventh powers of factors from here to its reciprocal are numbers of f32.
static constexpr double leastFactor = 0x1p-16;

/// The constant of a product with one, if it is one.
static std::optional<double> constantFactor(arith::MulFOp product, Value &other) {
  for (auto [factor, rest] :
       {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
    FloatAttr constant;
    if (!matchPattern(factor, m_Constant(&constant)))
      continue;
    other = rest;
    return constant.getValueAsDouble();
  }
  return std::nullopt;
}

/// Whether a product is a constant times the score, or times such a product: a factor in front.
static bool scalesScore(Value value, Value score) {
  Value other = value;
  while (auto product = other.getDefiningOp<arith::MulFOp>())
    if (!constantFactor(product, other))
      return false;
  return other == score;
}

/// Whether nothing but the region's result is made of a product, by other constant factors: one at the end.
static bool scalesResult(arith::MulFOp product) {
  for (Operation *op = product; op->hasOneUse(); op = *op->user_begin()) {
    if (isa<mlir::attn::YieldOp>(*op->user_begin()))
      return true;
    Value other;
    auto next = dyn_cast<arith::MulFOp>(*op->user_begin());
    if (!next || !constantFactor(next, other))
      return false;
  }
  return false;
}

/// Sets `form`. What does not differ from score to score is computed here, in front of the loops
/// over tiles.
void FragmentExpansion::readScoreRegion() {
  form = ScoreForm();
  if (rawScores())
    return;
  // All updates of a chain come from one attend: they have the same score region.
  Block &block = chain.updates.front().getScore().front();
  Value other;
  for (auto product : block.getOps<arith::MulFOp>())
    if (auto constant = constantFactor(product, other); constant && other == block.getArgument(0))
      form.factors[product] = arith::MulFOp::create(b, dotScale, b.f32(*constant), mergesFactors);
  if (auto last = block.getTerminator()->getOperand(0).getDefiningOp<arith::MulFOp>())
    if (auto constant = constantFactor(last, other); constant && *constant > 0 && std::isfinite(*constant))
      form.unit = last, form.unitValue = *constant;
  for (auto tanh : block.getOps<math::TanhOp>())
    if (Value factor = form.factors.lookup(tanh.getOperand().getDefiningOp());
        factor && !arith::bitEnumContainsAny(tanh.getFastmath(), arith::FastMathFlags::afn))
      form.tanh = tanh, form.tanhFactor = factor;
  if (!form.tanh)
    return;
  Value square = arith::MulFOp::create(b, form.tanhFactor, form.tanhFactor), power = form.tanhFactor;
  for (double coefficient : llvm::reverse(shortTanh)) {
    form.coefficients.insert(form.coefficients.begin(), arith::MulFOp::create(b, power, b.f32(coefficient)));
    power = arith::MulFOp::create(b, power, square);
  }
}

/// The score region's result in units of scoreUnit, from the dot's result, head and positions.
Value FragmentExpansion::score(ValueRange arguments, bool shortForm) {
  IRMapping mapping;
  Block &block = chain.updates.front().getScore().front();
  mapping.map(block.getArguments().drop_front(), arguments.drop_front());
  Value raw = arguments.front();
  mapping.map(block.getArgument(0), arith::MulFOp::create(b, raw, dotScale, mergesFactors));
  auto inside = [&](Value value) -> Value {
    if (Value mapped = mapping.lookupOrNull(value))
      return mapped;
    Operation *constant = value.getDefiningOp(); // defined outside: only constants and arguments are
    Value copy = b.clone(*constant)->getResult(cast<OpResult>(value).getResultNumber());
    mapping.map(value, copy);
    return copy;
  };
  for (Operation &op : block.without_terminator()) {
    if (&op == form.unit) {
      Value other;
      (void)constantFactor(cast<arith::MulFOp>(op), other);
      mapping.map(op.getResult(0), inside(other));
    } else if (Value factor = form.factors.lookup(&op)) {
      mapping.map(op.getResult(0), arith::MulFOp::create(b, raw, factor, mergesFactors));
    } else if (shortForm && &op == form.tanh) {
      Value square = arith::MulFOp::create(b, raw, raw), sum = form.coefficients.front();
      for (Value coefficient : ArrayRef(form.coefficients).drop_front())
        sum = math::FmaOp::create(b, sum, square, coefficient);
      mapping.map(op.getResult(0), arith::MulFOp::create(b, raw, sum));
    } else if (auto read = dyn_cast<mlir::attn::ReadOp>(op)) {
      mapping.map(read.getResult(), readTensor(read, inside));
    } else {
      for (Value operand : op.getOperands())
        (void)inside(operand);
      Operation *copy = b.clone(op, mapping);
      auto product = dyn_cast<arith::MulFOp>(op);
      if (product && (scalesScore(product, block.getArgument(0)) || scalesResult(product)))
        cast<arith::MulFOp>(copy).setFastmath(product.getFastmath() | mergesFactors);
    }
  }
  return inside(block.getTerminator()->getOperand(0));
}

Value FragmentExpansion::readTensor(mlir::attn::ReadOp read, function_ref<Value(Value)> inside) {
  Type element = cast<RankedTensorType>(read.getTensor().getType()).getElementType();
  Value index = elementIndex(read, inside);
  return b.read(b.buffer(argumentName(read.getTensor()), element), index);
}

/// Row-major; each index is clamped into its extent.
Value FragmentExpansion::elementIndex(mlir::attn::ReadOp read, function_ref<Value(Value)> inside) {
  auto type = cast<RankedTensorType>(read.getTensor().getType());
  StringRef name = argumentName(read.getTensor());
  Value index = b.i64(0);
  for (auto [d, i] : llvm::enumerate(read.getIndices())) {
    Value extent =
        type.isDynamicDim(d) ? b.dimension((name + ".dim" + Twine(d)).str()) : b.i32(type.getDimSize(d));
    Value clamped = b.max(b.min(inside(i), b.add(extent, b.i32(-1))), b.i32(0));
    index = b.add(b.mul(index, b.wide(extent)), b.wide(clamped));
  }
  return index;
}

Value FragmentExpansion::applyScoreRegion(Value scores, const Segment &segment, Value firstKey) {
  if (rawScores())
    return scores;
  Value token = CoordinatesOp::create(b, b.fragment({Axis::Key}, {keys}, b.getI32Type()), firstKey);
  auto apply = [&](bool shortForm) {
    return b.map(scoresType(), ValueRange{scores, queryHead, queryPosition, token},
                 [&](ValueRange v) -> Value {
                   return score({v[0], v[1], v[2], b.add(segment.pos0, v[3])}, shortForm);
                 });
  };
  if (!form.tanh)
    return apply(false);

  Value sizes = b.map(scoresType(), ValueRange{scores},
                      [&](ValueRange v) -> Value { return math::AbsFOp::create(b, v[0]); });
  Value largest = ReduceOp::create(b, rowsOf(b.getF32Type()), Combine::Max, sizes);
  // Coefficients of the short form have up to seven of the factors, which f32 must hold.
  Value size = math::AbsFOp::create(b, form.tanhFactor), outside;
  outside = b.createOrFold<arith::OrIOp>(
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, b.f32(leastFactor)),
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, size, b.f32(1 / leastFactor)));
  Value large = b.map(rowsOf(b.getI1Type()), ValueRange{largest}, [&](ValueRange v) -> Value {
    Value argument = arith::MulFOp::create(b, v[0], size);
    Value runs = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, argument, b.f32(shortRange));
    return arith::OrIOp::create(b, runs, outside);
  });
  auto branch = scf::IfOp::create(b, scoresType(), AnyOp::create(b, b.getI1Type(), large), true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, apply(false));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, apply(true));
  return branch.getResult(0);
}

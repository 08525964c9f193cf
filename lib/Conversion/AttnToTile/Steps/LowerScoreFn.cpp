//===- LowerScoreFn.cpp - Score regions on a tile -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A score region is a function of one score. Here it becomes code for a whole
// tile of scores. Beside the MMAs, a Hopper multiprocessor has time for some
// ten instructions per score, and the softmax takes five. So three things are
// done to make a soft cap, c * tanh(s / c), cheap:
//
// Constant factors before the score cost nothing: they merge with the scale. (A
// factor at the end has become the unit in which the softmax gets its scores.)
// Other products stay as they are, rounded: they may decide the result of
// to_int or of a comparison.
//
// tanh has a short form near 0. Computed exactly it takes two of the slow
// instructions of the special-function unit, where the exponential of the
// softmax takes one. But a cap exists for the few scores that run away; nearly
// all arguments are small. If all arguments of a warp's tile lie within
// shortRange, an odd polynomial is used, which is as exact as the long form.
// Its coefficients include the factors, so it costs six instructions. Any other
// tile takes the long form, and so does every tile under a numerics contract.
// `fastmath<afn>` asks for the hardware's tanh.approx instead, and gets it.
//
// Capped scores need no maximum. If sums of their exponentials cannot leave
// f32, and weights are bf16, which has its range, the softmax keeps none
// (ScoreBound.h finds the cap).
//
//===----------------------------------------------------------------------===//
#include "ScoreSlopes.h"
#include "StepLowering.h"

#include "AttnToTile/Kernel/ConstantFactor.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERSCOREFNPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Constant factors of scores, the region's own and the scale, may merge.
static constexpr auto mergesFactors = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;

/// tanh x = x P(x^2), minimax within shortRange: absolute error 1.3e-7. Highest power first.
static constexpr double shortRange = 0.5;
static constexpr double shortTanh[] = {-0.0433724834, 0.1314514565, -0.3332065522, 0.9999976762};

/// Seventh powers of factors between this one and its reciprocal fit f32.
static constexpr double leastFactor = 0x1p-16;

/// Whether a product is a constant times the score, or times such a product: a factor before the score.
static bool scalesScore(Value value, Value score) {
  Value other = value;
  while (auto product = other.getDefiningOp<arith::MulFOp>())
    if (!constantFactor(product, other))
      return false;
  return other == score;
}

/// Whether only constant factors stand between a product and the region's result: a factor at the end.
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

namespace {

/// Computes one score by the operations of a region.
class ScoreForm {
public:
  ScoreForm(KernelBuilder &b, ScoreFnOp op);

  /// The region's result for `arguments`: the product of a query and a key, head and positions.
  Value score(ValueRange arguments, bool shortForm);
  /// Whether a function of the region has a short form.
  bool hasShortForm() const { return tanh != nullptr; }
  /// Whether arguments of that function are too large for the short form, by the largest product of each row.
  Value leavesShortRange(Value largest);

private:
  void clone(Operation &op, IRMapping &numbers);

  KernelBuilder &b;
  Block &region;
  Value scale;
  DenseMap<Operation *, Value>
      factors;                     ///< of products of the score with a constant: scale and constant in one
  math::TanhOp tanh;               ///< the tanh with a short form; or null
  Value tanhFactor;                ///< its argument over the product
  SmallVector<Value> coefficients; ///< of the short form, in the product
};

ScoreForm::ScoreForm(KernelBuilder &b, ScoreFnOp op)
    : b(b), region(op.getScore().front()), scale(op.getScale()) {
  // Values that do not differ from score to score are computed after the scale: once, before loops.
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(scale);
  Value other;
  for (auto product : region.getOps<arith::MulFOp>())
    if (auto constant = constantFactor(product, other); constant && other == region.getArgument(0))
      factors[product] = arith::MulFOp::create(b, scale, b.f32(*constant), mergesFactors);
  for (auto each : region.getOps<math::TanhOp>())
    if (Value factor = factors.lookup(each.getOperand().getDefiningOp());
        factor && !arith::bitEnumContainsAny(each.getFastmath(), arith::FastMathFlags::afn))
      tanh = each, tanhFactor = factor;
  if (!tanh)
    return;
  Value square = arith::MulFOp::create(b, tanhFactor, tanhFactor), power = tanhFactor;
  for (double coefficient : llvm::reverse(shortTanh)) {
    coefficients.insert(coefficients.begin(), arith::MulFOp::create(b, power, b.f32(coefficient)));
    power = arith::MulFOp::create(b, power, square);
  }
}

Value ScoreForm::score(ValueRange arguments, bool shortForm) {
  IRMapping numbers;
  numbers.map(region.getArguments().drop_front(), arguments.drop_front());
  Value raw = arguments.front();
  numbers.map(region.getArgument(0), arith::MulFOp::create(b, raw, scale, mergesFactors));
  for (Operation &op : region.without_terminator()) {
    if (Value factor = factors.lookup(&op)) {
      numbers.map(op.getResult(0), arith::MulFOp::create(b, raw, factor, mergesFactors));
    } else if (shortForm && &op == tanh) {
      Value square = arith::MulFOp::create(b, raw, raw), sum = coefficients.front();
      for (Value coefficient : ArrayRef(coefficients).drop_front())
        sum = math::FmaOp::create(b, sum, square, coefficient);
      numbers.map(op.getResult(0), arith::MulFOp::create(b, raw, sum));
    } else {
      clone(op, numbers);
    }
  }
  return inlined(b, region.getTerminator()->getOperand(0), numbers);
}

void ScoreForm::clone(Operation &op, IRMapping &numbers) {
  for (Value operand : op.getOperands())
    (void)inlined(b, operand, numbers);
  Operation *copy = b.clone(op, numbers);
  auto product = dyn_cast<arith::MulFOp>(op);
  if (product && (scalesScore(product, region.getArgument(0)) || scalesResult(product)))
    cast<arith::MulFOp>(copy).setFastmath(product.getFastmath() | mergesFactors);
}

Value ScoreForm::leavesShortRange(Value largest) {
  // Coefficients of the short form have up to seven of the factors, which f32 must hold.
  Value size = math::AbsFOp::create(b, tanhFactor);
  Value outside = b.createOrFold<arith::OrIOp>(
      arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, size, b.f32(leastFactor)),
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, size, b.f32(1 / leastFactor)));
  Value large =
      b.map(fragmentOf(largest).withElement(b.getI1Type()), ValueRange{largest}, [&](ValueRange v) -> Value {
        Value argument = arith::MulFOp::create(b, v[0], size);
        Value runs = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, argument, b.f32(shortRange));
        return arith::OrIOp::create(b, runs, outside);
      });
  return AnyOp::create(b, b.getI1Type(), large);
}

struct LowerScoreFn : mlir::attn::impl::LowerScoreFnPassBase<LowerScoreFn> {
  void runOnOperation() override { lowered += lowerSteps<ScoreFnOp>(getOperation(), lower); }

  static SmallVector<Value> lower(ScoreFnOp op, KernelBuilder &b) {
    return op.getNumResults() == 1 ? SmallVector<Value>{lowerScores(op, b)} : lowerSlopes(op, b);
  }

  static Value tokensOf(ScoreFnOp op, KernelBuilder &b) {
    return CoordinatesOp::create(b, along(b, op.getScores().getType(), Axis::Key, b.getI32Type()),
                                 op.getFirst());
  }

  static Value lowerScores(ScoreFnOp op, KernelBuilder &b) {
    FragmentType type = op.getScores().getType();
    ScoreForm form(b, op);
    Value tokens = tokensOf(op, b);
    auto apply = [&](bool shortForm) {
      return b.map(type, ValueRange{op.getScores(), op.getHeads(), op.getPositions(), tokens},
                   [&](ValueRange v) -> Value {
                     return form.score({v[0], v[1], v[2], b.add(op.getPos0(), v[3])}, shortForm);
                   });
    };
    // Under a numerics contract other scores of the tile must not decide the form.
    if (!form.hasShortForm() || numericsAttr.isOn(b.kernel))
      return apply(false);
    Value sizes = b.map(type, ValueRange{op.getScores()},
                        [&](ValueRange v) -> Value { return math::AbsFOp::create(b, v[0]); });
    Value largest = ReduceOp::create(b, along(b, type, Axis::Query, b.getF32Type()), Combine::Max, sizes);
    auto branch = scf::IfOp::create(b, type, form.leavesShortRange(largest), true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(b, apply(false));
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, apply(true));
    return branch.getResult(0);
  }

  static SmallVector<Value> lowerSlopes(ScoreFnOp op, KernelBuilder &b) {
    Value tokens = tokensOf(op, b);
    return SmallVector<Value>(b.mapAll(
        op.getResultTypes(), {op.getScores(), op.getHeads(), op.getPositions(), tokens},
        [&](ValueRange v) -> SmallVector<Value> {
          Value score = arith::MulFOp::create(b, v[0], op.getScale());
          Value position = b.add(v[3], op.getPos0());
          return scoreAndSlopes(b, op.getScore().front(), {score, v[1], v[2], position}, op.getReads());
        }));
  }
};

} // namespace

//===- LowerSoftmaxStep.cpp - A step of the online softmax ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

#include "AttnToTile/Kernel/Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERSOFTMAXSTEPPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerSoftmaxStep : mlir::attn::impl::LowerSoftmaxStepPassBase<LowerSoftmaxStep> {
  void runOnOperation() override { lowered += lowerSteps<SoftmaxStepOp>(getOperation(), lower); }

  static SmallVector<Value> lower(SoftmaxStepOp op, KernelBuilder &b) {
    return op.getFixed() ? lowerFixed(op, b) : lowerMoving(op, b);
  }

  /// Lowers a step whose scores are bounded. Nothing can run away, so a row keeps its first unit for good: no
  /// maximum, no rescaling, and no exponential waits for the rest of its row.
  static SmallVector<Value> lowerFixed(SoftmaxStepOp op, KernelBuilder &b) {
    FragmentType ofRows = op.getMax().getType();
    Value unit = firstUnit(op, b);
    Value base = b.map(ofRows, ValueRange{unit}, [&](ValueRange v) -> Value {
      return arith::NegFOp::create(b, arith::MulFOp::create(b, v[0], op.getUnit()));
    });
    Value weights = weigh(op, base, b), ofTile = sum(op, weights, b);
    Value all = b.map(op.getSum().getType(), ValueRange{op.getSum(), ofTile},
                      [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
    return {unit, all, weights};
  }

  /// A 16-bit weight is exact if it is a power of two, and then the output of a row that sees one token is
  /// exact, too. For that, the unit needs only the fraction, in log2, of the largest score that the row sees
  /// first: it is as near to 1 as if it were 1 for all rows.
  static Value firstUnit(SoftmaxStepOp op, KernelBuilder &b) {
    FragmentType ofRows = op.getMax().getType();
    Value unit = op.getMax(), log2 = op.getUnit();
    Value none = b.map(ofRows.withElement(b.getI1Type()), ValueRange{unit}, [&](ValueRange v) -> Value {
      return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[0], b.f32(0));
    });
    auto branch = scf::IfOp::create(b, ofRows, AnyOp::create(b, b.getI1Type(), none), true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, unit);
    b.setInsertionPointToStart(branch.thenBlock());
    Value largest = ReduceOp::create(b, ofRows, Combine::Max, op.getScores());
    Value first = b.map(ofRows, ValueRange{unit, none, largest}, [&](ValueRange v) -> Value {
      constexpr double whole = 12582912; // 1.5 * 2^23: a sum with it is rounded to a whole number
      Value log = arith::MulFOp::create(b, v[2], log2);
      Value rounded = arith::SubFOp::create(b, arith::AddFOp::create(b, log, b.f32(whole)), b.f32(whole));
      Value fraction = arith::SubFOp::create(b, log, rounded);
      Value isWhole = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, fraction, b.f32(0));
      Value found = arith::DivFOp::create(b, b.select(isWhole, b.f32(1), fraction), log2);
      Value seen = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[2], b.f32(-infinity));
      Value begins = arith::AndIOp::create(b, v[1], seen);
      return b.select(begins, found, v[0]);
    });
    scf::YieldOp::create(b, first);
    return branch.getResult(0);
  }

  static SmallVector<Value> lowerMoving(SoftmaxStepOp op, KernelBuilder &b) {
    FragmentType ofRows = op.getMax().getType();
    Value scores = op.getScores(), lift = op.getLift();
    auto lifted = [&](Value x) -> Value {
      return b.map(cast<FragmentType>(x.getType()), ValueRange{x, lift},
                   [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
    };
    const bool liftsPairs = lift && isOfPairs(lift.getType());
    Value largest = op.getLargest();
    if (!largest)
      largest = ReduceOp::create(b, ofRows, Combine::Max, liftsPairs ? lifted(scores) : scores);
    if (lift && !liftsPairs)
      largest = lifted(largest);
    SmallVector<Type> types{ofRows, ofRows.withElement(b.getI1Type()), ofRows, ofRows};
    ResultRange unit = b.mapAll(types, ValueRange{op.getMax(), largest},
                                [&](ValueRange v) { return moveUnit(op, v[0], v[1], b); });
    Value max = unit[0], moved = unit[1], base = unit[2], decay = unit[3];
    Value weights = weigh(op, base, b), ofTile = sum(op, weights, b);
    Value all = b.map(op.getSum().getType(), ValueRange{op.getSum(), decay, ofTile},
                      [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[0], v[1], v[2]); });
    return {max, all, weights, decay, AnyOp::create(b, b.getI1Type(), moved)};
  }

  /// For one row, with the unit `old` and the tile's largest score `seen`: returns the unit, whether it
  /// moved, the base of the weights' exponents, and the decay.
  static SmallVector<Value> moveUnit(SoftmaxStepOp op, Value old, Value seen, KernelBuilder &b) {
    auto scaled = [&](Value x) -> Value { return arith::MulFOp::create(b, x, op.getUnit()); };
    Value growth = scaled(arith::SubFOp::create(b, seen, old));
    Value grows = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, growth, b.f32(op.getSlack()));
    Value max = b.select(grows, seen, old);
    // -inf - -inf must not become NaN in rows that have seen nothing yet.
    Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, max, b.f32(-infinity));
    Value center = b.select(nothing, b.f32(0), max);
    Value base = arith::NegFOp::create(b, scaled(center));
    // Subtract before scaling: if the maximum stays, the decay is exactly 1, however products are fused.
    Value decay = math::Exp2Op::create(b, scaled(arith::SubFOp::create(b, old, center)));
    return {max, grows, base, decay};
  }

  static Value weigh(SoftmaxStepOp op, Value base, KernelBuilder &b) {
    return b.map(op.getScores().getType(), ValueRange{op.getScores(), base}, [&](ValueRange v) -> Value {
      return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], op.getUnit(), v[1]));
    });
  }

  static Value sum(SoftmaxStepOp op, Value weights, KernelBuilder &b) {
    return ReduceOp::create(b, op.getSum().getType(), Combine::Add, weights);
  }
};

} // namespace

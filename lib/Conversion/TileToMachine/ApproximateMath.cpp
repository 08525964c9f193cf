//===- ApproximateMath.cpp - Transcendental functions of score regions ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The special-function unit computes 2^x, log2 x, 1/x and sqrt x to about 2^-22
// relative; all other functions are made from those. tanh is 1 - 2 / (2^(2x
// log2 e) + 1), with an absolute error of about 2e-7. It takes two such
// instructions, where the hardware's own tanh.approx takes one but is only good
// to 2^-11; `fastmath<afn>` asks for that.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;

template <typename OpT, Value (*emit)(Emitter &, ValueRange)> struct MathPattern : TilePattern<OpT> {
  using TilePattern<OpT>::TilePattern;
  LogicalResult matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    if (!op.getResult().getType().isF32())
      return rewriter.notifyMatchFailure(op, "only f32");
    Emitter e = this->emitter(op, rewriter);
    rewriter.replaceOp(op, emit(e, adaptor.getOperands()));
    return success();
  }
};

Value exp2(Emitter &e, ValueRange x) { return e.exp2(x[0]); }
Value exp(Emitter &e, ValueRange x) { return e.exp2(e.fmul(x[0], e.f32(log2e))); }
Value log2(Emitter &e, ValueRange x) { return e.log2(x[0]); }
Value log(Emitter &e, ValueRange x) { return e.fmul(e.log2(x[0]), e.f32(ln2)); }
Value sqrt(Emitter &e, ValueRange x) {
  return e.intrinsic("llvm.nvvm.sqrt.approx.ftz.f", e.b.getF32Type(), x);
}
Value abs(Emitter &e, ValueRange x) { return LLVM::FAbsOp::create(e.b, e.loc, x[0].getType(), x[0]); }
Value fma(Emitter &e, ValueRange x) { return LLVM::FMAOp::create(e.b, e.loc, x[0], x[1], x[2]); }

struct TanhPattern : TilePattern<math::TanhOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(math::TanhOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    if (!op.getType().isF32())
      return rewriter.notifyMatchFailure(op, "only f32");
    if (arith::bitEnumContainsAny(op.getFastmath(), arith::FastMathFlags::afn)) {
      rewriter.replaceOpWithNewOp<LLVM::TanhOp>(op, adaptor.getOperand(), LLVM::FastmathFlags::afn);
      return success();
    }
    Emitter e = emitter(op, rewriter);
    // The factors around the two functions merge with those of the score region.
    auto merges = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;
    auto multiply = [&](Value value, double factor) -> Value {
      return arith::MulFOp::create(rewriter, op.getLoc(), value, e.f32(factor), merges);
    };
    Value grown = e.exp2(multiply(adaptor.getOperand(), 2 * log2e));
    Value inverse = e.intrinsic("llvm.nvvm.rcp.approx.ftz.f", e.b.getF32Type(), e.fadd(grown, e.f32(1)));
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, multiply(inverse, -2), e.f32(1), merges);
    return success();
  }
};

} // namespace

void tile::populateApproximateMathPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                           const LaneMap &lanes) {
  patterns
      .add<MathPattern<math::Exp2Op, exp2>, MathPattern<math::ExpOp, exp>, MathPattern<math::Log2Op, log2>,
           MathPattern<math::LogOp, log>, MathPattern<math::SqrtOp, sqrt>, MathPattern<math::AbsFOp, abs>,
           MathPattern<math::FmaOp, fma>, TanhPattern>(converter, patterns.getContext(), lanes);
}

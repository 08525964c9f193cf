//===- ScoreSlopes.cpp - Score regions with their derivatives -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A backward pass computes a score region once more, and beside each number
// that depends on the score its slope: the derivative by the score, from
// operand to result. A number that does not depend on the score has no slope
// and costs nothing. A table whose gradient is asked for has slopes in the same
// way, by the element that is read instead of the score. Where a function has
// no derivative, its slope is that of the float64 reference: 0 for |x| at 0,
// and for a maximum of equals that of the first.
//
//===----------------------------------------------------------------------===//
#include "ScoreSlopes.h"

#include "AttnToTile/Kernel/Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// The numbers of one score, and the slopes of those that have one.
class Slopes {
public:
  Slopes(KernelBuilder &b, IRMapping &numbers) : b(b), numbers(numbers) {}

  void set(Value value, Value slope) { slopes[value] = slope; }
  /// The slope of a value; null: the value does not depend on the score.
  Value of(Value value) const { return slopes.lookup(value); }
  /// Adds the slope of an operation's result, whose number is known.
  void add(Operation &op) {
    if (Value slope = slopeOf(op))
      set(op.getResult(0), slope);
  }

private:
  Value slopeOf(Operation &op);
  Value slope(Operation &op, unsigned i) const { return of(op.getOperand(i)); }
  Value number(Operation &op, unsigned i) const { return numbers.lookupOrDefault(op.getOperand(i)); }
  static Value either(Value x, Value y) { return x ? x : y; }
  Value times(Value slope, Value factor) {
    return slope ? b.createOrFold<arith::MulFOp>(slope, factor) : Value();
  }
  Value over(Value slope, Value divisor) {
    return slope ? b.createOrFold<arith::DivFOp>(slope, divisor) : Value();
  }
  Value minus(Value slope) { return slope ? b.createOrFold<arith::NegFOp>(slope) : Value(); }
  Value plus(Value x, Value y) { return x && y ? b.createOrFold<arith::AddFOp>(x, y) : either(x, y); }
  /// The first slope if `first`, else the second.
  Value choose(Value first, Value x, Value y) {
    if (!x && !y)
      return {};
    Value zero = b.f32(0);
    return b.select(first, either(x, zero), either(y, zero));
  }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) {
    return b.createOrFold<arith::CmpFOp>(predicate, x, y);
  }

  KernelBuilder &b;
  IRMapping &numbers;
  DenseMap<Value, Value> slopes;
};

Value Slopes::slopeOf(Operation &op) {
  auto result = [&] { return numbers.lookup(op.getResult(0)); };
  auto squared = [&] { return b.createOrFold<arith::MulFOp>(result(), result()); };
  return llvm::TypeSwitch<Operation *, Value>(&op)
      .Case([&](arith::AddFOp) { return plus(slope(op, 0), slope(op, 1)); })
      .Case([&](arith::SubFOp) { return plus(slope(op, 0), minus(slope(op, 1))); })
      .Case([&](arith::MulFOp) {
        return plus(times(slope(op, 0), number(op, 1)), times(slope(op, 1), number(op, 0)));
      })
      .Case([&](arith::DivFOp) {
        return over(plus(slope(op, 0), minus(times(slope(op, 1), result()))), number(op, 1));
      })
      .Case([&](arith::NegFOp) { return minus(slope(op, 0)); })
      .Case<arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp>([&](auto) {
        Value isFirst = compare(arith::CmpFPredicate::OEQ, number(op, 0), result());
        return choose(isFirst, slope(op, 0), slope(op, 1));
      })
      .Case([&](arith::SelectOp) { return choose(number(op, 0), slope(op, 1), slope(op, 2)); })
      .Case([&](math::TanhOp) {
        return times(slope(op, 0), b.createOrFold<arith::SubFOp>(b.f32(1), squared()));
      })
      .Case([&](math::ExpOp) { return times(slope(op, 0), result()); })
      .Case([&](math::Exp2Op) { return times(times(slope(op, 0), result()), b.f32(ln2)); })
      .Case([&](math::LogOp) { return over(slope(op, 0), number(op, 0)); })
      .Case([&](math::Log2Op) { return over(times(slope(op, 0), b.f32(log2e)), number(op, 0)); })
      .Case([&](math::AbsFOp) {
        Value x = number(op, 0), zero = b.f32(0);
        Value below = choose(compare(arith::CmpFPredicate::OLT, x, zero), minus(slope(op, 0)), Value());
        return choose(compare(arith::CmpFPredicate::OGT, x, zero), slope(op, 0), below);
      })
      .Case([&](math::SqrtOp) { return over(times(slope(op, 0), b.f32(0.5)), result()); })
      .Case([&](math::FmaOp) {
        Value products = plus(times(slope(op, 0), number(op, 1)), times(slope(op, 1), number(op, 0)));
        return plus(products, slope(op, 2));
      })
      .Default(Value());
}

} // namespace

SmallVector<Value> mlir::attn::scoreAndSlopes(KernelBuilder &b, Block &region, ValueRange arguments,
                                              ArrayRef<int64_t> reads) {
  IRMapping numbers;
  numbers.map(region.getArguments(), arguments);
  SmallVector<Slopes> all; // by the score, and by the element of each read
  for (size_t i = 0; i <= reads.size(); ++i)
    all.emplace_back(b, numbers);
  all.front().set(region.getArgument(0), b.f32(1));
  int64_t readNumber = 0;
  for (Operation &op : region.without_terminator()) {
    for (Value operand : op.getOperands())
      (void)inlined(b, operand, numbers);
    b.clone(op, numbers);
    if (isa<tile::ReadOp>(op)) {
      for (auto [each, slopes] : llvm::zip(reads, llvm::drop_begin(all)))
        if (each == readNumber)
          slopes.set(op.getResult(0), b.f32(1));
      ++readNumber;
    }
    for (Slopes &slopes : all)
      slopes.add(op);
  }
  Value yielded = region.getTerminator()->getOperand(0);
  SmallVector<Value> found{inlined(b, yielded, numbers)};
  for (Slopes &slopes : all) {
    Value slope = slopes.of(yielded);
    found.push_back(slope ? slope : b.f32(0));
  }
  return found;
}

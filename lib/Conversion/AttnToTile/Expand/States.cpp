//===- States.cpp - States of sixteen rows ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

State FragmentExpansion::initialState() {
  Type f32 = b.getF32Type();
  return {b.splat(b.f32(fixedUnit ? 0 : -infinity), rowsOf(f32)),
          b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)), b.splat(b.f32(0), accType()),
          weighsIntegers() ? b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)) : Value()};
}

/// Sums may be shares of lanes: all of a row have the same unit.
State FragmentExpansion::mergeStates(const State &x, const State &y) {
  Type f32 = b.getF32Type();
  Value max = b.map(rowsOf(f32), ValueRange{x.max, y.max},
                    [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
  auto decay = [&](Value old) {
    return b.map(rowsOf(f32), ValueRange{old, max}, [&](ValueRange v) -> Value {
      Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[1], b.f32(-infinity));
      Value center = b.select(nothing, b.f32(0), v[1]);
      Value distance = arith::SubFOp::create(b, v[0], center);
      return math::Exp2Op::create(b, arith::MulFOp::create(b, distance, toLog2));
    });
  };
  Value decayOfX = decay(x.max), decayOfY = decay(y.max);
  auto weighted = [&](Value left, Value right) {
    return b.map(cast<FragmentType>(left.getType()), ValueRange{left, decayOfX, right, decayOfY},
                 [&](ValueRange v) -> Value {
                   return math::FmaOp::create(b, v[0], v[1], arith::MulFOp::create(b, v[2], v[3]));
                 });
  };
  Value zeros = x.zeros ? weighted(x.zeros, y.zeros) : Value();
  return {max, weighted(x.sum, y.sum), weighted(x.acc, y.acc), zeros};
}

Value FragmentExpansion::exchangeMemory() {
  int64_t bytes = schedule.getExchangeBytes(chain.paddedValueDim());
  AllocOp ring, last;
  for (auto alloc : b.kernel.front().getOps<AllocOp>()) {
    if (!ring && isa<RingType>(alloc.getMemory().getType()))
      ring = alloc;
    last = alloc;
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(last);
  return AllocOp::create(b, ScratchType::get(b.getContext(), bytes), ring, false, IntegerAttr());
}

/// Reads the sink's logit of each row, in log2. It is -inf where the task's rows do not count the sink.
Value FragmentExpansion::sinksInLog2(Value sinks, FragmentType rowType) {
  auto logits = LoadVectorOp::create(b, rowType, b.buffer(argumentName(sinks), b.getF32Type()));
  b.fill(logits.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return unpack(packedRow(line[0])).second; });
  return b.map(rowType, ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value scaled = arith::MulFOp::create(b, logit[0], b.f32(log2e));
    return b.select(sinkCounts, scaled, b.f32(-infinity));
  });
}

/// A sink is a token with a score and no value. It joins the sum here: as a row's unit it would leave weights
/// far below 1, and those of 16 bits would lose their digits.
FragmentExpansion::Results FragmentExpansion::finishState(Value max, Value sum, Value acc, Value sinks) {
  auto outType = cast<FragmentType>(acc.getType()), rowType = cast<FragmentType>(max.getType());
  // A sum that is NaN is something: it must reach the LSE, too, or that would depend on where keys were cut.
  auto isSome = [&](Value total) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, total, b.f32(0));
  };
  auto ofRow = [&](ValueRange v) -> SmallVector<Value> {
    Value unit = arith::MulFOp::create(b, v[0], toLog2), total = v[1], decay;
    if (sinks) {
      Value own = b.select(isSome(total), unit, b.f32(-infinity));
      unit = arith::MaxNumFOp::create(b, own, v[2]);
      Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, unit, b.f32(-infinity));
      Value center = b.select(nothing, b.f32(0), unit);
      decay = math::Exp2Op::create(b, arith::SubFOp::create(b, own, center));
      Value ofSink = math::Exp2Op::create(b, arith::SubFOp::create(b, v[2], center));
      total = math::FmaOp::create(b, total, decay, ofSink);
    }
    Value some = isSome(total), factor = ReciprocalOp::create(b, total);
    if (decay)
      factor = arith::MulFOp::create(b, factor, decay);
    if (valueScale)
      factor = arith::MulFOp::create(b, factor, valueScale);
    Value log = arith::AddFOp::create(b, unit, math::Log2Op::create(b, total));
    return {b.select(some, factor, b.f32(0)),
            b.select(some, arith::MulFOp::create(b, log, b.f32(ln2)), b.f32(-infinity))};
  };
  SmallVector<Value> ofRows{max, sum};
  if (sinks)
    ofRows.push_back(sinksInLog2(sinks, rowType));
  ResultRange rowResults = b.mapAll({rowType, rowType}, ofRows, ofRow);
  Value output = b.map(outType, ValueRange{acc, rowResults[0]},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  return {output, rowResults[1]};
}

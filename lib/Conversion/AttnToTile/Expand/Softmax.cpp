//===- Softmax.cpp - States of sixteen rows, and what a tile adds to them --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"
#include "Log2.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

State FragmentExpansion::initialState() {
  Type f32 = b.getF32Type();
  return {b.splat(b.f32(fixedUnit ? 0 : -infinity), rowsOf(f32)),
          b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)), b.splat(b.f32(0), accType()),
          weighsIntegers() ? b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)) : Value()};
}

/// A weight of 16 bits is exact where it is a power of two, and so is then the output of a row that sees one
/// token. For that a unit needs no more than the fraction of the largest score that the row sees first, in
/// log2: it is as near to 1 as if it were 1 for all rows. A unit of 0 says that the row has seen nothing yet.
Value FragmentExpansion::firstUnit(Value scores, Value unit) {
  Value none = b.map(rowsOf(b.getI1Type()), ValueRange{unit}, [&](ValueRange v) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[0], b.f32(0));
  });
  auto branch = scf::IfOp::create(b, rowsOf(b.getF32Type()), AnyOp::create(b, b.getI1Type(), none), true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, unit);
  b.setInsertionPointToStart(branch.thenBlock());
  Value largest = ReduceOp::create(b, rowsOf(b.getF32Type()), Combine::Max, scores);
  Value first = b.map(rowsOf(b.getF32Type()), ValueRange{unit, none, largest}, [&](ValueRange v) -> Value {
    constexpr double whole = 12582912; // 1.5 * 2^23: a sum with it is rounded to a whole number
    Value log = arith::MulFOp::create(b, v[2], toLog2);
    Value rounded = arith::SubFOp::create(b, arith::AddFOp::create(b, log, b.f32(whole)), b.f32(whole));
    Value fraction = arith::SubFOp::create(b, log, rounded);
    Value isWhole = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, fraction, b.f32(0));
    Value found = arith::DivFOp::create(b, b.select(isWhole, b.f32(1), fraction), toLog2);
    Value seen = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[2], b.f32(-infinity));
    Value begins = arith::AndIOp::create(b, v[1], seen);
    return b.select(begins, found, v[0]);
  });
  scf::YieldOp::create(b, first);
  return branch.getResult(0);
}

FragmentExpansion::Step FragmentExpansion::softmax(Value scores, const State &state, Value lift) {
  Type f32 = b.getF32Type();
  auto scaled = [&](Value x) -> Value { return arith::MulFOp::create(b, x, toLog2); };
  // Under a soft cap nothing can run away, so a row may keep its first unit for good: no maximum, nothing to
  // rescale, and no exponential waits for the rest of its row.
  if (fixedUnit) {
    Value unit = firstUnit(scores, state.max);
    Value base = b.map(rowsOf(f32), ValueRange{unit},
                       [&](ValueRange v) -> Value { return arith::NegFOp::create(b, scaled(v[0])); });
    Value weights = b.map(scoresType(), ValueRange{scores, base}, [&](ValueRange v) -> Value {
      return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], toLog2, v[1]));
    });
    Value tileSum = ReduceOp::create(b, rowsOf(f32, true), Combine::Add, weights);
    Value sum = b.map(rowsOf(f32, true), ValueRange{state.sum, tileSum},
                      [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
    return {unit, sum, Value(), Value(), weights};
  }
  Value tileMax = ReduceOp::create(b, rowsOf(f32), Combine::Max, scores);
  if (lift)
    tileMax = b.map(rowsOf(f32), ValueRange{tileMax, lift},
                    [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  // The maximum is a unit, not a result: it moves only when it would be more than 2^8 too small, so that what
  // was accumulated rarely needs rescaling. Weights stay below 2^8, which 16 bits hold as exactly as those
  // below 1.
  SmallVector<Type> types{rowsOf(f32), rowsOf(b.getI1Type()), rowsOf(f32), rowsOf(f32)};
  auto moveUnit = [&](ValueRange v) -> SmallVector<Value> {
    Value old = v[0], seen = v[1];
    Value growth = scaled(arith::SubFOp::create(b, seen, old));
    Value grows = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, growth, b.f32(8));
    Value max = b.select(grows, seen, old);
    // -inf - -inf must not become NaN in rows that have seen nothing yet.
    Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, max, b.f32(-infinity));
    Value center = b.select(nothing, b.f32(0), max);
    Value base = arith::NegFOp::create(b, scaled(center));
    // Subtract before scaling: where the maximum stays, the decay is 1 to the bit, however products are
    // fused.
    Value decay = math::Exp2Op::create(b, scaled(arith::SubFOp::create(b, old, center)));
    return {max, grows, base, decay};
  };
  ResultRange unit = b.mapAll(types, ValueRange{state.max, tileMax}, moveUnit);
  Value max = unit[0], grown = unit[1], base = unit[2], decay = unit[3];
  Value weights = b.map(scoresType(), ValueRange{scores, base}, [&](ValueRange v) -> Value {
    return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], toLog2, v[1]));
  });
  Value tileSum = ReduceOp::create(b, rowsOf(f32, true), Combine::Add, weights);
  Value sum = b.map(rowsOf(f32, true), ValueRange{state.sum, decay, tileSum},
                    [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[0], v[1], v[2]); });
  return {max, sum, decay, AnyOp::create(b, b.getI1Type(), grown), weights};
}

Value FragmentExpansion::rescale(Value acc, const Step &step) {
  if (fixedUnit)
    return acc;
  auto branch = scf::IfOp::create(b, accType(), step.moved, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value scaled = b.map(accType(), ValueRange{acc, step.decay},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  scf::YieldOp::create(b, scaled);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, acc);
  return branch.getResult(0);
}

Value FragmentExpansion::packWeights(Value weights, Type element) {
  FragmentType type = b.fragment({Axis::Query, Axis::Key}, {rows, keys}, element);
  return CastOp::create(b, type, weights);
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

//===- States.cpp - States of sixteen rows ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Kernel/RowFold.h"
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

State FragmentExpansion::initialState(Value rows) {
  Type f32 = b.getF32Type();
  double least = form.has(FormTraits::FixedUnit) ? 0 : -infinity;
  Value none = b.splat(b.f32(least), rowsOf(f32));
  // Lines past a task's last row have zeros for queries. Such a unit makes their weights zeros, too: products
  // with zeros take less power than products with ones. Most lines of few rows in a tile of 64 are such.
  if (form.getMmas() == Mmas::Wgmma && schedule.getConsumers() == 1 && !form.has(FormTraits::FixedUnit)) {
    Value left = RowsPart(b, form, rows).left(),
          lines = CoordinatesOp::create(b, rowsOf(b.getI32Type()), b.i32(0));
    none = b.map(rowsOf(f32), ValueRange{lines}, [&](ValueRange line) -> Value {
      return b.select(b.less(line[0], left), b.f32(least), b.f32(std::numeric_limits<float>::max()));
    });
  }
  auto zeros = [&](FragmentType type) { return b.splat(b.f32(0), type); };
  FragmentType shares = rowsOf(f32, /*partial=*/true);
  return {none, zeros(shares), zeros(accType()), form.getCodes() ? zeros(shares) : Value(), unitOf(rows)};
}

/// Sums may be shares of lanes, as all lanes of a row have the same unit.
State FragmentExpansion::mergeStates(const State &x, const State &y) {
  Type f32 = b.getF32Type();
  Value max = b.map(rowsOf(f32), ValueRange{x.max, y.max},
                    [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
  auto decay = [&](Value old) {
    return b.map(rowsOf(f32), ValueRange{old, max}, [&](ValueRange v) -> Value {
      Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[1], b.f32(-infinity));
      Value center = b.select(nothing, b.f32(0), v[1]);
      Value distance = arith::SubFOp::create(b, v[0], center);
      return math::Exp2Op::create(b, arith::MulFOp::create(b, distance, x.unit));
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
  return {max, weighted(x.sum, y.sum), weighted(x.acc, y.acc), zeros, x.unit};
}

/// Allocates the memory in which the warps of a block exchange their states; it overlays the rings.
Value FragmentExpansion::exchangeMemory() {
  AllocOp ring, last;
  for (auto alloc : b.kernel.front().getOps<AllocOp>()) {
    if (!ring && isa<RingType>(alloc.getMemory().getType()))
      ring = alloc;
    last = alloc;
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(last);
  int64_t bytes = schedule.getExchangeBytes(form.getValueTile());
  return AllocOp::create(b, ScratchType::get(b.getContext(), bytes), ring, false, IntegerAttr());
}

State FragmentExpansion::mergeWarps(const State &part) {
  Type f32 = b.getF32Type();
  Value warp = WarpIdOp::create(b, b.getI32Type());
  Value sum = CompleteOp::create(b, rowsOf(f32), part.sum);
  int64_t share = schedule.getColumnShare(form.getValueTile());
  int64_t rows = std::max<int64_t>(form.getRows(), 16); // merged results are stored as tiles of 16 rows
  FragmentType rowType = b.fragment({Axis::Query}, {rows}, f32);
  FragmentType shareType = b.fragment({Axis::Query, Axis::Feature}, {rows, share}, f32);
  SyncOp::create(b, Scope::Block); // the rings are free for the exchange
  auto merge = MergeWarpsOp::create(b, rowType, rowType, shareType, part.max, sum, part.acc, exchangeMemory(),
                                    part.unit, warp, b.getI64IntegerAttr(schedule.getWarps()));
  return {merge.getMergedMax(), merge.getMergedSum(), merge.getMergedAcc(), {}, part.unit};
}

Value FragmentExpansion::sinkLogitsOf(Value sinks, Value ofRows, FragmentType rowType, double factor) {
  RowsPart rows(b, form, ofRows);
  auto logits = LoadVectorOp::create(b, rowType, b.buffer(argumentName(sinks), b.getF32Type()));
  b.fill(logits.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return rows.unpack(rows.packedRow(line[0])).second; });
  return b.map(rowType, ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value scaled = factor == 1 ? logit[0] : arith::MulFOp::create(b, logit[0], b.f32(factor)).getResult();
    return b.select(rows.op.getSink(), scaled, b.f32(-infinity));
  });
}

/// A sink is a token with a score and no value. It joins the sum only here: as a row's unit it would leave
/// weights far below 1, and 16-bit weights would lose their digits.
FragmentExpansion::Results FragmentExpansion::finishState(FinishOp finish) {
  State state = stateOf(finish.getState());
  if (cast<FragmentType>(state.sum.getType()).getPartial())
    state.sum = CompleteOp::create(b, rowsOf(b.getF32Type()), state.sum);
  if (schedule.sharesWeights())
    state.sum = sumOfHalves(finish.getRows(), state.sum);
  auto outType = cast<FragmentType>(state.acc.getType()), rowType = cast<FragmentType>(state.max.getType());
  bool hasSinks = finish.getSinks() != nullptr;
  Value valueScale = copyOf(finish.getRows(), Copy::ValueScale);
  // A sum that is NaN counts as some: it must reach the LSE, too, or the LSE would depend on where keys were
  // cut.
  auto isSome = [&](Value total) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, total, b.f32(0));
  };
  auto ofRow = [&](ValueRange v) -> SmallVector<Value> {
    Value unit = arith::MulFOp::create(b, v[0], state.unit), total = v[1], decay;
    if (hasSinks) {
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
  SmallVector<Value> ofRows{state.max, state.sum};
  if (hasSinks)
    ofRows.push_back(sinkLogitsOf(finish.getSinks(), finish.getRows(), rowType, log2e));
  ResultRange rowResults = b.mapAll({rowType, rowType}, ofRows, ofRow);
  bool byRow = numericsAttr.isOn(b.kernel);
  Value output = b.map(outType, ValueRange{state.acc, rowResults[0]}, [&](ValueRange v) -> Value {
    return byRow ? partOutput(b, v[0], v[1]) : arith::MulFOp::create(b, v[0], v[1]).getResult();
  });
  return {output, rowResults[1]};
}

//===- SharedWeights.cpp - Halves of a tile are weighed apart -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An accumulator of 512 features is all that the registers of a warpgroup hold, so two warpgroups share their
// rows, and each accumulates half of the features. Each of them weighs one half of a tile's tokens, and reads
// the weights of the other half from shared memory. The place of the weights goes to and fro:
//
//   first warpgroup                       second warpgroup
//     S = Q front                           start S = Q behind
//     P = softmax(S)
//     leave P and units, arrive   ------>   wait
//     start O += P front                    start O += (first's P) front, finish S
//                                           P = softmax(S), finish O
//     wait                        <------   leave P and units, arrive
//     finish O, O += (second's P) behind    O += P behind
//
// While one computes its softmax, the other's MMAs are in flight. The branch on the warpgroup moves out of
// the loop over tiles (--tile-unswitch-loops). Both warpgroups have the same units, those of the row so far,
// and each has the sum of its own weights.
//
// Two warps that share rows do the same for quantized latents, whose conversions are their limit. They take
// no turns: both leave the largest scores of their half, sync, leave their weights, and sync.
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/Log2.h"
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Named barriers. The barrier of the block is 0. At the first two a warpgroup arrives when it has left its
/// weights, and its neighbour waits. At the third both wait when they exchange the sums of a task's rows.
constexpr int64_t firstLeft = 1, secondLeft = 2, sumsLeft = 3;
constexpr int64_t bothGroups = 2 * ScheduleAttr::groupWarps * 32;

/// The memory through which the warpgroups, or warps, of some rows exchange weights, sums and units. Places
/// of sums come before those of units, because a task's sums may lie over what warps keep until it ends.
class Exchange {
public:
  Exchange(FragmentExpansion &e, Value ofRows)
      : e(e), b(e.b), rows(e.b, e.form, ofRows), weights(copyOf(ofRows, Copy::Exchange)),
        units(copyOf(ofRows, Copy::Units)) {}

  Value placeOfSums(Value group) { return group; }
  Value placeOfUnits(Value group) { return b.add(b.i32(e.schedule.getSlices()), group); }
  /// Leaves and takes numbers of this warp's rows, at one of the tile's places.
  void leave(Value numbers, Value place) { StageOp::create(b, numbers, units, lineOf(place)); }
  Value take(Value place) {
    auto type = cast<SharedType>(units.getType());
    auto lines = SharedType::get(b.getContext(), type.getRowAxis(), e.form.getRows(), type.getColAxis(),
                                 type.getCols(), type.getElement(), type.getSwizzled(), type.getBoxes());
    Value mine = OverlayOp::create(b, lines, units, lineOf(place));
    return LoadColumnsOp::create(b, TypeRange{e.rowsOf(b.getF32Type())}, mine).getResult(0);
  }
  void leaveWeights(Value ofHalf) { StageOp::create(b, ofHalf, weights, rows.first()); }
  /// Warps leave and take weights at places of their own.
  void leaveWeights(Value ofHalf, Value place) { StageOp::create(b, ofHalf, weights, lineOf(place)); }
  Value takeWeights(Value place) {
    auto type = cast<SharedType>(weights.getType());
    FragmentType ofHalf = b.fragment({type.getRowAxis(), type.getColAxis()},
                                     {e.form.getRows(), type.getCols()}, type.getElement());
    return LoadOp::create(b, ofHalf, weights, lineOf(place));
  }
  /// Starts sum + the weights that the neighbour has left * values, from a column of the values' tile on.
  Value start(Value values, Value column, Value sum) {
    return StartMmaOp::create(b, cast<FragmentType>(sum.getType()), weights, rows.group(), values, column,
                              IntegerAttr(), sum);
  }

private:
  Value lineOf(Value place) { return b.add(b.mul(place, b.i32(e.schedule.getRows())), rows.first()); }

  FragmentExpansion &e;
  KernelBuilder &b;
  RowsPart rows;
  Value weights, units;
};

/// The program of each warpgroup for a tile.
class Halves {
public:
  Halves(FragmentExpansion &e, const OneUpdate &one, const State &state)
      : e(e), b(e.b), one(one), update(one.front()), exchange(e, update.getQuery()), state(state) {}

  State runFirst();
  State runSecond();

private:
  /// The values of a half that a warpgroup multiplies. Those of latents have tiles of their own, others are
  /// columns of the values' tile.
  struct Values {
    Value tile, column;
  };
  Values valuesOf(bool behind, int64_t group);
  Value tileOf(Copy part) { return copyOf(update.getKv(), part); }
  bool areLatent() { return update.getKv().getType().getLatent() != 0; }
  Value startScores(bool behind);
  /// The weights of this half, which starts `tokens` behind the tile's first. The state has the new units.
  Value weigh(Value scores, int64_t tokens);
  void leave(Value weights, int64_t group, int64_t barrier);
  /// Waits for the neighbour, and gives the state its units.
  void await(int64_t group, int64_t barrier);
  /// Starts the accumulator + weights of this warpgroup * values.
  Value startOwn(Value weights, Values values) {
    auto type = cast<FragmentType>(weights.getType());
    Value rounded = CastOp::create(b, type.withElement(e.form.getElement()), weights);
    return StartMmaOp::create(b, cast<FragmentType>(state.acc.getType()), rounded, Value(), values.tile,
                              values.column, IntegerAttr(), state.acc);
  }
  /// Starts the accumulator + weights that the neighbour has left * values.
  Value startNeighbours(Values values) { return exchange.start(values.tile, values.column, state.acc); }
  Value finish(Value started, int64_t pending = 0) {
    return WaitMmasOp::create(b, TypeRange{started.getType()}, pending, ValueRange{started}).getResult(0);
  }
  void rescale(Value decay, Value moved) {
    state.acc = RescaleOp::create(b, state.acc.getType(), state.acc, decay, moved);
  }
  /// Brings the accumulator to new units.
  void rescale() {
    if (decay)
      rescale(decay, moved);
    decay = moved = {};
  }

  FragmentExpansion &e;
  KernelBuilder &b;
  const OneUpdate &one;
  UpdateOp update;
  Exchange exchange;
  State state;
  Value decay, moved; ///< of an accumulator that has not been brought to the state's units; null if it has
};

Halves::Values Halves::valuesOf(bool behind, int64_t group) {
  if (!areLatent()) {
    Value column =
        group == 0 ? Value() : b.i32(group * cast<FragmentType>(state.acc.getType()).getSizes()[1]);
    return {tileOf(behind ? Copy::ValuesBehind : Copy::Values), column};
  }
  if (group == 0)
    return {tileOf(behind ? Copy::KeysBehind : Copy::Keys), Value()};
  return {tileOf(behind ? Copy::KeyRestBehind : Copy::KeyRest), Value()};
}

Value Halves::startScores(bool behind) {
  RowsPart rows(b, e.form, update.getQuery());
  const Copy first = behind ? Copy::KeysBehind : Copy::Keys,
             rest = behind ? Copy::KeyRestBehind : Copy::KeyRest;
  Value query = copyOf(update.getQuery(), Copy::Query), sum;
  if (!areLatent())
    return ScoresOp::create(b, e.pairs(), Mmas::Started, query, tileOf(first), rows.group(),
                            /*features=*/IntegerAttr(), sum, /*scale=*/Value(), /*token_scales=*/Value());
  auto whole = cast<SharedType>(query.getType());
  auto featuresOf = [&](Copy part) { return cast<SharedType>(tileOf(part).getType()).getCols(); };
  std::array parts{std::pair(first, int64_t(0)), std::pair(rest, featuresOf(first))};
  if (isQuantized(update.getKv().getType())) // producers widen the last features first
    std::swap(parts.front(), parts.back());
  for (auto [part, from] : parts) {
    const int64_t features = featuresOf(part);
    auto some = SharedType::get(b.getContext(), whole.getRowAxis(), whole.getRows(), whole.getColAxis(),
                                features, whole.getElement(), whole.getSwizzled(), whole.getBoxes());
    Value queries = PanelsOp::create(b, some, query, b.i32(from));
    sum = ScoresOp::create(b, e.pairs(), Mmas::Started, queries, tileOf(part), rows.group(),
                           /*features=*/IntegerAttr(), sum, /*scale=*/Value(), /*token_scales=*/Value());
  }
  return sum;
}

Value Halves::weigh(Value scores, int64_t tokens) {
  Value firstKey = b.add(one.tokens().getFirst(), b.i32(tokens));
  scores = e.applyScoreRegion(update, scores, firstKey);
  scores = e.maskScores(one, scores, copyOf(update.getQuery(), Copy::Position), firstKey);
  const bool fixed = e.form.has(FormTraits::FixedUnit);
  FragmentExpansion::Room room;
  auto step = SoftmaxStepOp::create(b, state.max.getType(), state.sum.getType(), scores.getType(),
                                    fixed ? Type() : state.max.getType(),
                                    fixed ? Type() : Type(b.getI1Type()), scores, state.max, state.sum,
                                    state.unit, room.lift, /*largest=*/Value(), fixed, room.slack);
  state.max = step.getNewMax(), state.sum = step.getNewSum();
  if (!fixed)
    decay = step.getDecay(), moved = step.getMoved();
  return step.getWeights();
}

void Halves::leave(Value weights, int64_t group, int64_t barrier) {
  exchange.leaveWeights(weights);
  exchange.leave(state.max, exchange.placeOfUnits(b.i32(group)));
  FenceAsyncOp::create(b);
  NamedBarrierArriveOp::create(b, b.i32(barrier), bothGroups);
}

void Halves::await(int64_t group, int64_t barrier) {
  NamedBarrierSyncOp::create(b, b.i32(barrier), bothGroups);
  Value units = exchange.take(exchange.placeOfUnits(b.i32(group)));
  if (!e.form.has(FormTraits::FixedUnit)) {
    FragmentType ofRows = e.rowsOf(b.getF32Type());
    SmallVector<Type> types{ofRows, ofRows.withElement(b.getI1Type())};
    ResultRange of = b.mapAll(types, ValueRange{state.max, units}, [&](ValueRange v) -> SmallVector<Value> {
      // -inf - -inf must not become NaN in rows that have seen nothing yet.
      Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[1], b.f32(-infinity));
      Value distance = arith::SubFOp::create(b, v[0], b.select(nothing, b.f32(0), v[1]));
      return {math::Exp2Op::create(b, arith::MulFOp::create(b, distance, state.unit)),
              arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, v[0], v[1])};
    });
    state.sum = b.map(cast<FragmentType>(state.sum.getType()), ValueRange{state.sum, of[0]},
                      [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
    decay = of[0], moved = AnyOp::create(b, b.getI1Type(), of[1]);
  }
  state.max = units;
}

State Halves::runFirst() {
  Value weights = weigh(finish(startScores(/*behind=*/false)), /*tokens=*/0);
  leave(weights, 0, firstLeft);
  rescale();
  Value started = startOwn(weights, valuesOf(/*behind=*/false, 0));
  await(1, secondLeft);
  state.acc = finish(started);
  rescale();
  state.acc = finish(startNeighbours(valuesOf(/*behind=*/true, 0)));
  return state;
}

State Halves::runSecond() {
  Value scores = startScores(/*behind=*/true);
  await(0, firstLeft);
  rescale();
  Value started = startNeighbours(valuesOf(/*behind=*/false, 1));
  Value weights = weigh(finish(scores, /*pending=*/1), e.form.getKeys());
  state.acc = finish(started); // the first's weights have been read
  leave(weights, 1, secondLeft);
  rescale();
  state.acc = finish(startOwn(weights, valuesOf(/*behind=*/true, 1)));
  return state;
}

} // namespace

/// Warps have few products in flight, and no warp waits for the other long: both do the same, and exchange
/// the largest scores of rows before weights.
State FragmentExpansion::mergeHalvesOfWarps(const OneUpdate &one, const State &old) {
  UpdateOp update = one.front();
  State state = old;
  FragmentType ofRows = rowsOf(b.getF32Type());
  Value slice = valueSlice(), line = b.mul(slice, b.i32(form.getKeys()));
  Value scores = maskScores(one, rowsMmaTokens(update, line), copyOf(update.getQuery(), Copy::Position),
                            b.add(one.tokens().getFirst(), line));
  Exchange exchange(*this, update.getQuery());
  Value own = ReduceOp::create(b, ofRows, Combine::Max, scores);
  exchange.leave(own, exchange.placeOfUnits(slice));
  SyncOp::create(b, Scope::Block);
  Value largest = b.map(ofRows, ValueRange{own, exchange.take(exchange.placeOfUnits(b.sub(b.i32(1), slice)))},
                        [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
  auto step =
      SoftmaxStepOp::create(b, state.max.getType(), state.sum.getType(), scores.getType(),
                            state.max.getType(), b.getI1Type(), scores, state.max, state.sum, state.unit,
                            /*lift=*/Value(), largest, /*fixed=*/false, Room().slack);
  exchange.leaveWeights(step.getWeights(), slice);
  SyncOp::create(b, Scope::Block);
  state.max = step.getNewMax(), state.sum = step.getNewSum();
  state.acc = RescaleOp::create(b, state.acc.getType(), state.acc, step.getDecay(), step.getMoved());
  Value values = valuesOf(update, {});
  auto type = cast<FragmentType>(values.getType());
  FragmentType half = b.fragment(type.getAxes(), {type.getSizes()[0], form.getKeys()}, type.getElement());
  for (int64_t which = 0; which < schedule.getSlices(); ++which) {
    Value some = PartOp::create(b, half, values, b.getI64IntegerAttr(which * form.getKeys()));
    state.acc =
        MmaOp::create(b, state.acc.getType(), exchange.takeWeights(b.i32(which)), /*line=*/Value(), some,
                      /*column=*/Value(), state.acc);
  }
  return state;
}

State FragmentExpansion::mergeHalves(const OneUpdate &one, const State &state) {
  if (form.getMmas() == Mmas::Mma)
    return mergeHalvesOfWarps(one, state);
  Value isFirst;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&b.kernel.front());
    isFirst = b.compare(arith::CmpIPredicate::eq, valueSlice(), b.i32(0));
    // ptxas takes MMAs to be in flight where the kernel begins, and would wait for all, the scores among
    // them, before the second warpgroup rescales its accumulator (C7517).
    WaitMmasOp::create(b, TypeRange(), /*pending=*/0, ValueRange());
  }
  auto branch =
      scf::IfOp::create(b, TypeRange{state.max.getType(), state.sum.getType(), state.acc.getType()}, isFirst,
                        /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool first : {true, false}) {
    b.setInsertionPointToStart(first ? branch.thenBlock() : branch.elseBlock());
    Halves halves(*this, one, state);
    State merged = first ? halves.runFirst() : halves.runSecond();
    scf::YieldOp::create(b, ValueRange{merged.max, merged.sum, merged.acc});
  }
  return {branch.getResult(0), branch.getResult(1), branch.getResult(2), state.zeros, state.unit};
}

Value FragmentExpansion::sumOfHalves(Value rows, Value sum) {
  Exchange exchange(*this, rows);
  Value group = valueSlice();
  exchange.leave(sum, exchange.placeOfSums(group)); // the neighbour may still read the last units
  auto sync = [&] {
    if (form.getMmas() == Mmas::Mma)
      SyncOp::create(b, Scope::Block);
    else
      NamedBarrierSyncOp::create(b, b.i32(sumsLeft), bothGroups);
  };
  sync();
  Value other = exchange.take(exchange.placeOfSums(b.sub(b.i32(1), group)));
  sync(); // the next sums overwrite these
  return b.map(cast<FragmentType>(sum.getType()), ValueRange{sum, other},
               [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
}

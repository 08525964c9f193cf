//===- AttendKernel.cpp - What all schedules of a kernel share ------------===//
#include "AttendKernel.h"
#include "ScoreBound.h"

#include "attn/Dialect/Tile/IR/Launch.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr double log2e = 1.4426950408889634, ln2 = 0.6931471805599453;
static constexpr double infinity = std::numeric_limits<double>::infinity();
/// In log2. A sum of 2^31 exponentials of such scores is a number of f32, and each of them one of bf16.
static constexpr double fixedUnitBound = 80;

void AttendKernel::declareParameters() {
  // The order of parameters: what the user passes, what the plan says, scalars.
  Type element = chain.element(), i32 = b.getI32Type(), f32 = b.getF32Type();
  b.buffer("q", element);
  b.buffer("q_pos", i32);
  b.buffer("o", element);
  if (chain.finish.getLse())
    b.buffer("lse", f32);
  for (PlanArray array : {PlanArray::Tasks, PlanArray::Segments})
    planArray(b, array);
  if (chain.headClasses())
    b.buffer("slot_heads", i32);
  for (PlanArray array : ::attn::rt::planPartials)
    planArray(b, array);
  b.scale();
}

void AttendKernel::computeConstants() {
  if (!hasScales()) // else when the task's head is known
    setUnits();
  fixedUnit = !rawScores() && !chain.countsSinks() &&
              elementOf(chain.element()).exponentBits >= elementOf(b.getF32Type()).exponentBits &&
              scoreBound(chain.updates.front().getScore().front()) * log2e <= fixedUnitBound;
}

void AttendKernel::setTask(const Task &task) {
  packedBegin = task.packedBegin, packedCount = task.packedCount, slot = kvHead = task.slot;
  segmentBegin = task.segmentBegin, segmentEnd = task.segmentEnd, partial = task.partial, flags = task.flags;
  if (chain.headClasses())
    kvHead = b.read(b.buffer("slot_heads", b.getI32Type()), b.wide(slot)), headClass = task.headClass;
}

Segment AttendKernel::segmentOf(TokensOp tokens) {
  Segment segment;
  segment.instance = tokens.getInstance();
  segment.kvEnd = tokens.getEnd();
  segment.fullBegin = tokens.getFullBegin(), segment.fullEnd = tokens.getFullEnd();
  segment.pos0 = tokens.getPos0();
  segment.firstSlot = tokens.getFirstSlot();
  return segment;
}

void AttendKernel::setRows(RowsOp queryRows) {
  packedBegin = queryRows.getBegin(), packedCount = queryRows.getCount();
  kvHead = queryRows.getHead(), slot = queryRows.getSlot(), warpRow = queryRows.getFirst();
  groupRow = queryRows.getGroup(), headClass = queryRows.getHeadClass(), sinkCounts = queryRows.getSink();
}

void AttendKernel::readRows() {
  Type i32 = b.getI32Type();
  // Rows past the task's last repeat it: their positions must be readable, their results are dropped.
  auto positions = LoadVectorOp::create(b, rowsOf(i32), b.buffer("q_pos", i32));
  b.fill(positions.getIndex(), {i32},
         [&](ValueRange line) { return b.wide(unpack(packedRow(line[0])).first); });
  queryPosition = positions;
  queryHead = b.map(rowsOf(i32), ValueRange{CoordinatesOp::create(b, rowsOf(i32), b.i32(0))},
                    [&](ValueRange line) { return unpack(packedRow(line[0])).second; });
}

void AttendKernel::setUnits(Value keyScale) {
  dotScale = keyScale ? arith::MulFOp::create(b, b.scale(), keyScale).getResult() : b.scale();
  readScoreRegion();
  scoreUnit = rawScores() ? dotScale : b.f32(form.unitValue);
  toLog2 = b.createOrFold<arith::MulFOp>(scoreUnit, b.f32(log2e));
}

State AttendKernel::initialState(Value sinks, Value counts) {
  Type f32 = b.getF32Type();
  State state{b.splat(b.f32(fixedUnit ? 0 : -infinity), rowsOf(f32)),
              b.splat(b.f32(0), rowsOf(f32, /*partial=*/true)), b.splat(b.f32(0), accType())};
  if (!sinks)
    return state;

  // The sink is a token with a score and no value. One share of a row's keys counts it, in one warp and one
  // lane.
  Value oneLane =
      b.compare(arith::CmpIPredicate::eq,
                b.createOrFold<arith::AndIOp>(LaneIdOp::create(b, b.getI32Type()), b.i32(3)), b.i32(0));
  auto logits = LoadVectorOp::create(b, rowsOf(f32), b.buffer(argumentName(sinks), f32));
  b.fill(logits.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return b.wide(unpack(packedRow(line[0])).second); });
  state.max = b.map(rowsOf(f32), ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value scaled = arith::DivFOp::create(b, logit[0], scoreUnit);
    return b.select(counts, scaled, b.f32(-infinity));
  });
  state.sum = b.map(rowsOf(f32, true), ValueRange{logits}, [&](ValueRange logit) -> Value {
    Value finite = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, logit[0], b.f32(-infinity));
    Value one =
        b.select(b.createOrFold<arith::AndIOp>(b.createOrFold<arith::AndIOp>(counts, oneLane), finite),
                 b.f32(1), b.f32(0));
    return one;
  });
  return state;
}

Value AttendKernel::endOf(const Segment &segment, unsigned operand) {
  if (chain.updates.size() == 1)
    return segment.kvEnd;
  Value mine = b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(operand));
  return b.select(mine, segment.kvEnd, segment.kvBegin);
}

Value AttendKernel::tilesOf(const Segment &segment, unsigned operand) {
  Value tokens = b.sub(endOf(segment, operand), segment.kvBegin);
  return b.div(b.add(tokens, b.i32(schedule.getKeys() - 1)), schedule.getKeys());
}

/// What decides visibility inside one tile. Every visibility is made of intervals of positions whose ends are
/// a constant, or a constant from the row's position. Measured from this lane's first column, an end is one
/// number per row (or one for all rows), and a column of the tile a compile-time constant: one compare per
/// element and end. Upper ends are no further than the tokens that exist, so that these need no compare of
/// their own.
struct AttendKernel::TileBounds {
  Value offsets;           ///< columns: constants
  Value position;          ///< per row: the row's own position
  Value last;              ///< per row: the last column that exists and is not later
  SmallVector<Value> ends; ///< for each sized term in order: per row (window, recent) or one number (sink)
  Value exists;            ///< end of the tokens that exist
};

void AttendKernel::addEnds(VisibilityAttr visibility, int64_t &end, Value origin, TileBounds &bounds) {
  if (visibility.getKind() == VisibilityKind::Sink) {
    bounds.ends.push_back(b.min(b.sub(b.end(end++), origin), bounds.exists));
  } else if (VisibilityAttr::isSized(visibility.getKind())) {
    // Half the range of i32 is further than any context reaches; clamping keeps the difference in range.
    Value size = b.min(b.end(end++), b.i32(1 << 30));
    bounds.ends.push_back(
        b.map(rowsOf(b.getI32Type()), ValueRange{bounds.position},
              [&](ValueRange v) -> Value { return b.sub(b.max(v[0], b.i32(-(1 << 30))), size); }));
  }
  for (VisibilityAttr part : visibility.getOperands())
    addEnds(part, end, origin, bounds);
}

/// Whether a row sees `column`, which then exists, too; `ends` are consumed in order.
Value AttendKernel::visible(VisibilityAttr visibility, Value column, Value last, Value exists,
                            ArrayRef<Value> &ends) {
  auto notLater = [&] { return b.compare(arith::CmpIPredicate::sle, column, last); };
  auto next = [&] {
    Value end = ends.front();
    ends = ends.drop_front();
    return end;
  };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return b.less(column, exists);
  case VisibilityKind::Causal:
    return notLater();
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return b.createOrFold<arith::AndIOp>(b.compare(arith::CmpIPredicate::sgt, column, next()), notLater());
  case VisibilityKind::Sink:
    return b.less(column, next());
  case VisibilityKind::Or:
  case VisibilityKind::And: {
    Value result;
    for (VisibilityAttr part : visibility.getOperands()) {
      Value seen = visible(part, column, last, exists, ends);
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

Value AttendKernel::maskFor(unsigned operand, unsigned headClass, Value scores, const Segment &segment,
                            Value firstKey, Value partialTile) {
  // What the operand shows and, where heads have classes, what this one sees of it.
  VisibilityAttr shown = chain.updates[operand].getVisibility(), seen = chain.classVisibility(headClass);
  int64_t shownEnd = chain.firstEnd(operand), seenEnd = chain.firstEndOfClass(headClass);
  Type i32 = b.getI32Type();
  auto lane = LaneCoordinatesOp::create(b, i32, b.fragment({Axis::Key}, {keys}, i32));
  Value firstToken = b.add(firstKey, lane.getFirst()), origin = b.add(segment.pos0, firstToken);
  TileBounds bounds;
  bounds.offsets = lane.getOffsets();
  bounds.position =
      b.map(rowsOf(i32), ValueRange{queryPosition}, [&](ValueRange v) { return b.sub(v[0], origin); });
  bounds.exists = b.sub(segment.kvEnd, firstToken);
  Value lastToken = b.add(bounds.exists, b.i32(-1));
  bounds.last =
      b.map(rowsOf(i32), ValueRange{bounds.position}, [&](ValueRange v) { return b.min(v[0], lastToken); });
  addEnds(shown, shownEnd, origin, bounds);
  if (seen)
    addEnds(seen, seenEnd, origin, bounds);
  // Of two, one that says only that tokens exist is not needed: both say that.
  if (seen && shown.getKind() == VisibilityKind::All)
    std::swap(shown, seen);
  if (seen && seen.getKind() == VisibilityKind::All)
    seen = VisibilityAttr();

  SmallVector<Value> inputs{bounds.offsets, bounds.last};
  for (Value value : bounds.ends)
    if (isa<FragmentType>(value.getType()))
      inputs.push_back(value);
  auto mask = MaskOp::create(b, scoresType(), scores, inputs, partialTile);
  b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
    SmallVector<Value> ends(bounds.ends);
    size_t next = 2;
    for (Value &value : ends)
      if (isa<FragmentType>(value.getType()))
        value = v[next++];
    ArrayRef<Value> left = ends;
    Value sees = visible(shown, v[0], v[1], bounds.exists, left);
    return seen ? b.createOrFold<arith::AndIOp>(sees, visible(seen, v[0], v[1], bounds.exists, left)) : sees;
  });
  return mask;
}

/// Bits say which row sees which token of a list: a word for 32 tokens and a row of the tile.
Value AttendKernel::maskForList(Value scores, const Segment &segment, Value firstKey) {
  constexpr int64_t bits = 32;
  Type i32 = b.getI32Type();
  auto branch = scf::IfOp::create(b, scoresType(), isList(segment), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, scores);
  b.setInsertionPointToStart(branch.thenBlock());
  auto lane = LaneCoordinatesOp::create(b, i32, b.fragment({Axis::Key}, {keys}, i32));
  Value shift = b.add(lane.getFirst(), b.rem(firstKey, bits));
  Value rowsOfTile = b.i32(llvm::divideCeil(schedule.getRows(), chain.group()));
  Value firstRow = b.div(packedBegin, chain.group()), firstWord = b.div(firstKey, bits);
  SmallVector<Value> inputs{lane.getOffsets()};
  for (int64_t word = 0; word * bits < keys; ++word) {
    auto words = LoadVectorOp::create(b, rowsOf(i32), planArray(b, PlanArray::Bits));
    b.fill(words.getIndex(), {i32}, [&](ValueRange line) {
      Value row = b.sub(unpack(packedRow(line[0])).first, firstRow);
      return b.wide(b.add(b.mul(b.add(firstWord, b.i32(word)), rowsOfTile), row));
    });
    inputs.push_back(b.map(rowsOf(i32), ValueRange{words},
                           [&](ValueRange v) -> Value { return arith::ShRUIOp::create(b, v[0], shift); }));
  }
  auto mask = MaskOp::create(b, scoresType(), scores, inputs, b.createOrFold<arith::ConstantIntOp>(1, 1));
  b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
    Value word = v[1]; // offsets are constants: all of this folds
    for (int64_t i = 1; i + 1 < static_cast<int64_t>(v.size()); ++i)
      word = b.select(b.less(v[0], b.i32(i * bits)), word, v[i + 1]);
    Value bit = b.createOrFold<arith::ShRUIOp>(word, b.rem(v[0], bits));
    return b.compare(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(bit, b.i32(1)), b.i32(0));
  });
  scf::YieldOp::create(b, ValueRange{mask});
  return branch.getResult(0);
}

Value AttendKernel::finishScores(Value scores, std::optional<unsigned> operand, const Segment &segment,
                                 Value firstKey) {
  scores = applyScoreRegion(scores, segment, firstKey);
  // The plan knows which tokens every row of the task sees; a tile within them needs no mask.
  Value lastKey = b.add(firstKey, b.i32(keys));
  Value partialTile =
      b.createOrFold<arith::OrIOp>(b.less(firstKey, segment.fullBegin), b.less(segment.fullEnd, lastKey));
  if (mayList()) {
    scores = maskForList(scores, segment, firstKey);
    partialTile = b.createOrFold<arith::AndIOp>(
        partialTile, b.compare(arith::CmpIPredicate::sge, segment.instance, b.i32(0)));
  }
  // Of the masks for all operands and classes one applies.
  auto only = [&](Value condition, unsigned count, Value value, unsigned i) -> Value {
    if (count == 1)
      return condition;
    return b.createOrFold<arith::AndIOp>(condition, b.compare(arith::CmpIPredicate::eq, value, b.i32(i)));
  };
  unsigned first = operand.value_or(0), last = operand ? *operand + 1 : chain.updates.size();
  for (unsigned i = first; i < last; ++i) {
    Value ofOperand = only(partialTile, last - first, segment.operand, i);
    if (std::optional<unsigned> c = chain.updates[i].getClassOfRegion()) {
      scores = maskFor(i, *c, scores, segment, firstKey, ofOperand);
      continue;
    }
    for (unsigned c = 0; c < chain.classCount(); ++c)
      scores = maskFor(i, c, scores, segment, firstKey, only(ofOperand, chain.classCount(), headClass, c));
  }
  return scores;
}

AttendKernel::Step AttendKernel::softmax(Value scores, const State &state) {
  Type f32 = b.getF32Type();
  auto scaled = [&](Value x) -> Value { return arith::MulFOp::create(b, x, toLog2); };
  // Under a soft cap nothing can run away, so the unit may be 1 for good: no maximum, nothing to rescale, and
  // no exponential waits for the rest of its row.
  if (fixedUnit) {
    Value weights = b.map(scoresType(), ValueRange{scores},
                          [&](ValueRange v) -> Value { return math::Exp2Op::create(b, scaled(v[0])); });
    Value tileSum = ReduceOp::create(b, rowsOf(f32, true), Combine::Add, weights);
    Value sum = b.map(rowsOf(f32, true), ValueRange{state.sum, tileSum},
                      [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
    return {state.max, sum, Value(), Value(), weights};
  }
  Value tileMax = ReduceOp::create(b, rowsOf(f32), Combine::Max, scores);
  // The maximum is a unit, not a result: it moves only when it would be more than 2^8 too small, so that what
  // was accumulated rarely needs rescaling. Weights stay below 2^8, which 16 bits hold as exactly as those
  // below 1.
  auto grows = [&](Value old, Value seen) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, scaled(arith::SubFOp::create(b, seen, old)),
                                 b.f32(8));
  };
  Value max = b.map(rowsOf(f32), ValueRange{state.max, tileMax},
                    [&](ValueRange v) -> Value { return b.select(grows(v[0], v[1]), v[1], v[0]); });
  Value grown = b.map(rowsOf(b.getI32Type()), ValueRange{state.max, tileMax}, [&](ValueRange v) -> Value {
    return arith::ExtUIOp::create(b, b.getI32Type(), grows(v[0], v[1]));
  });
  // -inf - -inf must not become NaN in rows that have seen nothing yet.
  Value center = b.map(rowsOf(f32), ValueRange{max}, [&](ValueRange v) -> Value {
    Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[0], b.f32(-infinity));
    return b.select(nothing, b.f32(0), v[0]);
  });
  Value base = b.map(rowsOf(f32), ValueRange{center},
                     [&](ValueRange v) -> Value { return arith::NegFOp::create(b, scaled(v[0])); });
  // Subtract before scaling: where the maximum stays, the decay is 1 to the bit, however products are fused.
  Value decay = b.map(rowsOf(f32), ValueRange{state.max, center}, [&](ValueRange v) -> Value {
    return math::Exp2Op::create(b, scaled(arith::SubFOp::create(b, v[0], v[1])));
  });
  Value weights = b.map(scoresType(), ValueRange{scores, base}, [&](ValueRange v) -> Value {
    return math::Exp2Op::create(b, math::FmaOp::create(b, v[0], toLog2, v[1]));
  });
  Value tileSum = ReduceOp::create(b, rowsOf(f32, true), Combine::Add, weights);
  Value sum = b.map(rowsOf(f32, true), ValueRange{state.sum, decay, tileSum},
                    [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[0], v[1], v[2]); });
  return {max, sum, decay, AnyOp::create(b, b.getI1Type(), grown), weights};
}

Value AttendKernel::rescale(function_ref<Value()> acc, const Step &step) {
  if (fixedUnit)
    return acc();
  auto branch = scf::IfOp::create(b, accType(), step.moved, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value scaled = b.map(accType(), ValueRange{acc(), step.decay},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  scf::YieldOp::create(b, scaled);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, acc());
  return branch.getResult(0);
}

/// Sums may be shares of lanes: all of a row have the same unit.
State AttendKernel::mergeStates(const State &x, const State &y) {
  Type f32 = b.getF32Type();
  auto added = [&](Value left, Value right) {
    return b.map(cast<FragmentType>(left.getType()), ValueRange{left, right},
                 [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  };
  if (fixedUnit)
    return {x.max, added(x.sum, y.sum), added(x.acc, y.acc)};
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
  return {max, weighted(x.sum, y.sum), weighted(x.acc, y.acc)};
}

Value AttendKernel::exchangeMemory() {
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

Value AttendKernel::packWeights(Value weights) {
  return CastOp::create(b, scoresType().withElement(chain.element()), weights);
}

AttendKernel::Results AttendKernel::finishState(Value max, Value sum, Value acc) {
  Type f32 = b.getF32Type();
  auto outType = cast<FragmentType>(acc.getType());
  // A sum that is NaN is something: it must reach the LSE, too, or that would depend on where keys were cut.
  Value inverse = b.map(rowsOf(f32), ValueRange{sum}, [&](ValueRange v) -> Value {
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[0], b.f32(0));
    Value factor = ReciprocalOp::create(b, v[0]);
    if (valueScale)
      factor = arith::MulFOp::create(b, factor, valueScale);
    return b.select(some, factor, b.f32(0));
  });
  Value output = b.map(outType, ValueRange{acc, inverse},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  Value lse = b.map(rowsOf(f32), ValueRange{max, sum}, [&](ValueRange v) -> Value {
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[1], b.f32(0));
    Value log =
        arith::AddFOp::create(b, arith::MulFOp::create(b, v[0], toLog2), math::Log2Op::create(b, v[1]));
    return b.select(some, arith::MulFOp::create(b, log, b.f32(ln2)), b.f32(-infinity));
  });
  return {output, lse};
}

void AttendKernel::writeResults(Results results, Value column, IntegerAttr columns, Value lseLines,
                                function_ref<void(Value)> writeRows) {
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  auto [output, lse] = results;
  Value lines = b.sub(packedCount, warpRow);
  auto store = [&](Value fragment, Value buffer, Value lineCount, Value col, IntegerAttr cols,
                   function_ref<Value(Value)> index) {
    auto op = StoreOp::create(b, fragment, buffer, lineCount, col, cols);
    b.fill(op.getIndex(), {i32}, [&](ValueRange line) { return index(line[0]); });
  };
  auto partialRow = [&](Value line) { return b.wide(b.add(b.add(partial, warpRow), line)); };
  Value isPart = b.compare(arith::CmpIPredicate::sge, partial, b.i32(0));
  Value outBuffer = b.buffer("o", chain.element()), partBuffer = planArray(b, PlanArray::PartialO),
        partLse = planArray(b, PlanArray::PartialLse);
  auto branch = scf::IfOp::create(b, isPart, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  store(output, partBuffer, lines, column, columns,
        [&](Value line) { return b.mul(partialRow(line), b.i64(chain.valueDim())); });
  store(lse, partLse, lseLines, Value(), IntegerAttr(), [&](Value line) { return partialRow(line); });
  b.setInsertionPoint(branch.elseYield());
  if (writeRows)
    writeRows(output);
  else
    store(output, outBuffer, lines, column, columns,
          [&](Value line) { return outputIndex(b.add(warpRow, line)); });
  if (chain.finish.getLse())
    store(lse, b.buffer("lse", f32), lseLines, Value(), IntegerAttr(),
          [&](Value line) { return rowAndHead(b.add(warpRow, line)); });
}

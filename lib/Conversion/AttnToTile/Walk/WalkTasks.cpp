//===- WalkTasks.cpp - Loops over tasks, segments and tiles ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WalkTasks.h"

#include "Form.h"
#include "Lines.h"

#include "AttnToTile/Kernel/PlanAccess.h"
#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class Walk {
public:
  /// `chain` belongs to another function; the loops of `kernel` get its operations.
  Walk(Chain &chain, func::FuncOp kernel)
      : b(kernel), chain(chain), schedule(tile::scheduleAttr.get(kernel)), lines(findLines(chain)),
        byRow(numericsAttr.isOn(kernel)) {}

  void run(const IRMapping &arguments);

private:
  /// Declares the parameters that every schedule has, in the order of the manifest.
  void declareParameters();
  void setTask(const Task &task);
  Value hasFlag(int32_t flag) {
    return b.compare(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(flags, b.i32(flag)), b.i32(0));
  }
  /// The first token of a segment's first tile. Under a numerics contract tiles begin at multiples of their
  /// tokens, which may be before the segment.
  Value tilesBegin(const Segment &segment);
  /// The number of an operand's tiles in a segment that begin from `begin` on: none if the segment belongs to
  /// another operand.
  Value tilesOf(const Segment &segment, unsigned operand, Value begin);
  void placeWarp();
  /// Whether a causal task's warpgroups finish a segment whole tiles apart.
  bool endsApart() { return schedule.getRows() > chain.group() * schedule.getKeys(); }
  /// The number of tokens from the last one that all rows see to the last one that a row of the warpgroup may
  /// see.
  Value tokensPastFull();
  void walkTask();
  /// Walks a task whose segments are parts, and folds these.
  void walkParts();
  /// The loops over the tiles of a segment.
  void walkSegment(const Segment &segment, Value queryRows);
  RowsOp makeRows();
  Value beginLine(const Line &line, Value queryRows);
  /// The tokens of the tile from `firstKey` on, in the region of an operand.
  Value tokensOf(unsigned operand, const Segment &segment, Value firstKey);
  Value update(unsigned operand, Value state, Value queryRows, Value tokens);
  void walkTiles(unsigned operand, Line &line, const Segment &segment, Value queryRows);
  void walkTilesOfAll(Line &line, const Segment &segment, Value queryRows);
  /// Writes the early results if `segment` is the last of the first operand's.
  void finishFirst(Value segment, Value state, Value queryRows);
  void finishTask(Value queryRows);
  /// Emits merges, other changes and the finish, on the states that the loops leave.
  FinishOp finishStates(Value queryRows);
  /// Writes results that only sinks may be missing in, under a numerics contract.
  void writeFolded(Value output, Value queryRows);

  bool inGroups() { return schedule.getKind() == ScheduleKind::Wgmma; }
  /// Writes a task's rows, or stores them as states from number `part` on.
  void write(Value output, Value lse, Value queryRows, Value part) {
    auto ofFinish = [&](Value operand) { return operand ? mapping.lookup(operand) : Value(); };
    mlir::attn::WriteOp::create(b, output, lse, queryRows, part, Value(), ofFinish(chain.finish.getGate()),
                                ofFinish(chain.finish.getOutputScale()),
                                chain.finish.getOutputScales() != nullptr);
  }
  /// Whether all warpgroups have the same rows: every task has rows for them.
  bool oneGroup() { return schedule.getConsumers() == schedule.getSlices(); }

  KernelBuilder b;
  Chain &chain;
  ScheduleAttr schedule;
  Start start;
  Value warp;
  Value packedBegin, packedCount, ordinal, kvHead, headClass; ///< of the task
  Value warpRow, groupRow; ///< the first rows of this warp and, on wgmma, of its warpgroup
  Value segmentBegin, segmentEnd, partial, flags; ///< of the task
  Value pastFull;                                 ///< see tokensPastFull
  IRMapping mapping;
  Lines lines;
  bool byRow; ///< whether results follow a numerics contract
};

void Walk::declareParameters() {
  // The order of parameters: the user's tensors, the plan's arrays, scalars.
  Type element = chain.element(), i32 = b.getI32Type(), f32 = b.getF32Type();
  b.buffer("q", element);
  b.buffer("q_pos", i32);
  b.buffer("o", chain.gradient ? element : getElementTypeOrSelf(chain.finish.getOutput()));
  if (chain.gradient || chain.finish.getLse())
    b.buffer("lse", f32);
  if (!chain.gradient && chain.finish.getOutputScales())
    b.buffer(outputScales, f32);
  if (chain.first) {
    b.buffer(firstOutput, element);
    b.buffer(firstLse, f32);
  }
  for (PlanArray array : {PlanArray::Tasks, PlanArray::Segments})
    planArray(b, array);
  if (chain.headClasses())
    b.buffer("ordinal_heads", i32);
  if (!chain.gradient)
    for (PlanArray array : ::attn::rt::planStates)
      planArray(b, array);
  b.scale();
}

void Walk::setTask(const Task &task) {
  packedBegin = task.packedBegin, packedCount = task.packedCount, ordinal = kvHead = task.ordinal;
  segmentBegin = task.segmentBegin, segmentEnd = task.segmentEnd, partial = task.partial, flags = task.flags;
  if (chain.headClasses())
    kvHead = b.read(b.buffer("ordinal_heads", b.getI32Type()), b.wide(ordinal)), headClass = task.headClass;
}

static bool beginsWithRow(VisibilityAttr visibility) {
  return ::attn::rt::beginsWithRow(visibility.getKind()) ||
         llvm::any_of(visibility.getOperands(), [](VisibilityAttr part) { return beginsWithRow(part); });
}

/// The page of an operand whose instances may have lost pages in front: a later row sees no token there. 0 if
/// they keep all of their tokens.
static int64_t pageOfLostTokens(Chain &chain, unsigned operand) {
  const ::attn::rt::Store store = storeOf(chain.updates[operand].getKv().getType());
  bool loses = beginsWithRow(chain.updates[operand].getVisibility());
  for (unsigned c = 0; chain.headClasses() && c < chain.classCount(); ++c)
    loses |= beginsWithRow(chain.classVisibility(c));
  return loses && store.isPaged() ? store.tokensOf(1) : 0;
}

/// Tiles are counted from an instance's first token. If instances lose pages in front, tiles must not move
/// then: they are counted from the positions of pages.
Value Walk::tilesBegin(const Segment &segment) {
  if (!byRow)
    return segment.kvBegin;
  Value origin;
  for (unsigned operand = chain.updates.size(); operand-- > 0;) {
    const int64_t page = pageOfLostTokens(chain, operand);
    Value own = page > 0 ? b.mul(b.div(segment.pos0, page), b.i32(page)) : b.i32(0);
    origin = origin
                 ? b.select(b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(operand)), own, origin)
                 : own;
  }
  return b.sub(segment.kvBegin, b.rem(b.add(origin, segment.kvBegin), schedule.getKeys()));
}

Value Walk::tilesOf(const Segment &segment, unsigned operand, Value begin) {
  Value end = segment.kvEnd;
  if (chain.updates.size() > 1) {
    Value mine = b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(operand));
    end = b.select(mine, end, begin);
  }
  return b.div(b.add(b.sub(end, begin), b.i32(schedule.getKeys() - 1)), schedule.getKeys());
}

/// Computes the first row of this warp and of its warpgroup, counted from the task's first row.
void Walk::placeWarp() {
  warp = WarpIdOp::create(b, b.getI32Type());
  if (!inGroups()) {
    warpRow = schedule.getSplitKeys()
                  ? b.i32(0)
                  : b.mul(b.div(warp, schedule.getSlices()), b.i32(schedule.getWarpRows()));
    return;
  }
  Value consumer = b.sub(warp, b.i32(schedule.getProducerWarps()));
  const int64_t groupWarps = ScheduleAttr::groupWarps, slices = schedule.getSlices();
  if (slices == 1)
    warpRow = b.mul(consumer, b.i32(schedule.getWarpRows()));
  groupRow = oneGroup() ? b.i32(0)
                        : b.createOrFold<arith::MulIOp>(b.div(consumer, groupWarps * slices),
                                                        b.i32(ScheduleAttr::groupRows),
                                                        arith::IntegerOverflowFlags::nuw);
  if (slices > 1)
    warpRow = b.add(groupRow, b.mul(b.rem(consumer, groupWarps), b.i32(schedule.getWarpRows())));
}

void Walk::run(const IRMapping &arguments) {
  b.setInsertionPointToEnd(&b.kernel.front());
  formAttr.set(b.kernel, formOf(chain, schedule));
  mapping = arguments;
  placeWarp();
  declareParameters();
  StartNextOp::create(b); // the merge may take its place in the multiprocessors and wait there
  start = readRecord<Start>(b, BlockIdOp::create(b, b.getI32Type()));
  auto tasks = scf::ForOp::create(b, start.tasksBegin, start.tasksEnd, b.i32(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tasks.getBody()->getTerminator());
    setTask(readRecord<Task>(b, tasks.getInductionVar(), fieldsOf(start.task)));
    walkTask();
  }
  tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(schedule.getBlocks()));
  using Role = ::attn::rt::KernelInfo::Role;
  setLaunch(b.kernel,
            {.role = chain.gradient ? Role::Gradient : Role::Attend, .launch = {.grid = PlanArray::Starts}});
  b.finish(schedule.getThreads());
}

/// A warpgroup whose rows stand before the task's other rows finishes a causal segment earlier. A warpgroup
/// without rows sees nothing.
Value Walk::tokensPastFull() {
  constexpr int32_t anyNumber = 0x3fffffff;
  Value last = b.min(b.add(groupRow, b.i32(ScheduleAttr::groupRows - 1)), b.add(packedCount, b.i32(-1)));
  Value rows = b.sub(b.div(b.add(packedBegin, last), chain.group()), b.div(packedBegin, chain.group()));
  Value follow = hasFlag(::attn::rt::taskRowsFollow);
  return b.select(b.less(groupRow, packedCount), b.select(follow, rows, b.i32(anyNumber)), b.i32(-anyNumber));
}

RowsOp Walk::makeRows() {
  Value sink;
  if (chain.countsSinks())
    sink = hasFlag(::attn::rt::taskHasSink);
  Value scores;
  if (storesScoresAttr.isOn(b.kernel))
    scores = hasFlag(::attn::rt::taskStoresScores);
  Value query = mapping.lookup(chain.query());
  return RowsOp::create(b, query.getType(), query, packedBegin, packedCount, kvHead, ordinal, warpRow,
                        groupRow, headClass, sink, scores, /*part=*/Value(), /*part_heads=*/IntegerAttr(),
                        /*all_heads=*/false);
}

Value Walk::beginLine(const Line &line, Value queryRows) {
  if (InitGradientOp zeros = chain.gradient) {
    auto init = InitGradientOp::create(b, zeros.getGradient().getType(), queryRows, /*after=*/Value(),
                                       zeros.getWithLse(), /*adds_rows=*/false, /*in_order=*/false,
                                       /*summed=*/false, IntegerAttr());
    rowSumsAttr.set(init, b.getI32IntegerAttr(rowSumsOf(chain, b.kernel)));
    return init;
  }
  auto state = chain.finish.getState().getType();
  auto init = line.begin ? line.begin.getDefiningOp<InitOp>() : InitOp();
  Value sinks = init ? init.getSinks() : Value();
  return InitOp::create(b, state, queryRows, sinks ? mapping.lookup(sinks) : Value());
}

void Walk::walkSegment(const Segment &segment, Value queryRows) {
  if (inGroups())
    return walkTilesOfAll(lines.all.front(), segment, queryRows);
  for (unsigned operand = 0; operand < chain.updates.size(); ++operand)
    for (Line &line : lines.all)
      if (llvm::is_contained(line.updates, operand))
        walkTiles(operand, line, segment, queryRows);
}

/// The task is read again where its results are written, if several warpgroups leave few registers.
void Walk::walkParts() {
  auto tasks = cast<scf::ForOp>(b.getInsertionBlock()->getParentOp());
  Value queryRows = makeRows(), firstSegment = segmentBegin, endOfSegments = segmentEnd;
  Value nothing = NoPartsOp::create(b, chain.finish.getOutput().getType());
  if (inGroups() && endsApart())
    pastFull = tokensPastFull();
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, b.i32(1), nothing);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    for (Line &line : lines.all)
      line.state = beginLine(line, queryRows);
    auto segment = readRecord<Segment>(b, segments.getInductionVar(), fieldsOf(start.segment));
    walkSegment(segment, queryRows);
    Value part = finishStates(queryRows).getOutput();
    Value isMulti = b.less(b.add(firstSegment, b.i32(1)), endOfSegments);
    auto folded = scf::IfOp::create(b, TypeRange{part.getType()}, isMulti, /*withElseRegion=*/true);
    scf::YieldOp::create(b, folded.getResults());
    b.setInsertionPointToStart(folded.elseBlock());
    scf::YieldOp::create(b, part);
    b.setInsertionPointToStart(folded.thenBlock());
    Value isLater = b.less(firstSegment, segments.getInductionVar());
    Value output = FoldOp::create(b, part.getType(), Type(), part, queryRows, partial,
                                  segments.getRegionIterArg(0), isLater, Value())
                       .getResult();
    b.doIf(b.less(b.add(segments.getInductionVar(), b.i32(1)), endOfSegments),
           [&] { KeepOp::create(b, output, queryRows, partial); });
    scf::YieldOp::create(b, output);
  }
  if (schedule.getConsumers() > 1) {
    setTask(readRecord<Task>(b, tasks.getInductionVar()));
    queryRows = makeRows();
  }
  writeFolded(segments.getResult(0), queryRows);
}

void Walk::writeFolded(Value output, Value queryRows) {
  Value sinks = chain.sinks(), lse = chain.finish.getLse();
  auto fold = FoldOp::create(b, output.getType(), lse ? lse.getType() : Type(), output, queryRows, Value(),
                             Value(), Value(), sinks ? mapping.lookup(sinks) : Value());
  Value part = b.select(hasFlag(::attn::rt::taskFolds), b.i32(-1), partial);
  write(fold.getResult(), fold.getLse(), queryRows, part);
}

void Walk::walkTask() {
  if (byRow && !schedule.getSplitKeys())
    return walkParts();
  Value queryRows = makeRows();
  SmallVector<Value> carried;
  for (Line &line : lines.all)
    carried.push_back(beginLine(line, queryRows));
  if (inGroups() && endsApart())
    pastFull = tokensPastFull();
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, b.i32(1), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    for (auto [line, state] : llvm::zip(lines.all, segments.getRegionIterArgs()))
      line.state = state;
    auto segment = readRecord<Segment>(b, segments.getInductionVar(), fieldsOf(start.segment));
    walkSegment(segment, queryRows);
    if (chain.first)
      finishFirst(segments.getInductionVar(), lines.all.front().state, queryRows);
    scf::YieldOp::create(b, llvm::map_to_vector(lines.all, [](Line &line) { return line.state; }));
  }
  for (auto [line, state] : llvm::zip(lines.all, segments.getResults()))
    line.state = state;
  if (inGroups()) {
    auto tasks = cast<scf::ForOp>(segments->getParentOp());
    setTask(readRecord<Task>(b, tasks.getInductionVar()));
    queryRows = makeRows();
  }
  finishTask(queryRows);
}

Value Walk::tokensOf(unsigned operand, const Segment &segment, Value firstKey) {
  Value region = mapping.lookup(chain.updates[operand].getKv());
  Value behind = storesScoresAttr.isOn(b.kernel)
                     ? tokenSlotsBefore(b, ArrayRef(chain.updates).take_front(operand))
                     : Value();
  return TokensOp::create(b, region.getType(), region, segment.instance, firstKey, segment.kvEnd,
                          segment.fullBegin, segment.fullEnd, segment.pos0, segment.firstOrdinal,
                          /*head=*/Value(),
                          /*warp=*/Value(), /*group=*/Value(), behind, byRow ? segment.kvBegin : Value());
}

Value Walk::update(unsigned operand, Value state, Value queryRows, Value tokens) {
  UpdateOp source = chain.updates[operand];
  IRMapping onTile = mapping;
  onTile.map(source.getState(), state);
  onTile.map(source.getQuery(), queryRows);
  onTile.map(source.getKv(), tokens);
  auto onTiles = cast<UpdateOp>(b.clone(*source, onTile));
  numberUpdate(onTiles, chain, operand);
  return onTiles.getResult();
}

void Walk::walkTiles(unsigned operand, Line &line, const Segment &segment, Value queryRows) {
  Value begin = tilesBegin(segment);
  auto loop = scf::ForOp::create(b, b.i32(0), tilesOf(segment, operand, begin), b.i32(1), line.state);
  tile::stagesAttr.set(loop, b.getI64IntegerAttr(schedule.getStages()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = b.add(begin, b.mul(loop.getInductionVar(), b.i32(schedule.getKeys())));
  if (schedule.getSplitKeys())
    firstKey = b.add(firstKey, b.mul(warp, b.i32(schedule.getWarpKeys())));
  Value tokens = tokensOf(operand, segment, firstKey);
  scf::YieldOp::create(b, update(operand, loop.getRegionIterArg(0), queryRows, tokens));
  line.state = loop.getResult(0);
}

void Walk::walkTilesOfAll(Line &line, const Segment &segment, Value queryRows) {
  bool apart = endsApart();
  Value end = apart ? b.add(segment.fullEnd, pastFull) : Value();
  Value hasRows = apart || oneGroup() ? Value() : b.less(groupRow, packedCount);
  Value begin = tilesBegin(segment);
  // Copies of quantized values run ahead by tiles, which are then counted.
  const bool counts = widensTokens(
      schedule,
      llvm::map_to_vector(chain.updates, [](UpdateOp update) -> KVType { return update.getKv().getType(); }));
  auto loop = counts ? scf::ForOp::create(b, b.i32(0), tilesOf(segment, 0, begin), b.i32(1), line.state)
                     : scf::ForOp::create(b, begin, segment.kvEnd, b.i32(schedule.getKeys()), line.state);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = loop.getInductionVar();
  if (counts)
    firstKey = b.add(begin, b.mul(firstKey, b.i32(schedule.getKeys())));
  SmallVector<Value> tokens, updated;
  for (unsigned operand = 0; operand < chain.updates.size(); ++operand)
    tokens.push_back(tokensOf(operand, segment, firstKey));
  Value state = loop.getRegionIterArg(0);
  if (Value computes = apart ? b.less(firstKey, end) : hasRows) {
    auto some = scf::IfOp::create(b, TypeRange{state.getType()}, computes, /*withElseRegion=*/true);
    scf::YieldOp::create(b, some.getResults());
    b.setInsertionPointToStart(some.elseBlock());
    scf::YieldOp::create(b, state);
    b.setInsertionPointToStart(some.thenBlock());
  }
  for (auto [operand, tile] : llvm::enumerate(tokens))
    updated.push_back(update(operand, state, queryRows, tile));
  Value one = updated.front();
  if (updated.size() > 1)
    one = OneOfOp::create(b, state.getType(), segment.operand, updated);
  scf::YieldOp::create(b, one);
  line.state = loop.getResult(0);
}

void Walk::finishFirst(Value segment, Value state, Value queryRows) {
  Value count = b.createOrFold<arith::ShRUIOp>(flags, b.i32(::attn::rt::taskFirstShift));
  Value behind = b.add(segment, b.i32(1));
  auto last = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, behind, b.add(segmentBegin, count)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(last.thenYield());
  IRMapping left = mapping;
  left.map(chain.first.getState(), state);
  auto finish = cast<FinishOp>(b.clone(*chain.first, left));
  finish.getRowsMutable().assign(queryRows);
  firstAttr.mark(mlir::attn::WriteOp::create(b, finish.getOutput(), finish.getLse(), queryRows, b.i32(-1),
                                             Value(), Value(), Value(), false));
}

void Walk::finishTask(Value queryRows) {
  if (chain.gradient) {
    WriteGradientOp::create(b, lines.all.front().state, queryRows, Value(), /*sums=*/false,
                            /*summed=*/false);
    return;
  }
  FinishOp finish = finishStates(queryRows);
  if (byRow)
    return writeFolded(finish.getOutput(), queryRows);
  write(finish.getOutput(), finish.getLse(), queryRows, partial);
}

FinishOp Walk::finishStates(Value queryRows) {
  IRMapping left = mapping;
  for (InitOp init : chain.inits) {
    if (!lines.beginWith(init.getState())) {
      left.map(init.getQuery(), queryRows);
      b.clone(*init, left);
    }
  }
  for (Operation &op : *chain.finish->getBlock()) {
    if (auto update = dyn_cast<UpdateOp>(op)) {
      auto found = lines.lastOf.find(update.getResult());
      if (found == lines.lastOf.end())
        continue; // the line continues
      Line &line = lines.all[found->second];
      Value state = line.state;
      if (!line.begin)
        state = MergeOp::create(b, state.getType(),
                                left.lookup(chain.updates[line.updates.front()].getState()), state);
      left.map(update.getResult(), state);
    } else if (llvm::is_contained(chain.changes, &op)) {
      b.clone(op, left);
    }
  }
  Value state = left.lookup(chain.finish.getState());
  if (schedule.getSplitKeys())
    state = WarpsOp::create(b, state.getType(), state);
  left.map(chain.finish.getState(), state);
  auto finish = cast<FinishOp>(b.clone(*chain.finish, left));
  finish.getRowsMutable().assign(queryRows);
  finish.getGateMutable().clear(); // the write has it
  finish.getOutputScaleMutable().clear();
  if (Value sinks = chain.sinks(); sinks && !byRow) // else they follow all parts
    finish.getSinksMutable().assign(mapping.lookup(sinks));
  return finish;
}

} // namespace

void mlir::attn::walkTasks(Chain &chain, func::FuncOp kernel, const IRMapping &arguments) {
  Walk(chain, kernel).run(arguments);
}

//===- WgmmaKernel.cpp - The wgmma schedule -------------------------------===//
//
// Hopper's division of labour, after FlashAttention-3 (arXiv 2407.08608). One
// warpgroup, the producer, copies: queries once per task, then keys and values
// of tile after tile into two rings, as slots come free. The other warpgroups,
// the consumers, compute 64 rows each. Barriers in shared memory pass slots
// back and forth: `full` completes when a tile's copies have landed, `empty`
// when every consumer warp has read it. Both sides count tiles, t: its slot is
// t mod S, and the parity of its round is (t / S) mod 2.
//
// Where the store allows it three warps of the producer fetch whole boxes
// (AttendCopies.cpp): keys, values, queries; else all four gather. What lies
// behind the last token is whatever memory holds, perhaps NaN, and 0 * NaN would
// reach the output: the producer clears those lines of the values before it
// hands them on. (Keys need no such care: their scores are masked.)
//
// Inside a consumer the tensor cores work while the softmax does:
//
//   for t = 0 ..:  start  S(t) = Q K(t)
//                  start  O += P(t-1) V(t-1)           unless t = 0
//                  wait for S(t), hand back K(t);      softmax(t)   | O still running
//                  wait for O,    hand back V(t-1);    rescale O, round P(t)
//   O += P(last) V(last)
//
// The softmax stands once, so the first tile, which has no output to start, goes
// through the loop with the others. (Code is what ptxas takes its time for.)
//
// Between consumers the same overlap may be arranged by turns (ping-pong): one
// warpgroup starts its dots, then lets the next start, and computes its softmax
// while the tensor cores work for the others. A named barrier each: waiting for
// one's own turn, passing by the next one's.
//
// P(t) is rounded to 16 bits only after the wait for O: its registers are the
// left operand of the dot still in flight, and ptxas would serialise every
// wgmma of the kernel (warning C7513) if they were written before.
//
// Results leave through the queries' slot, where a warpgroup's rows are a box of
// their own (AttendCopies.cpp). It is empty when the copy engine has read them,
// which is asked when the next task has begun: nobody waits meanwhile.
//
//===----------------------------------------------------------------------===//
#include "AttendKernel.h"

#include <numeric>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Threads of the two consumer warpgroups that pass a turn on.
constexpr int64_t turnThreads = 256;
class WgmmaKernel : public AttendKernel {
public:
  WgmmaKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name)
      : AttendKernel(chain, schedule, module, name), producerWarps(schedule.getProducerWarps()),
        fetches(schedule.fetchesTokens()), fetchesQuery(schedule.fetchesQueries()),
        queryTiles(*schedule.getQuerySlots()), sends(schedule.sendsResults()) {}
  void write();

private:
  /// A ring of tiles with the barriers of its slots.
  struct Ring {
    Value tiles, full, empty;
  };
  /// A ring whose tiles may have to be cleared before they are handed on has one barrier more.
  Ring makeRing(int64_t features, int64_t boxes, bool clears);
  Value alloc(Type type) { return AllocOp::create(b, type, Value(), false, IntegerAttr()); }
  Value slotOf(Value tile) { return b.rem(tile, schedule.getStages()); }
  Value parityOf(Value tile) { return b.rem(b.div(tile, schedule.getStages()), 2); }
  Value tileIn(const Ring &ring, Value slot) {
    return SlotOp::create(b, cast<RingType>(ring.tiles.getType()).getTile(), ring.tiles, slot);
  }

  void produce();
  void produceTasks(StringRef part, bool queries);
  void produceQueries(Value phases);
  /// Fills the rings, or the one of `part`, with the tiles of a task's segments; returns the next tile and
  /// the phases.
  ValueRange produceTokens(StringRef part, Value tile, Value phases);
  Value gatherTiles(UpdateOp update, const Segment &segment, Value end, Value tile);
  void gatherTile(UpdateOp update, const Segment &segment, Value firstKey, Value slots, StringRef part,
                  const Ring &ring, Value tile);
  Value fetchTiles(UpdateOp update, const Segment &segment, StringRef part, Value tile, Value phases);
  void fetchTile(UpdateOp update, Value left, Value slot, StringRef part, Value tile, Value phases);
  /// What one warp alone does.
  scf::IfOp onlyWarp(int64_t which, TypeRange results = {}) {
    return scf::IfOp::create(b, results, b.compare(arith::CmpIPredicate::eq, warp, b.i32(which)),
                             /*withElseRegion=*/!results.empty());
  }
  void consume();
  /// Whether some of the task's rows are this warpgroup's.
  Value hasRows() { return b.less(warpgroupRow, packedCount); }
  /// Hands a segment's tiles back and computes nothing: a task of few rows costs the tensor cores no more
  /// than these. Nobody may be two phases of a barrier ahead, or parities would be confused. Turns see to
  /// that, for who has started a tile's dots has awaited its keys and the values before; without turns waits
  /// do. Returns the number of the next tile.
  Value passSegment(const Segment &segment, Value firstTile);
  /// Returns the number of the next tile, too.
  std::pair<State, Value> walkSegment(const Segment &segment, Value firstTile, const State &state);
  Value startScores(Value tile);
  Value startOutput(Value weights, Value acc, Value tile, bool fenced);
  Value finish(Value started, int64_t pending) {
    return FinishDotsOp::create(b, TypeRange{started.getType()}, pending, ValueRange{started}).getResult(0);
  }
  /// Named barrier that says it is the turn of this warpgroup, and of the next one.
  Value turnOfThis() { return b.add(b.i32(1), warpgroup); }
  Value turnOfNext() { return b.add(b.i32(1), b.rem(b.add(warpgroup, b.i32(1)), consumers())); }
  int64_t consumers() { return schedule.getConsumers(); }
  bool takesTurns() { return *schedule.getTurns(); }
  void awaitTurn() {
    if (takesTurns())
      MeetOp::create(b, turnOfThis(), turnThreads);
  }
  void passTurn() {
    if (takesTurns())
      PassByOp::create(b, turnOfNext(), turnThreads);
  }
  /// Never a constant: LLVM would make the addresses of the slot's barriers constants, and ptxas, which finds
  /// those in branches of one lane, would then keep no address or descriptor of the kernel in uniform
  /// registers.
  Value querySlot(Value task) {
    Value slot = b.rem(task, queryTiles);
    return queryTiles > 1 ? slot : FromLaneOp::create(b, slot, b.i32(0));
  }
  Value queryParity(Value task) { return b.rem(b.div(task, queryTiles), 2); }
  Value queryAt(Value task) {
    return SlotOp::create(b, cast<RingType>(queryRing.getType()).getTile(), queryRing, querySlot(task));
  }
  /// Parity of the phase of `queryEmpty` that frees the slot of a task's queries.
  Value freeParity(Value task) { return b.sub(b.i32(1), queryParity(sends ? b.add(task, b.i32(1)) : task)); }
  void release(const Ring &ring, Value tile, Value condition = Value()) {
    ArriveOp::create(b, ring.empty, slotOf(tile), condition);
  }

  int64_t producerWarps;
  bool fetches, fetchesQuery;
  int64_t queryTiles;
  bool sends; ///< results leave by bulk copies
  Value warp, warpgroup, warpgroupRow, queryRing, queryTile, queryFull, queryEmpty;
  Ring keyRing, valueRing;
};

WgmmaKernel::Ring WgmmaKernel::makeRing(int64_t features, int64_t boxes, bool clears) {
  auto type =
      RingType::get(b.getContext(), schedule.getStages(), sharedType(Axis::Key, keys, features, boxes));
  int64_t stages = schedule.getStages();
  return {alloc(type), alloc(BarriersType::get(b.getContext(), clears ? stages + 1 : stages)),
          alloc(BarriersType::get(b.getContext(), stages))};
}

void WgmmaKernel::write() {
  warp = WarpIdOp::create(b, b.getI32Type());
  Value consumer = b.sub(warp, b.i32(producerWarps));
  begin(b.mul(consumer, b.i32(rows)));
  warpgroup = b.div(consumer, 4);
  warpgroupRow = b.mul(warpgroup, b.i32(4 * rows));

  queryRing = alloc(RingType::get(
      b.getContext(), queryTiles,
      sharedType(Axis::Query, schedule.getRows(), chain.paddedKeyDim(), schedule.getQueryBoxes())));
  keyRing = makeRing(chain.paddedKeyDim(), 0, /*clears=*/false);
  valueRing = makeRing(chain.paddedValueDim(), *schedule.getValueBoxes(), /*clears=*/fetches);
  auto barriers = BarriersType::get(b.getContext(), queryTiles);
  queryFull = alloc(barriers);
  queryEmpty = alloc(barriers);
  // A fetch arrives once; of a gather each producer thread arrives with its copies.
  InitBarriersOp::create(b, queryFull, fetchesQuery ? 1 : producerWarps * 32);
  for (Value full : {keyRing.full, valueRing.full})
    InitBarriersOp::create(b, full, fetches ? 1 : producerWarps * 32);
  for (Value empty : {queryEmpty, keyRing.empty, valueRing.empty})
    InitBarriersOp::create(b, empty, schedule.getWarps());
  if (fetches)
    PublishBarriersOp::create(b);
  SyncOp::create(b, Scope::Block);

  readStart();
  Value produces = b.less(warp, b.i32(producerWarps));
  auto roles = scf::IfOp::create(b, produces, /*withElseRegion=*/true);
  b.setInsertionPoint(roles.thenYield());
  SetRegistersOp::create(b, *schedule.getProducerRegisters(), false);
  produce();
  b.setInsertionPoint(roles.elseYield());
  SetRegistersOp::create(b, *schedule.getConsumerRegisters(), true);
  consume();
  b.setInsertionPointAfter(roles);
  if (fetches) {
    int64_t align = 1;
    for (auto [update, lines] : llvm::zip_equal(chain.updates, schedule.getKeyCopies()))
      if (update.getKv().getType().getStore() == Store::Paged)
        align = std::lcm(align, lines);
    b.kernel->setAttr("tile.key_align", b.getI32IntegerAttr(align));
  }
  end(schedule.getThreads());
}

/// One warp fetches keys, another values, a third queries, so that none waits for a slot of another's ring:
/// the next task's first keys and values arrive while its queries' slot is still read. Unless queries are
/// gathered: all warps of the producer do that, task by task.
void WgmmaKernel::produce() {
  if (!fetchesQuery)
    return produceTasks({}, true);
  for (auto [number, part] : llvm::enumerate(ArrayRef<StringRef>{"k", "v", "q"})) {
    auto branch = onlyWarp(number);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenYield());
    produceTasks(part, part == "q");
  }
}

/// The producer's registers are few: what it waits for is in one of them, bits 0 and 1 the number of tasks
/// modulo four and bit 2 the parity of tiles that had to be cleared.
void WgmmaKernel::produceTasks(StringRef part, bool queries) {
  Value zero = b.i32(0);
  scf::ForOp tasks = beginTasks(ValueRange{zero, zero});
  readTask(tasks.getInductionVar());
  SmallVector<Value> counts(tasks.getRegionIterArgs()); // tile, phases
  if (queries)
    produceQueries(counts[1]);
  if (fetches && !fetchesQuery) {
    for (StringRef each : {"k", "v"}) {
      auto branch = onlyWarp(each == "k" ? 0 : 1, ValueRange(counts).getTypes());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.elseBlock());
      scf::YieldOp::create(b, counts);
      b.setInsertionPointToStart(branch.thenBlock());
      scf::YieldOp::create(b, produceTokens(each, counts[0], counts[1]));
      counts.assign(branch->result_begin(), branch->result_end());
    }
  } else if (part != "q") {
    llvm::copy(produceTokens(part, counts[0], counts[1]), counts.begin());
  }
  Value cleared = b.createOrFold<arith::AndIOp>(counts[1], b.i32(4));
  Value seen = b.createOrFold<arith::AndIOp>(b.add(counts[1], b.i32(1)), b.i32(3));
  scf::YieldOp::create(b, ValueRange{counts[0], b.createOrFold<arith::OrIOp>(cleared, seen)});
  b.setInsertionPointAfter(tasks);
  if (!fetchesQuery) { // no thread leaves with copies under way
    CommitOp::create(b);
    WaitOp::create(b, 0);
  }
}

void WgmmaKernel::produceQueries(Value phases) {
  Value task = b.rem(phases, 4), slot = querySlot(task), target = queryAt(task);
  AwaitOp::create(b, queryEmpty, slot, freeParity(task));
  if (fetchesQuery) {
    SyncOp::create(b,
                   Scope::Warp); // all lanes have seen this phase before a copy lets consumers end the next
    return fetchQueries(target, queryFull, slot);
  }
  gatherQueries(target, Scope::Producers);
  ArriveOnCopiesOp::create(b, queryFull, slot);
}

ValueRange WgmmaKernel::produceTokens(StringRef part, Value tile, Value phases) {
  Value one = b.i32(1);
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, one, ValueRange{tile, phases});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(segments.getBody());
  Segment segment = readRecord<Segment>(b, segments.getInductionVar());
  tile = segments.getRegionIterArg(0);
  phases = segments.getRegionIterArg(1);
  for (auto [operand, update] : llvm::enumerate(chain.updates)) {
    Value end = endOf(segment, operand);
    if (!fetches) {
      tile = gatherTiles(update, segment, end, tile);
      continue;
    }
    auto some = scf::IfOp::create(b, TypeRange{tile.getType()}, b.less(segment.kvBegin, end), true);
    {
      OpBuilder::InsertionGuard inBranch(b);
      b.setInsertionPointToStart(some.elseBlock());
      scf::YieldOp::create(b, ValueRange{tile});
      b.setInsertionPointToStart(some.thenBlock());
      scf::YieldOp::create(b, ValueRange{fetchTiles(update, segment, part, tile, phases)});
    }
    tile = some.getResult(0);
  }
  // Only a segment's last tile can have a tail.
  Value tail = b.compare(arith::CmpIPredicate::ne,
                         b.rem(b.sub(segment.kvEnd, segment.kvBegin), schedule.getKeys()), b.i32(0));
  scf::YieldOp::create(
      b, ValueRange{tile, b.select(tail, b.createOrFold<arith::XOrIOp>(phases, b.i32(4)), phases)});
  return segments.getResults();
}

Value WgmmaKernel::gatherTiles(UpdateOp update, const Segment &segment, Value end, Value tile) {
  auto loop = scf::ForOp::create(b, segment.kvBegin, end, b.i32(schedule.getKeys()), ValueRange{tile});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  tile = loop.getRegionIterArg(0);
  Value firstKey = loop.getInductionVar();
  Value slots = lookupTokens(update, segment, firstKey, Scope::Producers);
  gatherTile(update, segment, firstKey, slots, "k", keyRing, tile);
  gatherTile(update, segment, firstKey, slots, "v", valueRing, tile);
  scf::YieldOp::create(b, ValueRange{b.add(tile, b.i32(1))});
  return loop.getResult(0);
}

/// Fetches the tiles of a segment that is not empty; a tile's slots are looked up while the one before waits
/// for its ring. Returns the number of the next tile.
Value WgmmaKernel::fetchTiles(UpdateOp update, const Segment &segment, StringRef part, Value tile,
                              Value phases) {
  Value step = b.i32(schedule.getKeys());
  auto loop = scf::ForOp::create(b, segment.kvBegin, segment.kvEnd, step,
                                 ValueRange{fetchSlot(update, segment, segment.kvBegin), tile});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = loop.getInductionVar(), slot = loop.getRegionIterArg(0);
  tile = loop.getRegionIterArg(1);
  Value next = fetchSlot(update, segment, b.add(firstKey, step));
  fetchTile(update, b.sub(segment.kvEnd, firstKey), slot, part, tile, phases);
  scf::YieldOp::create(b, ValueRange{next, b.add(tile, b.i32(1))});
  return loop.getResult(1);
}

void WgmmaKernel::gatherTile(UpdateOp update, const Segment &segment, Value firstKey, Value slots,
                             StringRef part, const Ring &ring, Value tile) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, ring.empty, slot, b.sub(b.i32(1), parityOf(tile)));
  gatherTokens(update, segment, firstKey, slots, {part}, ValueRange{tileIn(ring, slot)}, Scope::Producers);
  ArriveOnCopiesOp::create(b, ring.full, slot);
}

/// `left` tokens are left of the segment.
void WgmmaKernel::fetchTile(UpdateOp update, Value left, Value source, StringRef part, Value tile,
                            Value phases) {
  const Ring &ring = part == "k" ? keyRing : valueRing;
  Value slot = slotOf(tile), target = tileIn(ring, slot);
  AwaitOp::create(b, ring.empty, slot, b.sub(b.i32(1), parityOf(tile)));
  SyncOp::create(b, Scope::Warp); // all lanes have seen this phase before a copy lets consumers end the next
  if (part == "k")
    return fetchTokens(update, source, part, target, ring.full, slot);
  Value landed = b.i32(schedule.getStages()); // the ring's additional barrier
  Value isTail = b.less(left, b.i32(schedule.getKeys()));
  fetchTokens(update, source, part, target, ring.full, b.select(isTail, landed, slot));
  auto branch = scf::IfOp::create(b, isTail);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  AwaitOp::create(b, ring.full, landed, b.div(phases, 4));
  ClearOp::create(b, target, left);
  FenceAsyncOp::create(b);
  SyncOp::create(b, Scope::Warp); // all lanes have cleared
  ArriveOp::create(b, ring.full, slot, Value());
}

void WgmmaKernel::consume() {
  Value zero = b.i32(0), one = b.i32(1);
  auto only = [&](int64_t which, function_ref<void()> body) { // the consumers of one warpgroup
    auto branch = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, warpgroup, b.i32(which)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenYield());
    body();
  };
  if (takesTurns()) // the first turn is the first warpgroup's
    only(consumers() - 1, [&] { PassByOp::create(b, turnOfNext(), turnThreads); });
  SmallVector<Value> counts{zero, zero};
  llvm::append_range(counts, flatten(start.task, start.segment));
  scf::ForOp tasks = beginTasks(counts);
  Value taskCount = tasks.getRegionIterArg(0), tileCount = tasks.getRegionIterArg(1);
  ValueRange records = tasks.getRegionIterArgs().drop_front(2);
  setTask(takeRecord<Task>(records));
  readRows();
  Value sinks = chain.init.getSinks();
  State initial = initialState(sinks, sinks ? countsSink() : Value());
  if (sends) { // meanwhile the results before have left, and their slot is free
    FinishSendsOp::create(b);
    SyncOp::create(b, Scope::Warp); // lanes themselves read a box that was not full
    ArriveOp::create(b, queryEmpty, querySlot(b.add(taskCount, one)), Value());
  }
  AwaitOp::create(b, queryFull, querySlot(taskCount), queryParity(taskCount));
  queryTile = queryAt(taskCount);
  if (fetches && !fetchesQuery) // gathered keys bring a fence of their own
    FenceAsyncOp::create(b);

  SmallVector<Value> carried = initial.values();
  carried.push_back(tileCount);
  llvm::append_range(carried, records);
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, one, carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    ValueRange in = segments.getRegionIterArgs().take_front(4);
    ValueRange record = segments.getRegionIterArgs().drop_front(4);
    Segment segment = takeRecord<Segment>(record);
    // An empty segment has no first tile to start with.
    Value computes = b.createOrFold<arith::AndIOp>(b.less(segment.kvBegin, segment.kvEnd), hasRows());
    auto some = scf::IfOp::create(b, TypeRange(in), computes, /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard inBranch(b);
      b.setInsertionPointToStart(some.thenBlock());
      auto [state, tile] = walkSegment(segment, in[3], {in[0], in[1], in[2]});
      SmallVector<Value> out = state.values();
      out.push_back(tile);
      scf::YieldOp::create(b, out);
      b.setInsertionPointToStart(some.elseBlock());
      Value passed = passSegment(segment, in[3]);
      scf::YieldOp::create(b, ValueRange{in[0], in[1], in[2], passed});
    }
    SmallVector<Value> out(some.getResults());
    Value next = b.add(segments.getInductionVar(), one);
    llvm::append_range(out, flatten(readRecordIf<Segment>(b, b.less(next, segmentEnd), next)));
    scf::YieldOp::create(b, out);
  }
  // The producer may fetch the next task's queries while this one's results are written. No lane may still be
  // waiting for this one's: where a task has no tokens, there was no dot to meet at.
  if (!sends) {
    SyncOp::create(b, Scope::Warp);
    ArriveOp::create(b, queryEmpty, querySlot(taskCount), Value());
  }
  // The next task's records are asked for while this one's results are written: its task first, and when that
  // is there its first segment.
  Value next = b.add(tasks.getInductionVar(), one);
  Task after = readRecordIf<Task>(b, b.less(next, start.tasksEnd), next);
  Value sum = CompleteOp::create(b, rowsOf(b.getF32Type()), segments.getResult(1));
  readTask(tasks.getInductionVar());
  auto send = [&](Value output) {
    sendOutput(output, queryTile, warpgroupRow, b.add(b.i32(1 + consumers()), warpgroup));
  };
  Value lines = b.sub(packedCount, warpRow);
  Results finished = finishState(segments.getResult(0), sum, segments.getResult(2));
  writeResults(finished, Value(), outputColumns(), lines, sends ? function_ref<void(Value)>(send) : nullptr);
  SmallVector<Value> results{b.add(taskCount, one), segments.getResult(3)};
  llvm::append_range(results, flatten(after, firstSegmentOf(after)));
  scf::YieldOp::create(b, results);
  b.setInsertionPointAfter(tasks);
  if (sends)
    FinishSendsOp::create(b);
  if (takesTurns()) // and so is the turn that is left over
    only(0, [&] { MeetOp::create(b, turnOfThis(), turnThreads); });
}

/// Waits for the keys of a tile and starts its scores.
Value WgmmaKernel::startScores(Value tile) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, keyRing.full, slot, parityOf(tile));
  if (!fetches)
    FenceAsyncOp::create(b);
  return StartDotOp::create(b, scoresType(), queryTile, warpgroupRow, tileIn(keyRing, slot), Value());
}

/// Waits for the values of a tile and starts adding its share of the output. `fenced`: the fence behind the
/// wait for later keys serves both, because a producer arrives with all that it has gathered so far.
Value WgmmaKernel::startOutput(Value weights, Value acc, Value tile, bool fenced) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, valueRing.full, slot, parityOf(tile));
  if (!fetches && !fenced)
    FenceAsyncOp::create(b);
  return StartDotOp::create(b, accType(), weights, Value(), tileIn(valueRing, slot), acc);
}

Value WgmmaKernel::passSegment(const Segment &segment, Value firstTile) {
  auto loop =
      scf::ForOp::create(b, segment.kvBegin, segment.kvEnd, b.i32(schedule.getKeys()), ValueRange{firstTile});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value tile = loop.getRegionIterArg(0), slot = slotOf(tile);
  if (takesTurns()) {
    awaitTurn();
    passTurn();
  } else {
    AwaitOp::create(b, keyRing.full, slot, parityOf(tile));
    AwaitOp::create(b, valueRing.full, slot, parityOf(tile));
    SyncOp::create(b, Scope::Warp); // all lanes have seen these phases before one ends them
  }
  release(keyRing, tile);
  release(valueRing, tile);
  scf::YieldOp::create(b, ValueRange{b.add(tile, b.i32(1))});
  return loop.getResult(0);
}

/// The segment has a tile at least. Loops count keys and tiles, not both and an index: registers are short.
std::pair<State, Value> WgmmaKernel::walkSegment(const Segment &segment, Value firstTile,
                                                 const State &state) {
  Value one = b.i32(1), minusOne = b.i32(-1);
  Value none = UndefinedOp::create(b, scoresType().withElement(chain.element()));
  auto loop = scf::ForOp::create(b, segment.kvBegin, segment.kvEnd, b.i32(schedule.getKeys()),
                                 ValueRange{state.max, state.sum, state.acc, none, firstTile});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value firstKey = loop.getInductionVar(), weights = loop.getRegionIterArg(3),
          tile = loop.getRegionIterArg(4);
    State before{loop.getRegionIterArg(0), loop.getRegionIterArg(1), loop.getRegionIterArg(2)};
    Value previous = b.add(tile, minusOne), isLater = b.less(segment.kvBegin, firstKey);
    awaitTurn();
    Value started = startScores(tile);
    auto dots = scf::IfOp::create(b, TypeRange{scoresType(), accType()}, isLater, /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard inBranch(b);
      b.setInsertionPointToStart(dots.thenBlock());
      Value output = startOutput(weights, before.acc, previous, /*fenced=*/true);
      passTurn();
      scf::YieldOp::create(b, ValueRange{finish(started, 1), output});
      b.setInsertionPointToStart(dots.elseBlock());
      passTurn();
      scf::YieldOp::create(b, ValueRange{finish(started, 0), before.acc});
    }
    release(keyRing, tile);
    Step next = softmax(finishScores(dots.getResult(0), std::nullopt, segment, firstKey), before);
    // Waits in both branches of what the softmax decided: ptxas would hoist one wait in front of the softmax,
    // were both one basic block, and nothing would overlap.
    Value output = rescale([&] { return finish(dots.getResult(1), 0); }, next);
    release(valueRing, previous, isLater);
    scf::YieldOp::create(b,
                         ValueRange{next.max, next.sum, output, packWeights(next.weights), b.add(tile, one)});
  }
  ValueRange out = loop.getResults();
  Value last = b.add(out[4], minusOne);
  Value acc = finish(startOutput(out[3], out[2], last, /*fenced=*/false), 0);
  release(valueRing, last);
  return {{out[0], out[1], acc}, out[4]};
}

} // namespace

void mlir::attn::writeWgmmaKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module,
                                  StringRef name) {
  WgmmaKernel(chain, schedule, module, name).write();
}

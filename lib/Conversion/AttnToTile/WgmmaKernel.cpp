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
// Inside a consumer the tensor cores work while the softmax does:
//
//   S(0) = Q K(0)                               softmax(0)
//   for t = 1 ..:  start  S(t) = Q K(t)
//                  start  O += P(t-1) V(t-1)
//                  wait for S(t), hand back K(t);      softmax(t)   | O still running
//                  wait for O,    hand back V(t-1);    rescale O, round P(t)
//   O += P(last) V(last)
//
// Between consumers the same overlap is arranged by turns (ping-pong): one
// warpgroup starts its dots, then lets the other start, and computes its softmax
// while the tensor cores work for the other. A named barrier each: waiting for
// one's own turn, passing by the other's.
//
// P(t) is rounded to 16 bits only after the wait for O: its registers are the
// left operand of the dot still in flight, and ptxas would serialise every
// wgmma of the kernel (warning C7513) if they were written before.
//
//===----------------------------------------------------------------------===//
#include "AttendKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Producer threads: a warpgroup, because registers are given and taken by warpgroups.
constexpr int64_t producerWarps = ScheduleAttr::producerWarps;
/// Threads of the two consumer warpgroups that take turns.
constexpr int64_t turnThreads = 256;
/// Registers per thread of the two roles: one producer and two consumer warpgroups share the 65,536. Wide
/// values leave consumers short, so the producer of those gets by with fewer (what ptxas 13.0 needs to spill
/// nothing, 2026-11-20).
struct Registers {
  int64_t producer, consumer;
  static Registers of(int64_t valueDim) { return valueDim > 208 ? Registers{40, 232} : Registers{56, 224}; }
};

class WgmmaKernel : public AttendKernel {
public:
  using AttendKernel::AttendKernel;
  void write();

private:
  /// A ring of tiles with the barriers of its slots.
  struct Ring {
    Value tiles, full, empty;
  };
  Ring makeRing(int64_t features);
  Value alloc(Type type) { return AllocOp::create(b, type, Value(), false, IntegerAttr()); }
  Value slotOf(Value tile) { return b.rem(tile, schedule.getStages()); }
  Value parityOf(Value tile) { return b.rem(b.div(tile, schedule.getStages()), 2); }
  Value tileIn(const Ring &ring, Value slot) {
    return SlotOp::create(b, cast<RingType>(ring.tiles.getType()).getTile(), ring.tiles, slot);
  }

  void produce();
  void fill(UpdateOp update, const Segment &segment, Value firstKey, StringRef part, const Ring &ring,
            Value tile);
  void consume();
  State walkSegment(const Segment &segment, Value tiles, Value firstTile, const State &state);
  Value startScores(Value tile);
  Value startOutput(Value weights, Value acc, Value tile);
  Value finishAndRescale(Value started, const Step &step);
  Value finish(Value started, int64_t pending) {
    return FinishDotsOp::create(b, TypeRange{started.getType()}, pending, ValueRange{started}).getResult(0);
  }
  /// Named barrier that says it is the turn of this warpgroup, and of the other one.
  Value turnOfThis() { return b.add(b.i32(1), warpgroup); }
  Value turnOfOther() { return b.sub(b.i32(2), warpgroup); }
  bool takesTurns() { return schedule.getWarps() == 8; }
  void release(const Ring &ring, Value tile) { ArriveOp::create(b, ring.empty, slotOf(tile)); }

  Value warpgroup, warpgroupRow, queryTile, queryFull, queryEmpty;
  Ring keyRing, valueRing;
};

WgmmaKernel::Ring WgmmaKernel::makeRing(int64_t features) {
  auto type = RingType::get(b.getContext(), schedule.getStages(), sharedType(Axis::Key, keys, features));
  auto barriers = BarriersType::get(b.getContext(), schedule.getStages());
  return {alloc(type), alloc(barriers), alloc(barriers)};
}

void WgmmaKernel::write() {
  Value warp = WarpIdOp::create(b, b.getI32Type());
  Value consumer = b.sub(warp, b.i32(producerWarps));
  begin(b.mul(consumer, b.i32(rows)), Value());
  warpgroup = b.div(consumer, 4);
  warpgroupRow = b.mul(warpgroup, b.i32(4 * rows));

  queryTile = alloc(sharedType(Axis::Query, schedule.getRows(), chain.keyDim()));
  keyRing = makeRing(chain.keyDim());
  valueRing = makeRing(chain.valueDim());
  auto one = BarriersType::get(b.getContext(), 1);
  queryFull = alloc(one);
  queryEmpty = alloc(one);
  for (Value full : {queryFull, keyRing.full, valueRing.full})
    InitBarriersOp::create(b, full, producerWarps * 32); // each producer thread arrives with its copies
  for (Value empty : {queryEmpty, keyRing.empty, valueRing.empty})
    InitBarriersOp::create(b, empty, schedule.getWarps());
  SyncOp::create(b, Scope::Block);

  Registers registers = Registers::of(chain.valueDim());
  Value produces = b.less(warp, b.i32(producerWarps));
  auto roles = scf::IfOp::create(b, produces, /*withElseRegion=*/true);
  b.setInsertionPoint(roles.thenYield());
  SetRegistersOp::create(b, registers.producer, false);
  produce();
  b.setInsertionPoint(roles.elseYield());
  SetRegistersOp::create(b, registers.consumer, true);
  consume();
  b.setInsertionPointAfter(roles);
  end((producerWarps + schedule.getWarps()) * 32);
}

/// Loops carry how many tasks and tiles this role has seen.
void WgmmaKernel::produce() {
  Value zero = b.i32(0), one = b.i32(1);
  scf::ForOp tasks = beginTasks(ValueRange{zero, zero});
  Value taskCount = tasks.getRegionIterArg(0), tileCount = tasks.getRegionIterArg(1);
  AwaitOp::create(b, queryEmpty, zero, b.sub(one, b.rem(taskCount, 2)));
  gatherQueries(queryTile, Scope::Producers);
  ArriveOnCopiesOp::create(b, queryFull, zero);

  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, one, ValueRange{tileCount});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    Segment segment = readSegment(segments.getInductionVar());
    Value count = segments.getRegionIterArg(0);
    for (auto [operand, update] : llvm::enumerate(chain.updates)) {
      Value tiles = tilesOf(segment, operand);
      auto loop = scf::ForOp::create(b, zero, tiles, one);
      OpBuilder::InsertionGuard inLoop(b);
      b.setInsertionPointToStart(loop.getBody());
      Value firstKey = b.add(segment.kvBegin, b.mul(loop.getInductionVar(), b.i32(schedule.getKeys())));
      Value tile = b.add(count, loop.getInductionVar());
      fill(update, segment, firstKey, "k", keyRing, tile);
      fill(update, segment, firstKey, "v", valueRing, tile);
    }
    scf::YieldOp::create(b, ValueRange{b.add(count, tilesOf(segment, std::nullopt))});
  }
  scf::YieldOp::create(b, ValueRange{b.add(taskCount, one), segments.getResult(0)});
  b.setInsertionPointAfter(tasks);
  WaitOp::create(b, 0); // no thread leaves with copies under way
}

void WgmmaKernel::fill(UpdateOp update, const Segment &segment, Value firstKey, StringRef part,
                       const Ring &ring, Value tile) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, ring.empty, slot, b.sub(b.i32(1), parityOf(tile)));
  gatherTokens(update, segment, firstKey, {part}, ValueRange{tileIn(ring, slot)}, Scope::Producers);
  ArriveOnCopiesOp::create(b, ring.full, slot);
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
    only(1, [&] { PassByOp::create(b, turnOfOther(), turnThreads); });
  scf::ForOp tasks = beginTasks(ValueRange{zero, zero});
  Value taskCount = tasks.getRegionIterArg(0), tileCount = tasks.getRegionIterArg(1);
  readRows();
  State initial = initialState();
  AwaitOp::create(b, queryFull, zero, b.rem(taskCount, 2));
  FenceAsyncOp::create(b);

  SmallVector<Value> carried = initial.values();
  carried.push_back(tileCount);
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, one, carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    Segment segment = readSegment(segments.getInductionVar());
    ValueRange in = segments.getRegionIterArgs();
    Value tiles = tilesOf(segment, std::nullopt);
    // An empty segment has no first tile to start with.
    auto some =
        scf::IfOp::create(b, TypeRange(in.take_front(3)), b.less(zero, tiles), /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard inBranch(b);
      b.setInsertionPointToStart(some.thenBlock());
      scf::YieldOp::create(b, walkSegment(segment, tiles, in[3], {in[0], in[1], in[2]}).values());
      b.setInsertionPointToStart(some.elseBlock());
      scf::YieldOp::create(b, in.take_front(3));
    }
    SmallVector<Value> out(some.getResults());
    out.push_back(b.add(in[3], tiles));
    scf::YieldOp::create(b, out);
  }
  ArriveOp::create(b, queryEmpty, zero); // the producer may fetch the next task's queries while we write
  Value sum = CompleteOp::create(b, rowsOf(b.getF32Type()), segments.getResult(1));
  writeResults(segments.getResult(0), sum, segments.getResult(2), Value(), IntegerAttr(),
               b.sub(packedCount, warpRow));
  scf::YieldOp::create(b, ValueRange{b.add(taskCount, one), segments.getResult(3)});
  b.setInsertionPointAfter(tasks);
  if (takesTurns()) // and so is the turn that is left over
    only(0, [&] { MeetOp::create(b, turnOfThis(), turnThreads); });
}

/// Waits for the keys of a tile and starts its scores.
Value WgmmaKernel::startScores(Value tile) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, keyRing.full, slot, parityOf(tile));
  FenceAsyncOp::create(b);
  return StartDotOp::create(b, scoresType(), queryTile, warpgroupRow, tileIn(keyRing, slot), Value());
}

/// Waits for the values of a tile and starts adding its share of the output.
Value WgmmaKernel::startOutput(Value weights, Value acc, Value tile) {
  Value slot = slotOf(tile);
  AwaitOp::create(b, valueRing.full, slot, parityOf(tile));
  FenceAsyncOp::create(b);
  return StartDotOp::create(b, accType(), weights, Value(), tileIn(valueRing, slot), acc);
}

/// Waits for the output after the softmax, in both branches of what the softmax decided: ptxas would hoist a wait
/// in front of the softmax if both were one basic block, and nothing would overlap.
Value WgmmaKernel::finishAndRescale(Value started, const Step &step) {
  auto branch = scf::IfOp::create(b, started.getType(), step.moved, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value scaled = b.map(accType(), ValueRange{finish(started, 0), step.decay},
                       [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], v[1]); });
  scf::YieldOp::create(b, scaled);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, finish(started, 0));
  return branch.getResult(0);
}

State WgmmaKernel::walkSegment(const Segment &segment, Value tiles, Value firstTile, const State &state) {
  Value one = b.i32(1);
  Value scores = finish(startScores(firstTile), 0);
  release(keyRing, firstTile);
  Step first = softmax(finishScores(scores, std::nullopt, segment, segment.kvBegin), state);
  Value acc = rescale(state.acc, first), weights = packWeights(first.weights);

  auto loop = scf::ForOp::create(b, one, tiles, one, ValueRange{first.max, first.sum, acc, weights});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    ValueRange in = loop.getRegionIterArgs();
    Value i = loop.getInductionVar(), tile = b.add(firstTile, i), previous = b.sub(tile, one);
    if (takesTurns())
      MeetOp::create(b, turnOfThis(), turnThreads);
    Value startedScores = startScores(tile);
    Value startedOutput = startOutput(in[3], in[2], previous);
    if (takesTurns())
      PassByOp::create(b, turnOfOther(), turnThreads);
    Value tileScores = finish(startedScores, 1);
    release(keyRing, tile);
    Value firstKey = b.add(segment.kvBegin, b.mul(i, b.i32(schedule.getKeys())));
    Step step = softmax(finishScores(tileScores, std::nullopt, segment, firstKey), {in[0], in[1], in[2]});
    Value output = finishAndRescale(startedOutput, step);
    release(valueRing, previous);
    scf::YieldOp::create(b, ValueRange{step.max, step.sum, output, packWeights(step.weights)});
  }
  Value last = b.sub(b.add(firstTile, tiles), one);
  acc = finish(startOutput(loop.getResult(3), loop.getResult(2), last), 0);
  release(valueRing, last);
  return {loop.getResult(0), loop.getResult(1), acc};
}

} // namespace

void attn::writeWgmmaKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name) {
  WgmmaKernel(chain, schedule, module, name).write();
}

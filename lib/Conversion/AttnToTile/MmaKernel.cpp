//===- MmaKernel.cpp - The mma schedule -----------------------------------===//
//
// Every warp copies and computes. For decode (`split_keys`) each warp holds all
// rows and a slice of every tile's keys, with rings and a softmax of its own,
// so that nothing but its own copies holds it up; the warps are merged when the
// task ends. For prefill each warp holds 16 rows and the block shares the tile.
//
// A short launch is mostly waiting: for the plan to say which tasks, for the task
// to say which segment, for the segment to say which pages, for the pages. So a
// block finds its tasks, the first of them and that one's first segment in a
// record of its own, `plan.starts`, and asks for every later record, and for the
// numbers of pages, while what is before it still computes.
//
//===----------------------------------------------------------------------===//
#include "AttendKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class MmaKernel : public AttendKernel {
public:
  MmaKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name)
      : AttendKernel(chain, schedule, module, name),
        scope(schedule.getSplitKeys() ? Scope::Warp : Scope::Block) {}

  void write();

private:
  void writeTask(ValueRange firstSegment);
  State walkSegment(unsigned operand, const Segment &segment, const State &state);
  void mergeAndWrite(const State &state);

  Scope scope;
  Value warp, queryTile, keyRing, valueRing, scratch;
};

void MmaKernel::write() {
  bool split = schedule.getSplitKeys();
  warp = WarpIdOp::create(b, b.getI32Type());
  begin(split ? b.i32(0) : b.mul(warp, b.i32(rows)),
        split ? b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)) : Value());
  auto ring = [&](int64_t features) {
    auto type = RingType::get(b.getContext(), schedule.getStages(), sharedType(Axis::Key, keys, features));
    return AllocOp::create(b, type, Value(), /*per_warp=*/split, IntegerAttr());
  };
  queryTile = AllocOp::create(b, sharedType(Axis::Query, schedule.getRows(), chain.paddedKeyDim()), Value(),
                              false, IntegerAttr());
  keyRing = ring(chain.paddedKeyDim());
  valueRing = ring(chain.paddedValueDim());
  if (split) {
    // Accumulators of all warps, and a (max, sum) pair per row.
    int64_t bytes = schedule.getWarps() * (rows * chain.paddedValueDim() * 4 + rows * 8);
    scratch = AllocOp::create(b, ScratchType::get(b.getContext(), bytes), keyRing, false, IntegerAttr());
  }
  readStart();
  scf::ForOp tasks = beginTasks(firstRecords);
  ValueRange records = tasks.getRegionIterArgs();
  setTask(records.take_front(fieldsOfRecord));
  writeTask(records.drop_front(fieldsOfRecord));
  Value next = b.add(tasks.getInductionVar(), b.i32(1));
  SmallVector<Value> after = recordIf(b.less(next, tasksEnd), "plan.tasks", next);
  llvm::append_range(after, firstSegmentOf(after));
  scf::YieldOp::create(b, after);
  b.setInsertionPointAfter(tasks);
  end(schedule.getWarps() * 32);
}

void MmaKernel::writeTask(ValueRange firstSegment) {
  gatherQueries(queryTile, Scope::Block);
  CommitOp::create(b);
  readRows();

  SmallVector<Value> carried = initialState().values();
  llvm::append_range(carried, firstSegment);
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, b.i32(1), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    ValueRange in = segments.getRegionIterArgs();
    State state{in[0], in[1], in[2]};
    Segment segment = segmentOf(in.drop_front(3));
    for (unsigned operand = 0; operand < chain.updates.size(); ++operand)
      state = walkSegment(operand, segment, state);
    SmallVector<Value> out = state.values();
    Value next = b.add(segments.getInductionVar(), b.i32(1));
    llvm::append_range(out, recordIf(b.less(next, segmentEnd), "plan.segments", next));
    scf::YieldOp::create(b, out);
  }
  WaitOp::create(b, 0); // a task without segments has not waited for its queries
  mergeAndWrite({segments.getResult(0), segments.getResult(1), segments.getResult(2)});
}

State MmaKernel::walkSegment(unsigned operand, const Segment &segment, const State &state) {
  // Queries: through shared memory into registers, or left there. Waited for here and not where they were
  // asked for, because the pipeline starts the first tiles of keys in front of a wait that precedes its loop.
  WaitOp::create(b, 0);
  SyncOp::create(b, Scope::Block);
  Value query = queryTile;
  if (schedule.getQueryInRegisters())
    query = LoadOp::create(b, queryType(), queryTile, warpRow);
  auto loop = scf::ForOp::create(b, b.i32(0), tilesOf(segment, operand), b.i32(1), state.values());
  loop->setAttr("tile.stages", b.getI64IntegerAttr(schedule.getStages()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = b.add(segment.kvBegin, b.mul(loop.getInductionVar(), b.i32(schedule.getKeys())));
  if (schedule.getSplitKeys())
    firstKey = b.add(firstKey, b.mul(warp, b.i32(keys)));
  auto slot = [&](Value ring) {
    return SlotOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, b.i32(0));
  };
  Value keyTile = slot(keyRing), valueTile = slot(valueRing);
  UpdateOp update = chain.updates[operand];
  Value slots = lookupTokens(update, segment, firstKey, scope);
  gatherTokens(update, segment, firstKey, slots, {"k", "v"}, ValueRange{keyTile, valueTile}, scope);
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, scope);

  ValueRange carried = loop.getRegionIterArgs();
  Value line = schedule.getQueryInRegisters() ? Value() : warpRow;
  Value scores = DotOp::create(b, scoresType(), query, line, keyTile, b.splat(b.f32(0), scoresType()));
  scores = finishScores(scores, operand, segment, firstKey);
  Step step = softmax(scores, {carried[0], carried[1], carried[2]});
  Value acc = rescale([&] { return carried[2]; }, step);
  acc = DotOp::create(b, accType(), packWeights(step.weights), Value(), valueTile, acc);
  SyncOp::create(b, scope);
  scf::YieldOp::create(b, ValueRange{step.max, step.sum, acc});
  return {loop.getResult(0), loop.getResult(1), loop.getResult(2)};
}

void MmaKernel::mergeAndWrite(const State &state) {
  Type f32 = b.getF32Type();
  Value sum = CompleteOp::create(b, rowsOf(f32), state.sum);
  Value lines = b.sub(packedCount, warpRow);
  if (!schedule.getSplitKeys()) {
    writeResults(state.max, sum, state.acc, Value(), outputColumns(), lines);
    // The next task overwrites queries that slower warps may still read, unless they met behind the last
    // loop.
    if (schedule.getStages() == 1)
      SyncOp::create(b, Scope::Block);
    return;
  }
  // Every warp writes a share of the columns, two blocks of 8 at least.
  int64_t share = llvm::alignTo(llvm::divideCeil(chain.paddedValueDim(), schedule.getWarps()), 16);
  FragmentType outType = b.fragment({Axis::Query, Axis::Feature}, {rows, share}, f32);
  SyncOp::create(b, Scope::Block); // the rings are free for the exchange
  auto merge = MergeWarpsOp::create(b, rowsOf(f32), rowsOf(f32), outType, state.max, sum, state.acc, scratch,
                                    toLog2, warp, b.getI64IntegerAttr(schedule.getWarps()));
  IntegerAttr columns;
  if (share * schedule.getWarps() > chain.valueDim())
    columns = b.getI64IntegerAttr(chain.valueDim());
  Value lseLines = b.select(b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)), lines, b.i32(0));
  writeResults(merge.getMergedMax(), merge.getMergedSum(), merge.getMergedAcc(), b.mul(warp, b.i32(share)),
               columns, lseLines);
}

} // namespace

void attn::writeMmaKernel(Chain &chain, ScheduleAttr schedule, gpu::GPUModuleOp module, StringRef name) {
  MmaKernel(chain, schedule, module, name).write();
}

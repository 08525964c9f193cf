//===- WalkPlan.cpp - Loops over the plan around online operations --------===//
//
// The plan cuts the work of a launch into *tasks*, rows that share a state, and
// what their rows see into *segments*, ranges of tokens of one instance. A kernel
// walks it:
//
//   for each task of this block
//     for each segment of the task
//       for each tile of keys
//         the updates, on the task's rows and the tile's tokens
//     what follows the updates; the task's results
//
// A short launch is mostly waiting: for the plan to say which tasks, for the task
// to say which segment, for the segment to say which pages, for the pages. So a
// block finds its tasks, the first of them and that one's first segment in a
// record of its own, `plan.starts`, and asks for every later record while what is
// before it still computes.
//
// A segment is of one operand. Each update has a loop over its tiles, which has
// none where the segment is another's.
//
//===----------------------------------------------------------------------===//
#include "AttendKernel.h"
#include "WalkParts.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/Launch.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {
#define GEN_PASS_DEF_WALKPLANPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class Walk : public AttendKernel {
public:
  /// `chain` is that of `source`, whose operations the loops of `kernel` get.
  Walk(Chain &chain, func::FuncOp kernel) : AttendKernel(chain, kernel) {}

  void run(IRMapping &arguments);

private:
  /// Updates of one state, each on the state that the one before leaves.
  struct Line {
    Value begin; ///< the state before the first; null: no token was seen
    SmallVector<unsigned> updates;
    Value state; ///< in the loops: the state so far
  };

  void findLines();
  void walkTask(const Segment &firstSegment);
  RowsOp makeRows();
  Value beginLine(const Line &line, Value queryRows);
  void walkTiles(unsigned operand, Line &line, const Segment &segment, Value queryRows);
  void finishTask(Value queryRows);

  Value warp;
  IRMapping mapping;
  SmallVector<Line> lines;
  DenseMap<Value, unsigned> lineOf; ///< the line that leaves a state
};

/// An update continues the line of its state, unless another operation uses that, too, or a merge made it.
/// Then it starts a line of its own, which is merged with that state behind the loops: update(a, R) =
/// merge(a, update(init, R)).
void Walk::findLines() {
  for (auto [number, update] : llvm::enumerate(chain.updates)) {
    Value state = update.getState();
    auto known = lineOf.find(state);
    if (known != lineOf.end() && state.hasOneUse()) {
      unsigned line = known->second;
      lines[line].updates.push_back(number);
      lineOf.erase(known);
      lineOf[update.getResult()] = line;
      continue;
    }
    bool begins = state.hasOneUse() && isa_and_nonnull<InitOp>(state.getDefiningOp());
    lineOf[update.getResult()] = lines.size();
    lines.push_back({begins ? state : Value(), {static_cast<unsigned>(number)}, {}});
  }
}

void Walk::run(IRMapping &arguments) {
  mapping = arguments;
  findLines();
  bool split = schedule.getSplitKeys();
  warp = WarpIdOp::create(b, b.getI32Type());
  warpRow = split ? b.i32(0) : b.mul(warp, b.i32(rows));
  declareParameters();
  StartNextOp::create(b); // the merge may take its place in the multiprocessors and wait there
  readStart();
  scf::ForOp tasks = beginTasks(flatten(start.task, start.segment));
  ValueRange records = tasks.getRegionIterArgs();
  setTask(takeRecord<Task>(records));
  walkTask(takeRecord<Segment>(records));
  Value next = b.add(tasks.getInductionVar(), b.i32(1));
  Task after = readRecordIf<Task>(b, b.less(next, start.tasksEnd), next);
  scf::YieldOp::create(b, flatten(after, firstSegmentOf(after)));
  b.setInsertionPointAfter(tasks);
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(schedule.getBlocks()));
  setLaunch(b.kernel, {.role = ::attn::rt::KernelInfo::Role::Attend, .launch = {.grid = PlanArray::Starts}});
  b.finish(schedule.getThreads());
}

RowsOp Walk::makeRows() {
  Value sink;
  if (chain.countsSinks()) {
    sink = countsSink();
    if (schedule.getSplitKeys()) // all warps have these rows, and one counts
      sink = b.createOrFold<arith::AndIOp>(sink, b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)));
  }
  Value query = mapping.lookup(chain.query());
  return RowsOp::create(b, query.getType(), query, packedBegin, packedCount, kvHead, slot, warpRow, headClass,
                        sink);
}

Value Walk::beginLine(const Line &line, Value queryRows) {
  auto state = chain.finish.getState().getType();
  auto init = line.begin ? line.begin.getDefiningOp<InitOp>() : InitOp();
  Value sinks = init ? init.getSinks() : Value();
  return InitOp::create(b, state, queryRows, sinks ? mapping.lookup(sinks) : Value());
}

void Walk::walkTask(const Segment &firstSegment) {
  Value queryRows = makeRows();
  SmallVector<Value> carried;
  for (Line &line : lines)
    carried.push_back(beginLine(line, queryRows));
  llvm::append_range(carried, flatten(firstSegment));
  auto segments = scf::ForOp::create(b, segmentBegin, segmentEnd, b.i32(1), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(segments.getBody());
    ValueRange in = segments.getRegionIterArgs();
    for (auto [line, state] : llvm::zip(lines, in))
      line.state = state;
    in = in.drop_front(lines.size());
    Segment segment = takeRecord<Segment>(in);
    for (unsigned operand = 0; operand < chain.updates.size(); ++operand)
      for (Line &line : lines)
        if (llvm::is_contained(line.updates, operand))
          walkTiles(operand, line, segment, queryRows);
    SmallVector<Value> out = llvm::map_to_vector(lines, [](Line &line) { return line.state; });
    Value next = b.add(segments.getInductionVar(), b.i32(1));
    llvm::append_range(out, flatten(readRecordIf<Segment>(b, b.less(next, segmentEnd), next)));
    scf::YieldOp::create(b, out);
  }
  for (auto [line, state] : llvm::zip(lines, segments.getResults()))
    line.state = state;
  finishTask(queryRows);
}

void Walk::walkTiles(unsigned operand, Line &line, const Segment &segment, Value queryRows) {
  auto loop = scf::ForOp::create(b, b.i32(0), tilesOf(segment, operand), b.i32(1), line.state);
  loop->setAttr("tile.stages", b.getI64IntegerAttr(schedule.getStages()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value firstKey = b.add(segment.kvBegin, b.mul(loop.getInductionVar(), b.i32(schedule.getKeys())));
  if (schedule.getSplitKeys())
    firstKey = b.add(firstKey, b.mul(warp, b.i32(keys)));
  UpdateOp update = chain.updates[operand];
  Value region = mapping.lookup(update.getKv());
  Value tokens = TokensOp::create(b, region.getType(), region, segment.instance, firstKey, segment.kvEnd,
                                  segment.fullBegin, segment.fullEnd, segment.pos0, segment.firstSlot);
  IRMapping onTile = mapping;
  onTile.map(update.getState(), loop.getRegionIterArg(0));
  onTile.map(update.getQuery(), queryRows);
  onTile.map(update.getKv(), tokens);
  scf::YieldOp::create(b, b.clone(*update, onTile)->getResults());
  line.state = loop.getResult(0);
}

/// Merges and the finish, on what the loops leave.
void Walk::finishTask(Value queryRows) {
  IRMapping left = mapping;
  for (InitOp init : chain.inits) {
    bool continued = llvm::any_of(lines, [&](Line &line) { return line.begin == init.getState(); });
    if (!continued) {
      left.map(init.getQuery(), queryRows);
      b.clone(*init, left);
    }
  }
  for (Operation &op : *chain.finish->getBlock()) {
    if (auto update = dyn_cast<UpdateOp>(op)) {
      auto found = lineOf.find(update.getResult());
      if (found == lineOf.end())
        continue; // the line goes on
      Line &line = lines[found->second];
      Value state = line.state;
      if (!line.begin)
        state = MergeOp::create(b, state.getType(),
                                left.lookup(chain.updates[line.updates.front()].getState()), state);
      left.map(update.getResult(), state);
    } else if (auto merge = dyn_cast<MergeOp>(op); merge && llvm::is_contained(chain.merges, merge)) {
      b.clone(op, left);
    }
  }
  Value state = left.lookup(chain.finish.getState());
  if (schedule.getSplitKeys())
    state = WarpsOp::create(b, state.getType(), state);
  left.map(chain.finish.getState(), state);
  auto finish = cast<FinishOp>(b.clone(*chain.finish, left));
  mlir::attn::WriteOp::create(b, finish.getOutput(), finish.getLse(), queryRows, partial, Value());
}

struct WalkPlan : mlir::attn::impl::WalkPlanPassBase<WalkPlan> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> kernels;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (!kernel.getOps<FinishOp>().empty())
        kernels.push_back(kernel);
    for (func::FuncOp source : kernels) {
      auto schedule = source->getAttrOfType<ScheduleAttr>("tile.schedule");
      auto merge = source->getAttrOfType<MergeScheduleAttr>("tile.merge_schedule");
      bool merges = !source.getOps<PartsOp>().empty();
      if (merges ? !merge : !schedule || schedule.getKind() != ScheduleKind::Mma) {
        source.emitError(
            "expected a kernel with a tile.schedule of mma, or one that finishes attn.parts with a "
            "tile.merge_schedule");
        return signalPassFailure();
      }
      // The new kernel has the arguments of the old one in front of its parameters.
      OpBuilder builder(source);
      auto kernel = func::FuncOp::create(builder, source.getLoc(), source.getName(),
                                         builder.getFunctionType(source.getArgumentTypes(), {}));
      kernel.setArgAttrsAttr(source.getArgAttrsAttr());
      if (merges)
        kernel->setAttr("tile.merge_schedule", merge);
      else
        kernel->setAttr("tile.schedule", schedule);
      builder.setInsertionPointToEnd(kernel.addEntryBlock());
      IRMapping mapping;
      mapping.map(source.getArguments(), kernel.getArguments());
      for (Operation &op : source.getFunctionBody().front()) // what score regions use
        if (op.hasTrait<OpTrait::ConstantLike>())
          builder.clone(op, mapping);
      if (!merges) {
        FailureOr<Chain> chain = findChain(source);
        if (failed(chain))
          return signalPassFailure();
        Walk walk(*chain, kernel);
        walk.b.setInsertionPointToEnd(&kernel.front());
        walk.run(mapping);
      } else {
        walkParts(*source.getOps<PartsOp>().begin(), kernel, mapping);
      }
      source.erase();
    }
  }
};

} // namespace

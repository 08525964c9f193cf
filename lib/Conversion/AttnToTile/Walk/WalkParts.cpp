//===- WalkParts.cpp - Loops over what attend kernels have stored ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WalkParts.h"
#include "AttnToTile/Kernel/PlanAccess.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The stored states that a warp looks up at once, one per lane.
static constexpr int64_t lanes = 32;

namespace {

struct PartsWalk {
  KernelBuilder b;
  int64_t queryHeads, group;
  bool byOrdinal;
  Value starts, outputs, numbers, count, lane;

  /// Converts the plan's number, of a row and an ordinal, to that of a row and a head. Query heads of a group
  /// are neighbours in both.
  Value outputOf(Value number) {
    if (!byOrdinal)
      return number;
    Value ordinal = b.div(b.rem(number, queryHeads), group);
    Value head = b.read(b.buffer("ordinal_heads", b.getI32Type()), b.wide(ordinal));
    return b.add(number, b.mul(b.sub(head, ordinal), b.i32(group)));
  }

  /// The values that `body` yields if `exists`, else zeros.
  SmallVector<Value> readIf(Value exists, size_t results, function_ref<SmallVector<Value>()> body) {
    auto some =
        scf::IfOp::create(b, SmallVector<Type>(results, b.getI32Type()), exists, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(some.elseBlock());
    scf::YieldOp::create(b, SmallVector<Value>(results, b.i32(0)));
    b.setInsertionPointToStart(some.thenBlock());
    scf::YieldOp::create(b, body());
    return SmallVector<Value>(some.getResults());
  }

  /// The number of this lane's state in [from, end) of the list.
  Value numberOf(Value from, Value end) {
    return b.read(numbers, b.wide(b.min(b.add(from, lane), b.sub(end, b.i32(1)))));
  }

  /// The LSE of a state, which the kernel before has written.
  Value lseOf(Value number) {
    return tile::ReadOp::create(b, b.getF32Type(), planArray(b, PlanArray::PartialLse), b.wide(number),
                                b.getUnitAttr());
  }

  /// Reads the plan of a row: the range of its states in the list, the output, and the first states.
  SmallVector<Value> planOf(Value row) {
    return readIf(b.less(row, count), 4, [&]() -> SmallVector<Value> {
      auto range = ReadRangeOp::create(b, b.getI32Type(), b.getI32Type(), starts,
                                       b.add(b.wide(row), b.i64(1))); // the first word is the count
      return {range.getBegin(), range.getEnd(), outputOf(b.read(outputs, b.wide(row))),
              numberOf(range.getBegin(), range.getEnd())};
    });
  }

  /// Merges the states in [begin, end) of the list into `state`.
  Value mergeStates(Value begin, Value end, Value firstNumber, Value state) {
    auto loop = scf::ForOp::create(b, begin, end, b.i32(lanes), ValueRange{state, firstNumber});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value first = loop.getInductionVar(), soFar = loop.getRegionIterArg(0);
    Value number = loop.getRegionIterArg(1);
    Value stored = StoredOp::create(b, state.getType(), number, lseOf(number), b.sub(end, first));
    Value merged = MergeOp::create(b, state.getType(), soFar, stored);
    // After the last states this is the last number again, and no lane uses it.
    Value next = numberOf(b.add(first, b.i32(lanes)), end);
    scf::YieldOp::create(b, ValueRange{merged, next});
    return loop.getResult(0);
  }

  /// Merges the states of a long list: reads LSEs one round ahead and numbers two, so that a round waits for
  /// outputs only.
  Value mergeManyStates(Value begin, Value end, Value firstNumber, Value state) {
    Value second = numberOf(b.add(begin, b.i32(lanes)), end);
    auto loop = scf::ForOp::create(b, begin, end, b.i32(lanes),
                                   ValueRange{state, firstNumber, lseOf(firstNumber), second});
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value first = loop.getInductionVar(), left = b.sub(end, first);
    ValueRange now = loop.getRegionIterArgs();
    auto ahead = scf::IfOp::create(b, TypeRange{b.getF32Type(), b.getI32Type()}, b.less(b.i32(lanes), left),
                                   /*withElseRegion=*/true);
    b.setInsertionPointToStart(ahead.thenBlock());
    scf::YieldOp::create(b, ValueRange{lseOf(now[3]), numberOf(b.add(first, b.i32(2 * lanes)), end)});
    b.setInsertionPointToStart(ahead.elseBlock());
    scf::YieldOp::create(b, ValueRange{now[2], now[3]});
    b.setInsertionPointAfter(ahead);
    Value stored = StoredOp::create(b, state.getType(), now[1], now[2], left);
    Value merged = MergeOp::create(b, state.getType(), now[0], stored);
    scf::YieldOp::create(b, ValueRange{merged, now[3], ahead.getResult(0), ahead.getResult(1)});
    return loop.getResult(0);
  }
};

} // namespace

void mlir::attn::walkParts(PartsOp parts, func::FuncOp kernel, const IRMapping &arguments) {
  auto finish = cast<FinishOp>(*parts.getState().user_begin());
  int64_t heads = cast<RankedTensorType>(parts.getQuery().getType()).getDimSize(1);
  auto output = cast<RankedTensorType>(finish.getOutput().getType());
  PartsWalk walk{KernelBuilder(kernel),
                 heads,
                 heads / static_cast<int64_t>(parts.getKvHeads()),
                 parts.getByOrdinal(),
                 {},
                 {},
                 {},
                 {},
                 {}};
  KernelBuilder &b = walk.b;
  auto schedule = tile::mergeScheduleAttr.get(kernel);
  const int64_t warps = schedule.getWarps(), slices = schedule.getSlices(), rowsOfBlock = warps / slices;
  b.setInsertionPointToEnd(&kernel.front());
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  b.buffer("o", output.getElementType());
  if (finish.getLse())
    b.buffer("lse", f32);
  if (finish.getOutputScales())
    b.buffer(outputScales, f32);
  walk.starts = planArray(b, PlanArray::MergeStart);
  walk.outputs = planArray(b, PlanArray::MergeRows);
  walk.numbers = planArray(b, PlanArray::MergePartials);
  for (PlanArray array : ::attn::rt::planStates)
    planArray(b, array);
  if (startsNextAttr.isOn(kernel))
    StartNextOp::create(b);
  // The number of rows is part of the plan, too, so a recorded launch serves every plan. Starts follow it.
  walk.count = b.read(walk.starts, b.i64(0));
  Value warp = WarpIdOp::create(b, i32);
  walk.lane = LaneIdOp::create(b, i32);
  Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(rowsOfBlock)), b.div(warp, slices));
  Value step = b.mul(BlockCountOp::create(b, i32), b.i32(rowsOfBlock));
  SmallVector<Value> ofFirst = walk.planOf(first);
  WaitPreviousOp::create(b); // by all threads, even without a row: the next launch relies on it
  auto rows = scf::ForOp::create(b, first, walk.count, step, ofFirst);
  b.setInsertionPointToStart(rows.getBody());
  ValueRange row = rows.getRegionIterArgs();
  Value target = b.wide(row[2]);
  Value empty = InitOp::create(b, parts.getState().getType(), arguments.lookup(parts.getQuery()), Value());
  IRMapping mapping = arguments;
  // Few rows of latents have hundreds of states.
  auto merge = slices > 1 ? &PartsWalk::mergeManyStates : &PartsWalk::mergeStates;
  mapping.map(finish.getState(), (walk.*merge)(row[0], row[1], row[3], empty));
  auto finished = cast<FinishOp>(b.clone(*finish, mapping));
  mlir::attn::WriteOp::create(b, finished.getOutput(), finished.getLse(), Value(), Value(), target,
                              finished.getGate(), finished.getOutputScale(),
                              finished.getOutputScales() != nullptr);
  finished.getGateMutable().clear(); // the write has it
  finished.getOutputScaleMutable().clear();
  scf::YieldOp::create(b, walk.planOf(b.add(rows.getInductionVar(), step)));
  b.setInsertionPointAfter(rows);
  tile::blocksPerSMAttr.set(kernel, b.getI32IntegerAttr(schedule.getBlocks()));
  setLaunch(kernel,
            {.role = ::attn::rt::KernelInfo::Role::Merge,
             .rowsPerWarp = 1,
             .pieces = static_cast<int>(slices),
             .launch = {.grid = PlanArray::MergeRows, .onlyIfFilled = true, .overlapsPrevious = true}});
  b.finish(warps * 32);
}

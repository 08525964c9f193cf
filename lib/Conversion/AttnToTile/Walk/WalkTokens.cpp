//===- WalkTokens.cpp - Loops over the rows that see tokens ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WalkTokens.h"
#include "Form.h"

#include "AttnToTile/Kernel/PlanAccess.h"

#include "attn/Dialect/Tile/IR/Launch.h"

#include "attn_rt/artifact/Artifact.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class TokenWalk {
public:
  TokenWalk(Chain &chain, func::FuncOp kernel, const IRMapping &arguments)
      : b(kernel), chain(chain), schedule(tile::scheduleAttr.get(kernel)), rows(schedule.getKeys()),
        source(chain.updates.front()), arguments(arguments) {}

  void run();

private:
  /// Walks the task if it belongs to the kernel's region.
  void walkOne(const TokenTask &task);
  void walkTask(const TokenTask &task);
  /// Updates the sum with the packed rows of the tile from `first` on; with those of a part of the heads if
  /// `part` is given.
  Value update(const TokenTask &task, Value sum, Value tokens, Value first, Value end, Value part);
  /// The query heads of packed rows. Copied in boxes, they fill lines evenly, and the parts of a group follow
  /// each other.
  int64_t heads() const {
    return schedule.loadsQueriesByTma() ? ::attn::rt::evenHeads(static_cast<int>(chain.group()))
                                        : chain.group();
  }

  KernelBuilder b;
  Chain &chain;
  ScheduleAttr schedule;
  int64_t rows;                ///< of a tile
  Value warpToken, groupToken; ///< the first tokens of this warp and of its warpgroup in a tile
  UpdateOp source;
  const IRMapping &arguments;
};

void TokenWalk::run() {
  b.setInsertionPointToEnd(&b.kernel.front());
  formAttr.set(b.kernel, formOf(chain, schedule));
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(schedule.getProducerWarps()));
  warpToken = b.mul(warp, b.i32(schedule.getWarpRows()));
  if (schedule.getKind() == ScheduleKind::Wgmma)
    groupToken = b.mul(b.div(warp, ScheduleAttr::groupWarps), b.i32(ScheduleAttr::groupRows));
  b.buffer("q", chain.element());
  b.buffer("q_pos", b.getI32Type());
  planArray(b, PlanArray::TokenTasks);
  b.scale();
  StartNextOp::create(b);
  walkOne(readRecord<TokenTask>(b, BlockIdOp::create(b, b.getI32Type())));
  tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(schedule.getBlocks()));
  using Role = ::attn::rt::KernelInfo::Role;
  setLaunch(b.kernel, {.role = chain.significance ? Role::Significance : Role::Gradient,
                       .launch = {.grid = PlanArray::TokenTasks, .onlyIfFilled = true}});
  b.finish(schedule.getThreads());
}

/// If warps have roles, all of them must agree on how often the stages of a ring are produced, so only loops
/// stand around that.
void TokenWalk::walkOne(const TokenTask &task) {
  Value mine;
  if (auto operand = operandAttr.get(b.kernel))
    mine = b.compare(arith::CmpIPredicate::eq, task.operand, b.i32(operand.getInt()));
  OpBuilder::InsertionGuard guard(b);
  if (schedule.getKind() == ScheduleKind::Wgmma) {
    Value count = mine ? b.select(mine, b.i32(1), b.i32(0)) : b.i32(1);
    auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(1));
    b.setInsertionPoint(loop.getBody()->getTerminator());
  } else if (mine) {
    auto some = scf::IfOp::create(b, mine);
    b.setInsertionPoint(some.thenYield());
  }
  walkTask(task);
}

void TokenWalk::walkTask(const TokenTask &task) {
  Value region = arguments.lookup(source.getKv());
  Value tokens = TokensOp::create(b, region.getType(), region, task.instance, task.kvBegin, task.kvEnd,
                                  task.kvBegin, task.kvBegin, task.pos0, b.i32(0), task.ordinal, warpToken,
                                  groupToken, Value(), Value());
  Value zeros;
  if (chain.significance)
    zeros = InitSignificanceOp::create(b, chain.significance.getType(), tokens);
  else
    zeros = InitGradientOp::create(b, chain.gradient.getGradient().getType(), tokens,
                                   chain.addsInOrder() ? task.before : Value(), /*with_lse=*/false,
                                   chain.addsToRows(), chain.addsInOrder(), /*summed=*/false, IntegerAttr());
  Value rowBegin = task.rowBegin, rowEnd = task.rowEnd, backwards;
  const bool valuesAlone =
      chain.gradient && chain.gradient.getGradient().getType().getOf() == Stationary::Values;
  if (chain.addsToRows() || valuesAlone) { // from either end (runtime/src/plan/TokenTasks.h)
    backwards = b.less(task.rowEnd, task.rowBegin);
    rowBegin = b.min(task.rowBegin, task.rowEnd), rowEnd = b.max(task.rowBegin, task.rowEnd);
  }
  Value begin = b.mul(rowBegin, b.i32(heads())), end = b.mul(rowEnd, b.i32(heads()));
  // If heads must be told apart, each tile begins with the first head of a group.
  int64_t step = chain.significance && chain.group() <= rows ? rows / chain.group() * chain.group() : rows;
  Value tiles = b.div(b.add(b.sub(end, begin), b.i32(step - 1)), step);
  int64_t parts = chain.group() / heads();
  auto loop =
      scf::ForOp::create(b, b.i32(0), parts > 1 ? b.mul(tiles, b.i32(parts)) : tiles, b.i32(1), zeros);
  if (schedule.getKind() == ScheduleKind::Mma)
    tile::stagesAttr.set(loop, b.getI64IntegerAttr(schedule.getStages()));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value number = loop.getInductionVar(), part;
    if (parts > 1) // one after the other at the same rows, so that tasks stay in lockstep
      part = b.rem(number, parts), number = b.div(number, parts);
    if (backwards)
      number = b.select(backwards, b.sub(b.sub(tiles, b.i32(1)), number), number);
    Value first = b.add(begin, b.mul(number, b.i32(step)));
    scf::YieldOp::create(b, update(task, loop.getRegionIterArg(0), tokens, first,
                                   b.min(end, b.add(first, b.i32(step))), part));
  }
  if (chain.significance)
    WriteSignificanceOp::create(b, loop.getResult(0), tokens);
  else
    WriteGradientOp::create(b, loop.getResult(0), tokens, task.partial, /*sums=*/false, /*summed=*/false);
}

Value TokenWalk::update(const TokenTask &task, Value sum, Value tokens, Value first, Value end, Value part) {
  Value query = arguments.lookup(source.getQuery()), count = b.min(b.i32(rows), b.sub(end, first));
  Value queryRows = RowsOp::create(b, query.getType(), query, first, count, task.ordinal, task.ordinal,
                                   b.i32(0), Value(), Value(), Value(), Value(), part,
                                   part ? b.getI64IntegerAttr(heads()) : IntegerAttr(), /*all_heads=*/false);
  IRMapping onTile = arguments;
  onTile.map(source.getState(), sum);
  onTile.map(source.getQuery(), queryRows);
  onTile.map(source.getKv(), tokens);
  auto onRows = cast<UpdateOp>(b.clone(*source, onTile));
  numberUpdate(onRows, chain, 0);
  return onRows.getResult();
}

} // namespace

void mlir::attn::walkTokens(Chain &chain, func::FuncOp kernel, const IRMapping &arguments) {
  TokenWalk(chain, kernel, arguments).run();
}

//===- WalkTokens.cpp - Loops over the rows that see tokens ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WalkTokens.h"

#include "AttnToTile/Kernel/TaskView.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class TokenWalk : public TaskView {
public:
  TokenWalk(Chain &chain, func::FuncOp kernel, const IRMapping &arguments)
      : TaskView(chain, kernel), source(chain.updates.front()), arguments(arguments) {}

  void run();

private:
  void walkTask(const TokenTask &task);
  /// The update's sum with the packed rows of the tile from `first` on.
  Value update(const TokenTask &task, Value sum, Value tokens, Value first, Value end);

  UpdateOp source;
  const IRMapping &arguments;
};

void TokenWalk::run() {
  b.buffer("q", chain.element());
  b.buffer("q_pos", b.getI32Type());
  planArray(b, PlanArray::TokenTasks);
  b.scale();
  StartNextOp::create(b);
  auto task = readRecord<TokenTask>(b, BlockIdOp::create(b, b.getI32Type()));
  if (auto operand = b.kernel->getAttrOfType<IntegerAttr>(operandAttr)) {
    Value mine = b.compare(arith::CmpIPredicate::eq, task.operand, b.i32(operand.getInt()));
    auto some = scf::IfOp::create(b, mine);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(some.thenYield());
    walkTask(task);
  } else {
    walkTask(task);
  }
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(schedule.getBlocks()));
  setLaunch(b.kernel, {.role = ::attn::rt::KernelInfo::Role::Gradient,
                       .launch = {.grid = PlanArray::TokenTasks, .onlyIfFilled = true}});
  b.finish(schedule.getThreads());
}

void TokenWalk::walkTask(const TokenTask &task) {
  Value region = arguments.lookup(source.getKv());
  Value tokens = TokensOp::create(b, region.getType(), region, task.instance, task.kvBegin, task.kvEnd,
                                  task.kvBegin, task.kvBegin, task.pos0, b.i32(0));
  Value zeros = InitGradientOp::create(b, chain.gradient.getGradient().getType(), tokens, /*with_lse=*/false);
  Value begin = b.mul(task.rowBegin, b.i32(chain.group())), end = b.mul(task.rowEnd, b.i32(chain.group()));
  Value tiles = b.div(b.add(b.sub(end, begin), b.i32(rows - 1)), rows);
  auto loop = scf::ForOp::create(b, b.i32(0), tiles, b.i32(1), zeros);
  loop->setAttr("tile.stages", b.getI64IntegerAttr(schedule.getStages()));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value first = b.add(begin, b.mul(loop.getInductionVar(), b.i32(rows)));
    scf::YieldOp::create(b, update(task, loop.getRegionIterArg(0), tokens, first, end));
  }
  WriteGradientOp::create(b, loop.getResult(0), tokens);
}

Value TokenWalk::update(const TokenTask &task, Value sum, Value tokens, Value first, Value end) {
  Value query = arguments.lookup(source.getQuery()), count = b.min(b.i32(rows), b.sub(end, first));
  Value queryRows = RowsOp::create(b, query.getType(), query, first, count, task.ordinal, task.ordinal,
                                   b.i32(0), Value(), Value(), Value());
  IRMapping onTile = arguments;
  onTile.map(source.getState(), sum);
  onTile.map(source.getQuery(), queryRows);
  onTile.map(source.getKv(), tokens);
  return b.clone(*source, onTile)->getResult(0);
}

} // namespace

void mlir::attn::walkTokens(Chain &chain, func::FuncOp kernel, const IRMapping &arguments) {
  TokenWalk walk(chain, kernel, arguments);
  walk.b.setInsertionPointToEnd(&kernel.front());
  walk.run();
}

//===- WalkRowTasks.cpp - Loops over tasks that read no tokens ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WalkRowTasks.h"

#include "AttnToTile/Kernel/TaskView.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void mlir::attn::walkRowTasks(Chain &chain, func::FuncOp kernel, const IRMapping &arguments) {
  TaskView view(chain, kernel);
  KernelBuilder &b = view.b;
  b.setInsertionPointToEnd(&kernel.front());
  Type i32 = b.getI32Type();
  b.buffer("q_pos", i32);
  planArray(b, PlanArray::Tasks);
  b.scale();
  Value warpRow = b.mul(WarpIdOp::create(b, i32), b.i32(view.rows));
  StartNextOp::create(b);
  Start start = readRecord<Start>(b, BlockIdOp::create(b, i32));
  auto tasks = scf::ForOp::create(b, start.tasksBegin, start.tasksEnd, b.i32(1));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tasks.getBody()->getTerminator());
    Task task = readRecord<Task>(b, tasks.getInductionVar(), fieldsOf(start.task));
    Value query = arguments.lookup(chain.query());
    Value rows = RowsOp::create(b, query.getType(), query, task.packedBegin, task.packedCount, task.ordinal,
                                task.ordinal, warpRow, Value(), Value(), Value(), Value());
    IRMapping onRows = arguments;
    onRows.map(chain.gradient.getPart(), rows);
    for (Operation &op : chain.function.front().without_terminator())
      if (isa<InitGradientOp, WriteGradientOp>(op))
        b.clone(op, onRows);
  }
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(view.schedule.getBlocks()));
  setLaunch(b.kernel,
            {.role = ::attn::rt::KernelInfo::Role::Gradient, .launch = {.grid = PlanArray::Starts}});
  b.finish(view.schedule.getThreads());
}

//===- WalkAllRows.cpp - A loop over the rows of all heads ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel that reads no tokens does not depend on visibility, and is as fast
// as memory: its tiles are rows of heads in memory order, and blocks that run
// at once have neighbouring tiles. With the plan's tasks, each of one KV head,
// blocks read scattered runs of 256 bytes (docs/rationale/backward.md).
//
//===----------------------------------------------------------------------===//
#include "WalkAllRows.h"
#include "Form.h"

#include "AttnToTile/Kernel/PlanAccess.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void mlir::attn::walkAllRows(Chain &chain, func::FuncOp kernel, const IRMapping &arguments) {
  KernelBuilder b(kernel);
  auto schedule = tile::scheduleAttr.get(kernel);
  formAttr.set(kernel, formOf(chain, schedule));
  b.setInsertionPointToEnd(&kernel.front());
  Type i32 = b.getI32Type();
  Value all = b.mul(b.dimension("rows"), b.i32(chain.queryHeads()));
  b.scale();
  Value warpRow = b.mul(WarpIdOp::create(b, i32), b.i32(schedule.getWarpRows()));
  StartNextOp::create(b);
  int64_t size = schedule.getRows();
  Value tiles = b.div(b.add(all, b.i32(size - 1)), size);
  auto loop = scf::ForOp::create(b, BlockIdOp::create(b, i32), tiles, BlockCountOp::create(b, i32));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(loop.getBody()->getTerminator());
    Value first = b.mul(loop.getInductionVar(), b.i32(size));
    Value query = arguments.lookup(chain.query()), noHead = b.i32(0);
    Value rows =
        RowsOp::create(b, query.getType(), query, first, b.min(b.i32(size), b.sub(all, first)), noHead,
                       noHead, warpRow, Value(), Value(), Value(), Value(), Value(), IntegerAttr(),
                       /*all_heads=*/true);
    IRMapping onRows = arguments;
    onRows.map(chain.gradient.getPart(), rows);
    for (Operation &op : chain.function.front().without_terminator())
      if (auto write = dyn_cast<WriteGradientOp>(op))
        cast<WriteGradientOp>(b.clone(op, onRows)).setSummed(chain.gradient.getSummed());
      else if (isa<InitGradientOp>(op))
        b.clone(op, onRows);
  }
  tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(schedule.getBlocks()));
  setLaunch(b.kernel,
            {.role = ::attn::rt::KernelInfo::Role::Gradient, .launch = {.grid = PlanArray::Starts}});
  b.finish(schedule.getThreads());
}

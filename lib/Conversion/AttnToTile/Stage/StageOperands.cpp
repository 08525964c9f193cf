//===- StageOperands.cpp - Copies of rows and tokens on the chip ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dots read shared memory, or registers. Where an online operation takes rows or
// tokens, this pass puts copies of them on the chip in front of it. What a task works
// for is *held*: its rows or, where something of tokens is added up, its tokens. The
// other is *walked*, tile by tile. All warps copy and compute (StageCopies.cpp), or some
// of them only copy (StageFills.cpp).
//
//===----------------------------------------------------------------------===//
#include "StageCopies.h"
#include "StageFills.h"
#include "TileCopies.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_STAGEOPERANDSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Verifies that an update takes rows and tokens. An update that adds to states must stand in a loop over
/// tiles, within one over segments.
LogicalResult verifyUpdate(UpdateOp update, Chain &chain) {
  auto tokens = update.getKv().getDefiningOp<TokensOp>();
  Operation *tile = tokens ? tokens.getOperation() : update.getOperation();
  auto tiles = dyn_cast<scf::ForOp>(tile->getParentOp());
  if (!chain.readsFinished() && (!tiles || !isa<scf::ForOp>(tiles->getParentOp())))
    return update.emitOpError("expected a loop over tiles in one over segments around it");
  if (!tokens || !update.getQuery().getDefiningOp<RowsOp>())
    return update.emitOpError("expected attn.rows and attn.tokens as its operands");
  return success();
}

/// Verifies that --attn-walk-plan has made the kernel.
LogicalResult verify(func::FuncOp kernel, Chain &chain) {
  if (!tile::scheduleAttr.get(kernel) || !tile::parametersAttr.isOn(kernel))
    return kernel.emitError("expected a kernel with a tile.schedule and tile.parameters");
  const bool walks = chain.readsFinished() || (!chain.inits.empty() && chain.finish);
  if (!walks || kernel.front().getOps<StartNextOp>().empty())
    return kernel.emitError("expected a kernel that walks the plan: --attn-walk-plan makes it");
  const WalkResult staged = kernel.walk([](StagedOp) { return WalkResult::interrupt(); });
  if (staged.wasInterrupted())
    return kernel.emitError(
        "expected rows and tokens that are not staged yet: --attn-stage-operands runs once");
  for (UpdateOp update : chain.updates)
    if (failed(verifyUpdate(update, chain)))
      return failure();
  return success();
}

struct StageOperands : mlir::attn::impl::StageOperandsPassBase<StageOperands> {
  void runOnOperation() override {
    SetVector<Operation *> kernels;
    getOperation().walk([&](RowsOp rows) { kernels.insert(rows->getParentOfType<func::FuncOp>()); });
    for (Operation *op : kernels) {
      auto kernel = cast<func::FuncOp>(op);
      Chain chain = findChainInKernel(kernel);
      if (failed(verify(kernel, chain)))
        return signalPassFailure();
      auto schedule = tile::scheduleAttr.get(kernel);
      if (schedule.getProducerWarps() > 0)
        stageFills(chain, kernel);
      else
        stageCopies(chain, kernel);
    }
  }
};

} // namespace

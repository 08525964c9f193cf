//===- UnswitchLoops.cpp - Decisions move out of loops over tiles ---------===//
//
//   for each tile carrying c:          if d:
//     t = take a tile                    for each tile carrying c: t = take a tile; c = f(c, t)
//     c = if d: f(c, t) else: c   =>   else:
//                                        for each tile: take it
//
// A loop that fills or takes tiles then does the same for each of them, which
// barriers and overlaps need; what is decided inside of one tile (in a gather's
// map of lines, in a branch) stays where it is. So does, where tiles are taken, a
// branch that reads none of them: what is computed from tiles is most of a kernel's
// code, and stands once.
//
//===----------------------------------------------------------------------===//
#include "Slice.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::tile {
#define GEN_PASS_DEF_UNSWITCHLOOPSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

/// Whether a branch reads a tile that the loop around takes. Where tiles are filled all branches are about
/// that.
static bool concernsTiles(scf::IfOp branch) {
  if (branch->getBlock()->getOps<TakeOp>().empty())
    return true;
  auto readsTile = [](Operation *op) {
    return llvm::any_of(op->getOperands(),
                        [](Value value) { return value.getDefiningOp<TakeOp>() != nullptr; });
  };
  return branch
      .walk([&](Operation *op) { return readsTile(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Condition, known before the loop starts, of a branch in its body or in the copies of a fill there.
static Value findCondition(scf::ForOp loop) {
  SmallVector<Block *> blocks{loop.getBody()};
  for (auto fill : loop.getBody()->getOps<FillOp>())
    blocks.push_back(&fill.getCopies().front());
  for (Block *block : blocks)
    for (auto branch : block->getOps<scf::IfOp>())
      if (loop.isDefinedOutsideOfLoop(branch.getCondition()) && concernsTiles(branch))
        return branch.getCondition();
  return {};
}

/// Puts what the branch does on one side in its place.
static void resolve(scf::IfOp branch, bool holds) {
  Region &taken = holds ? branch.getThenRegion() : branch.getElseRegion();
  if (!taken.empty()) {
    Operation *yield = taken.front().getTerminator();
    branch.replaceAllUsesWith(yield->getOperands());
    yield->erase();
    branch->getBlock()->getOperations().splice(Block::iterator(branch), taken.front().getOperations());
  }
  branch.erase();
}

/// Writes the loop as it is where `condition` holds or does not, without what is then not needed; returns
/// its results that are `used`.
static SmallVector<Value> writeWhere(OpBuilder &b, scf::ForOp loop, ArrayRef<unsigned> used, Value condition,
                                     bool holds) {
  auto whole = cast<scf::ForOp>(OpBuilder(loop).clone(*loop));
  whole->walk([&](scf::IfOp branch) {
    if (branch.getCondition() == condition)
      resolve(branch, holds);
  });
  auto isInside = [&](OpOperand &use) { return whole->isProperAncestor(use.getOwner()); };
  if (llvm::any_of(condition.getUses(), isInside))
    condition.replaceUsesWithIf(arith::ConstantIntOp::create(b, loop.getLoc(), holds, 1), isInside);
  Slice slice(whole, whole);
  slice.addEffects();
  for (unsigned number : used)
    slice.add(whole.getResult(number));
  IRMapping mapping;
  slice.cloneTo(b, mapping);
  SmallVector<Value> results;
  for (unsigned number : used)
    results.push_back(mapping.lookup(whole.getResult(number)));
  whole.erase();
  return results;
}

namespace {

struct UnswitchLoops : tile::impl::UnswitchLoopsPassBase<UnswitchLoops> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found; // inner loops first: what moves out of them may move on
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = kernel->getAttrOfType<ScheduleAttr>("tile.schedule");
      if (schedule && schedule.getKind() == ScheduleKind::Wgmma)
        kernel.walk([&](scf::ForOp loop) { found.push_back(loop); });
    }
    for (scf::ForOp loop : found)
      unswitch(loop);
  }

  void unswitch(scf::ForOp loop) {
    if (llvm::none_of(*loop.getBody(), [](Operation &op) { return isa<FillOp, TakeOp>(op); }))
      return;
    Value condition = findCondition(loop);
    if (!condition)
      return;
    SmallVector<unsigned> used;
    SmallVector<Value> results;
    for (OpResult result : loop.getResults())
      if (!result.use_empty()) {
        used.push_back(result.getResultNumber());
        results.push_back(result);
      }
    auto write = [&](bool holds) {
      return [&, holds](OpBuilder &b, Location loc) {
        scf::YieldOp::create(b, loc, writeWhere(b, loop, used, condition, holds));
      };
    };
    OpBuilder b(loop);
    auto branch = scf::IfOp::create(b, loop.getLoc(), condition, write(true), write(false));
    for (auto [result, known] : llvm::zip_equal(results, branch.getResults()))
      result.replaceAllUsesWith(known);
    loop.erase();
    for (Region &region : branch->getRegions())
      for (auto written : llvm::make_early_inc_range(region.getOps<scf::ForOp>()))
        unswitch(written);
  }
};

} // namespace

//===- PipelineCopies.cpp - Copies ahead of their use ---------------------===//
//
// With S stages the loop over n tiles becomes
//
//   for s in 0 .. S-2:  if s < n: gather tile s into slot s
//                       commit                         (empty groups keep the count)
//   for i in 0 .. n-1:  wait until S-2 groups are left  tile i has arrived, for me
//                       sync                            ... for all; and all have left tile i-1
//                       if i+S-1 < n: gather tile i+S-1 into slot (i-1) mod S
//                       commit
//                       compute on slot i mod S
//   wait for all; sync
//
// One barrier per tile serves both directions: it publishes the arrived tile
// and proves the slot of the previous one free.
//
// Where a wait for older copies stands in front of the loop (with the sync and
// the loads that follow from it), the first tiles start before that wait, which
// then leaves their groups unfinished: two latencies become one.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::tile {
#define GEN_PASS_DEF_PIPELINECOPIESPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// A loop as `--attn-to-tile` writes it.
struct TileLoop {
  scf::ForOp loop;
  GatherOp gather;
  SyncOp arrived, left;

  static FailureOr<TileLoop> match(scf::ForOp loop) {
    TileLoop found{loop, {}, {}, {}};
    for (Operation &op : *loop.getBody()) {
      if (auto gather = dyn_cast<GatherOp>(op)) {
        if (found.gather)
          return loop.emitOpError("expected one gather per iteration, found two");
        found.gather = gather;
      } else if (auto sync = dyn_cast<SyncOp>(op)) {
        (found.arrived ? found.left : found.arrived) = sync;
      }
    }
    if (!found.gather || !found.arrived || !found.left || found.arrived->isBeforeInBlock(found.gather))
      return loop.emitOpError("expected a gather, a sync and another sync in a loop with tile.stages");
    return found;
  }

  /// The order of passes guarantees all this; IR from a file may be anything.
  LogicalResult verify(int64_t stages) {
    if (getConstantIntValue(loop.getLowerBound()) != 0 || getConstantIntValue(loop.getStep()) != 1)
      return loop.emitOpError("expected a loop with tile.stages to count from 0 in steps of 1");
    for (Value target : gather.getTargets()) {
      auto slot = target.getDefiningOp<SlotOp>();
      if (!slot || !loop->isAncestor(slot) || slot.getRing().getType().getSlots() != stages)
        return gather.emitOpError("expected to fill slots of rings of ") << stages << " tiles, one per stage";
    }
    return success();
  }
};

struct PipelineCopies : tile::impl::PipelineCopiesPassBase<PipelineCopies> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found;
    getOperation().walk([&](scf::ForOp loop) {
      if (loop->hasAttr("tile.stages"))
        found.push_back(loop);
    });
    for (scf::ForOp loop : found) {
      int64_t stages = loop->getAttrOfType<IntegerAttr>("tile.stages").getInt();
      if (stages > 1) {
        FailureOr<TileLoop> match = TileLoop::match(loop);
        if (failed(match) || failed(match->verify(stages)) || failed(pipeline(*match, stages)))
          return signalPassFailure();
        ++loops;
      }
      loop->removeAttr("tile.stages");
    }
  }

  /// A wait that only a sync, loads and pure operations separate from the loop.
  static WaitOp waitBefore(scf::ForOp loop) {
    for (Operation *op = loop->getPrevNode(); op; op = op->getPrevNode()) {
      if (auto wait = dyn_cast<WaitOp>(op))
        return wait;
      if (!isa<SyncOp, LoadOp>(op) && !isPure(op))
        return {};
    }
    return {};
  }

  static LogicalResult pipeline(TileLoop tileLoop, int64_t stages) {
    scf::ForOp loop = tileLoop.loop;
    Scope scope = tileLoop.arrived.getScope();
    Location loc = loop.getLoc();
    Value count = loop.getUpperBound();

    // What the gather is computed from, inside the loop: pure functions of the iteration.
    SetVector<Operation *> needed;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.omitBlockArguments = true;
    options.omitUsesFromAbove = false;
    options.filter = [&](Operation *op) { return loop->isProperAncestor(op); };
    (void)getBackwardSlice(tileLoop.gather.getOperation(), &needed, options);
    SmallVector<Operation *> slice;
    for (Operation &op : *loop.getBody())
      if (needed.contains(&op))
        slice.push_back(&op);
    for (Operation *op : slice)
      for (Value operand : op->getOperands())
        if (llvm::is_contained(loop.getRegionIterArgs(), operand))
          return tileLoop.gather.emitOpError("depends on a value that the loop carries: it cannot run ahead");

    auto gatherInto = [&](OpBuilder &b, Value iteration, Value slot) {
      IRMapping mapping;
      mapping.map(loop.getInductionVar(), iteration);
      for (Operation *op : slice) {
        Operation *copy = b.clone(*op, mapping);
        if (auto slotOp = dyn_cast<SlotOp>(copy))
          slotOp.getIndexMutable().assign(slot);
      }
    };
    auto i32 = [&](OpBuilder &b, int64_t value) -> Value {
      return arith::ConstantIntOp::create(b, loc, value, 32);
    };
    auto gatherIfAny = [&](OpBuilder &b, Value iteration, Value slot) {
      Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, iteration, count);
      scf::IfOp::create(b, loc, exists, [&](OpBuilder &inner, Location) {
        gatherInto(inner, iteration, slot);
        scf::YieldOp::create(inner, loc);
      });
      CommitOp::create(b, loc);
    };

    OpBuilder b(loop);
    if (WaitOp older = waitBefore(loop)) {
      older.setPending(older.getPending() + stages - 1);
      // What the first gathers are computed from may stand behind the wait.
      for (Operation &op : llvm::make_early_inc_range(
               llvm::make_range(std::next(Block::iterator(older)), Block::iterator(loop))))
        if (isPure(&op) && llvm::none_of(op.getOperands(), [](Value v) { return v.getDefiningOp<LoadOp>(); }))
          op.moveBefore(older);
      b.setInsertionPoint(older);
    }
    for (int64_t stage = 0; stage + 1 < stages; ++stage) {
      Value index = i32(b, stage);
      gatherIfAny(b, index, index);
    }

    // The loop's own gather, commit, wait and sync give way to those of the steady state.
    Operation *first = &loop.getBody()->front();
    b.setInsertionPoint(first);
    Value ringSize = i32(b, stages);
    Value ahead = arith::AddIOp::create(b, loc, loop.getInductionVar(), i32(b, stages - 1));
    Value slot = arith::RemUIOp::create(b, loc, loop.getInductionVar(), ringSize);
    Value aheadSlot = arith::RemUIOp::create(b, loc, ahead, ringSize);
    WaitOp::create(b, loc, stages - 2);
    SyncOp::create(b, loc, scope);
    gatherIfAny(b, ahead, aheadSlot);
    SmallVector<Operation *> replaced;
    for (Operation *op = tileLoop.gather; op != tileLoop.arrived->getNextNode(); op = op->getNextNode())
      if (isa<GatherOp, CommitOp, WaitOp, SyncOp>(op))
        replaced.push_back(op);
    replaced.push_back(tileLoop.left);
    for (Operation *op : replaced)
      op->erase();
    for (auto slotOp : llvm::make_early_inc_range(loop.getBody()->getOps<SlotOp>()))
      slotOp.getIndexMutable().assign(slot);

    b.setInsertionPointAfter(loop);
    WaitOp::create(b, loc, 0);
    SyncOp::create(b, loc, scope);
    return success();
  }
};

} // namespace

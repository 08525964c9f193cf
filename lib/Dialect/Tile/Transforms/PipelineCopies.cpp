//===- PipelineCopies.cpp - Copies ahead of their use ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With S stages the loop over n tiles becomes
//
//   for s in 0 .. S-2:  if s < n: gather tile s into stage s
//                       commit                         (empty groups keep the count)
//   for i in 0 .. n-1:  wait until S-2 groups are left  tile i has arrived, for this warp
//                       sync                            ... for all; and all have finished tile i-1
//                       if i+S-1 < n: gather tile i+S-1 into stage (i-1) mod S
//                       commit
//                       compute on stage i mod S
//   sync
//
// After the loop there is nothing to wait for: the remaining groups are empty. The sync frees the stages.
//
// One barrier per tile serves both directions: it publishes the arrived tile and proves that the stage of the
// previous one is free.
//
// If lines must be looked up, the lookup runs a tile ahead of the gather, and the next iteration carries its
// result: a table is as far away as keys, and no warp should wait for it. The lookups of the first S tiles
// start together, before the loop.
//
// A wait for older copies may precede the loop, with a sync and loads after it. The first tiles then start
// before that wait, which leaves their groups unfinished: two latencies become one.
//
//===----------------------------------------------------------------------===//
#include "ComputeIf.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#define DEBUG_TYPE "tile-pipeline-copies"

namespace mlir::tile {
#define GEN_PASS_DEF_PIPELINECOPIESPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// A loop with the structure that `--attn-stage-operands` writes.
struct TileLoop {
  scf::ForOp loop;
  GatherOp gather;
  LookupOp lookup; ///< lookup of the gather's lines, if it has one
  SyncOp arrived, left;

  static FailureOr<TileLoop> match(scf::ForOp loop) {
    TileLoop found{loop, {}, {}, {}, {}};
    for (Operation &op : *loop.getBody()) {
      if (auto gather = dyn_cast<GatherOp>(op)) {
        if (found.gather)
          return loop.emitOpError("expected one gather per iteration, found two");
        found.gather = gather;
      } else if (auto sync = dyn_cast<SyncOp>(op)) {
        if (!found.arrived || found.arrived.getScope() == sync.getScope())
          (found.arrived ? found.left : found.arrived) = sync;
      }
    }
    if (!found.gather || !found.arrived || !found.left || found.arrived->isBeforeInBlock(found.gather))
      return loop.emitOpError("expected a gather, a sync and another sync in a loop with tile.stages");
    if (Value slots = found.gather.getSlots())
      if (auto lookup = slots.getDefiningOp<LookupOp>(); lookup && lookup->getBlock() == loop.getBody())
        found.lookup = lookup;
    return found;
  }

  /// The order of passes guarantees all this, but IR from a file may be anything.
  LogicalResult verify(int64_t stages) {
    if (getConstantIntValue(loop.getLowerBound()) != 0 || getConstantIntValue(loop.getStep()) != 1)
      return loop.emitOpError("expected a loop with tile.stages to count from 0 in steps of 1");
    for (Value target : gather.getTargets()) {
      auto stage = target.getDefiningOp<RingStageOp>();
      if (!stage || !loop->isAncestor(stage) || stage.getRing().getType().getStages() != stages)
        return gather.emitOpError("expected to gather into stages of rings of ") << stages << " tiles";
    }
    return success();
  }
};

/// Whether the operation reads and writes only registers.
bool isOfRegisters(Operation *op) {
  auto mma = dyn_cast<MmaOp>(op);
  return mma ? llvm::none_of(op->getOperandTypes(), llvm::IsaPred<SharedType>) : isMemoryEffectFree(op);
}

/// Returns a wait that only a sync, loads and operations on registers separate from the loop.
WaitOp waitBefore(scf::ForOp loop) {
  for (Operation *op = loop->getPrevNode(); op; op = op->getPrevNode()) {
    if (auto wait = dyn_cast<WaitOp>(op))
      return wait;
    if (!isa<SyncOp, LoadOp, NarrowTileOp>(op) && !isOfRegisters(op))
      return {};
  }
  return {};
}

/// Returns an operation of the loop and the operations that it depends on: pure functions of the iteration.
/// `known` is excluded, and so are operations that only `known` depends on.
FailureOr<SmallVector<Operation *>> sliceOf(Operation *of, Operation *known, scf::ForOp loop) {
  SetVector<Operation *> needed;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitBlockArguments = true;
  options.omitUsesFromAbove = false;
  options.filter = [&](Operation *op) { return op != known && loop->isProperAncestor(op); };
  (void)getBackwardSlice(of, &needed, options);
  SmallVector<Operation *> slice;
  for (Operation &op : *loop.getBody())
    if (needed.contains(&op))
      slice.push_back(&op);
  for (Operation *op : slice)
    for (Value operand : op->getOperands())
      if (llvm::is_contained(loop.getRegionIterArgs(), operand))
        return of->emitOpError("depends on a value that the loop carries: it cannot run ahead");
  return slice;
}

/// Lets the gathers of a loop run `stages` - 1 iterations ahead of their use.
class Pipeline {
public:
  Pipeline(TileLoop tiles, int64_t stages)
      : tiles(tiles), loop(tiles.loop), lookup(tiles.lookup), stages(stages),
        b(tiles.loop.getLoc(), tiles.loop) {}

  LogicalResult run() {
    if (failed(findSlices()))
      return failure();
    starts = startFirst();
    if (failed(carryLookup()))
      return failure();
    writeSteadyState();
    return success();
  }
  /// Whether the first gathers start before a wait for older copies.
  bool startsEarly() const { return starts; }

private:
  LogicalResult findSlices();
  bool startFirst();
  LogicalResult carryLookup();
  void writeSteadyState();
  void eraseOwnCopies();

  Value i32(OpBuilder &builder, int64_t value) {
    return arith::ConstantIntOp::create(builder, b.getLoc(), value, 32);
  }
  Value isTile(Value iteration) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, iteration, loop.getUpperBound());
  }
  Value lookUpIfAny(Value iteration);
  void gatherIfAny(Value iteration, Value slots, Value stage);

  TileLoop tiles;
  scf::ForOp loop;
  LookupOp lookup;
  int64_t stages;
  bool starts = false;
  ImplicitLocOpBuilder b;
  SmallVector<Operation *> gathers,
      looksUp;                ///< the gather and the lookup, with the operations that they depend on
  SmallVector<Value> lookups; ///< lookups of the next tiles to gather
};

LogicalResult Pipeline::findSlices() {
  FailureOr<SmallVector<Operation *>> slice = sliceOf(tiles.gather, lookup, loop);
  if (failed(slice))
    return failure();
  gathers = *slice;
  if (!lookup)
    return success();
  slice = sliceOf(lookup, {}, loop);
  if (failed(slice))
    return failure();
  looksUp = *slice;
  return success();
}

Value Pipeline::lookUpIfAny(Value iteration) {
  IRMapping mapping;
  mapping.map(tiles.loop.getInductionVar(), iteration);
  return computeIf(b, isTile(iteration), looksUp, lookup.getSlots(), mapping);
}

void Pipeline::gatherIfAny(Value iteration, Value slots, Value stage) {
  IRMapping mapping;
  mapping.map(tiles.loop.getInductionVar(), iteration);
  if (slots)
    mapping.map(lookup.getSlots(), slots);
  Value exists = isTile(iteration);
  // Its addresses are also computed in the branch: shared by all gathers, they would live through the loop.
  scf::IfOp::create(b, exists, [&](OpBuilder &inner, Location loc) {
    for (Operation *op : gathers) {
      Operation *copy = inner.clone(*op, mapping);
      if (auto ofRing = dyn_cast<RingStageOp>(copy))
        ofRing.getIndexMutable().assign(stage);
    }
    scf::YieldOp::create(inner, loc);
  });
  CommitOp::create(b);
}

/// Starts the gathers of the first tiles, before a wait for older copies if there is one: returns that wait.
bool Pipeline::startFirst() {
  WaitOp older = waitBefore(loop);
  if (older) {
    older.setPending(older.getPending() + stages - 1);
    // Inputs of the first gathers may come after the wait and move; values made from loads stay.
    SmallPtrSet<Operation *, 16> stay;
    for (Operation &op : llvm::make_early_inc_range(
             llvm::make_range(std::next(Block::iterator(older)), Block::iterator(loop))))
      if (isPure(&op) &&
          llvm::none_of(op.getOperands(), [&](Value v) { return stay.contains(v.getDefiningOp()); }))
        op.moveBefore(older);
      else
        stay.insert(&op);
    b.setInsertionPoint(older);
  }
  lookups.resize(stages);
  if (lookup)
    for (int64_t stage = 0; stage < stages; ++stage)
      lookups[stage] = lookUpIfAny(i32(b, stage));
  for (int64_t stage = 0; stage + 1 < stages; ++stage) {
    Value index = i32(b, stage);
    gatherIfAny(index, lookups[stage], index);
  }
  return older || decline(DEBUG_TYPE, loop,
                          "it follows no wait for older copies before which its first copies could start");
}

LogicalResult Pipeline::carryLookup() {
  if (!lookup)
    return success();
  IRRewriter rewriter(loop.getContext());
  auto carried = loop.replaceWithAdditionalYields(
      rewriter, lookups.back(), /*replaceInitOperandUsesInLoop=*/false,
      [](OpBuilder &, Location, ArrayRef<BlockArgument> slots) { return SmallVector<Value>{slots[0]}; });
  if (failed(carried))
    return failure();
  loop = tiles.loop = cast<scf::ForOp>(*carried);
  lookups.back() = loop.getRegionIterArgs().back();
  return success();
}

/// Replaces the loop's own lookup, gather, commit, wait and sync by those of the steady state.
void Pipeline::writeSteadyState() {
  b.setInsertionPointToStart(loop.getBody());
  Value ahead = arith::AddIOp::create(b, loop.getInductionVar(), i32(b, stages - 1));
  Value stage = RingPositionOp::create(b, loop.getInductionVar(), stages).getStage();
  Value aheadStage = RingPositionOp::create(b, ahead, stages).getStage();
  WaitOp::create(b, stages - 2);
  Scope scope = tiles.arrived.getScope();
  SyncOp::create(b, scope);
  gatherIfAny(ahead, lookups.back(), aheadStage);
  if (lookup) {
    Value next = lookUpIfAny(arith::AddIOp::create(b, ahead, i32(b, 1)));
    Operation *yield = loop.getBody()->getTerminator();
    yield->setOperand(yield->getNumOperands() - 1, next);
  }
  SmallPtrSet<Value, 8> rings; // of the gather: the loop may use others
  for (Value target : tiles.gather.getTargets())
    rings.insert(target.getDefiningOp<RingStageOp>().getRing());
  eraseOwnCopies();
  for (auto ofRing : loop.getBody()->getOps<RingStageOp>())
    if (rings.contains(ofRing.getRing()))
      ofRing.getIndexMutable().assign(stage);
  b.setInsertionPointAfter(loop);
  SyncOp::create(b, scope);
}

void Pipeline::eraseOwnCopies() {
  SmallVector<Operation *> replaced;
  for (Operation *op = tiles.gather; op != tiles.arrived->getNextNode(); op = op->getNextNode())
    if (isa<GatherOp, CommitOp, WaitOp, SyncOp>(op))
      replaced.push_back(op);
  replaced.push_back(tiles.left);
  for (Operation *op : replaced)
    op->erase();
  if (lookup)
    lookup.erase();
}

struct PipelineCopies : tile::impl::PipelineCopiesPassBase<PipelineCopies> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found;
    getOperation().walk([&](scf::ForOp loop) {
      if (tile::stagesAttr.isOn(loop))
        found.push_back(loop);
    });
    for (scf::ForOp loop : found) {
      int64_t stages = stagesAttr.get(loop).getInt();
      stagesAttr.remove(loop);
      if (stages < 2) {
        decline(DEBUG_TYPE, loop, "its rings have one stage");
        continue;
      }
      FailureOr<TileLoop> match = TileLoop::match(loop); // the loop may be replaced by one that carries more
      if (failed(match) || failed(match->verify(stages)))
        return signalPassFailure();
      Pipeline pipeline(*match, stages);
      if (failed(pipeline.run()))
        return signalPassFailure();
      ++pipelined;
      early += pipeline.startsEarly();
    }
  }
};

} // namespace

//===- InsertBarriers.cpp - Barriers between producers and consumers ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each ring between producers and consumers gets two barriers per stage: `full` completes a phase when a
// tile's copies have landed, `empty` when every consumer warp has read the tile. Both sides count tiles, t:
// the stage of tile t is t mod S, and the parity of its round is (t / S) mod 2.
//
//   produce:  wait empty[stage] parity 1 - parity      at first it returns at once
//             copies into the stage                    they arrive at full[stage]
//   consume:  wait full[stage] parity                  before the first use
//             uses
//             arrive empty[stage]                      after the last use
//
// Some lines of a TMA load must be cleared once it has landed. The TMA load of such a tile therefore arrives
// at an extra barrier, for which only the loading warp waits. That warp counts the tiles it has cleared, by
// their parity.
//
// A TMA store may read a stage until the next tile is consumed, and no warp waits for it before: the stage is
// released then. So the first consumed tile releases a stage that was never produced, and the producer's wait
// for the ring's last stage comes a round later.
//
// Producers widen a tile that they have copied elsewhere. Each warp fences and arrives when it has written
// its lines. The loop around such copies gets `tile.stages`, and --tile-pipeline-copies lets them run ahead.
//
// A gather writes through the generic proxy, and MMAs read through the async proxy: a warp that has waited
// for the copies fences, once for all copies that it has waited for.
//
//===----------------------------------------------------------------------===//
#include "RingCounters.h"

#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

namespace mlir::tile {
#define GEN_PASS_DEF_INSERTBARRIERSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

class RingBarriers {
public:
  RingBarriers(func::FuncOp kernel, ScheduleAttr schedule)
      : kernel(kernel), schedule(schedule), b(kernel.getLoc(), kernel.getContext()) {}
  LogicalResult run();
  size_t countRings() const { return rings.size(); }
  size_t countBarriers() const { return barriers; }

private:
  void allocate();
  void lower(RingCounters &counters, ArrayRef<Operation *> operations);
  void lowerProduce(RingCounters &counters, ProduceOp produce);
  /// Arrives once the lines from the clear's first on are zeros; returns the new parity.
  Value tmaLoadAndClear(const ProducedCopies &copies, Ring &ring, Value stage, Value cleared);
  void lowerConsume(RingCounters &counters, ConsumeOp consume, const TileUses &uses);
  void passTakes(RingCounters &counters, ArrayRef<ConsumeOp> consumes, Operation *place);
  bool needsFence(ConsumeOp consume, const TileUses &uses);
  void waitTmaStores(ConsumeOp consume);

  Ring &ringOf(Operation *op) { return rings.find(tile::ringOf(op))->second; }
  void at(Operation *op) { b.setInsertionPoint(op), b.setLoc(op->getLoc()); }
  Value i32(int64_t value) { return arith::ConstantIntOp::create(b, value, 32); }
  Value stageOf(Ring &ring, Value tile);
  Value parityOf(Ring &ring, Value tile);
  Value later(Value tile, int64_t tiles) { return b.createOrFold<arith::AddIOp>(tile, i32(tiles)); }
  Value tileIn(Ring &ring, Value stage) {
    return RingStageOp::create(b, ring.getType().getTile(), ring.tiles, stage);
  }
  void release(Ring &ring, Value tile) { ArriveOp::create(b, ring.empty, stageOf(ring, tile), Value()); }

  func::FuncOp kernel;
  ScheduleAttr schedule;
  ImplicitLocOpBuilder b;
  Rings rings;
  size_t barriers = 0;            ///< number of allocated barriers
  DenseSet<Operation *> finished; ///< loops after which TMA stores are waited for
};

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// Barriers of inner loops' rings come first, each after its ring. If a kernel has tiles outside of rings,
/// shared memory is scarce: all barriers then come after all tiles, because each tile after barriers would be
/// aligned again.
void RingBarriers::allocate() {
  SmallVector<Ring *> inOrder = llvm::map_to_vector(rings, [](auto &entry) { return &entry.second; });
  llvm::sort(inOrder,
             [](Ring *x, Ring *y) { return std::pair(-x->getDepth(), x) < std::pair(-y->getDepth(), y); });
  Operation *last = nullptr;
  auto allocs = kernel.front().getOps<AllocOp>();
  if (llvm::any_of(allocs, [&](AllocOp op) { return !rings.contains(op.getMemory()); }))
    for (AllocOp op : allocs)
      last = op;
  auto alloc = [&](int64_t count) {
    auto op = AllocOp::create(b, BarriersType::get(b.getContext(), count), Value(), false, IntegerAttr());
    last = op;
    barriers += count;
    return op.getMemory();
  };
  for (Ring *ring : inOrder) {
    if (!last || last->isBeforeInBlock(ring->tiles))
      last = ring->tiles;
    b.setInsertionPointAfter(last);
    b.setLoc(ring->tiles.getLoc());
    ring->full = alloc(ring->getStages() + (ring->clears ? 1 : 0));
    ring->empty = alloc(ring->getStages());
  }
  b.setInsertionPointAfter(last);
  // A TMA load arrives once; for a gather, each producer thread arrives with its copies. A warp that widens
  // arrives once.
  auto arrivals = [&](Ring &ring) -> int64_t {
    bool alone = cast<ProduceOp>(ring.produces.front()).getWarp().has_value();
    return ring.gathers  ? 32 * (alone ? 1 : schedule.getProducerWarps())
           : ring.widens ? schedule.getProducerWarps()
                         : 1;
  };
  SmallVector<Value> all;
  SmallVector<int64_t> counts;
  for (auto &[tiles, ring] : rings) {
    all.push_back(ring.full), counts.push_back(arrivals(ring));
    all.push_back(ring.empty), counts.push_back(schedule.getWarps());
  }
  InitBarriersOp::create(b, all, counts);
  if (llvm::any_of(rings, [](auto &entry) { return !entry.second.gathers; }))
    PublishBarriersOp::create(b);
  SyncOp::create(b, Scope::Block);
}

//===----------------------------------------------------------------------===//
// tile.produce and tile.consume
//===----------------------------------------------------------------------===//

/// Returns the stage, never as a constant. LLVM would make the addresses of the stage's barriers constants.
/// ptxas, which finds those in branches of one lane, would then keep no address or descriptor of the kernel
/// in uniform registers.
Value RingBarriers::stageOf(Ring &ring, Value tile) {
  APInt number;
  bool known = matchPattern(tile, m_ConstantInt(&number));
  if (ring.getStages() > 1 && !known)
    return RingPositionOp::create(b, tile, ring.getStages()).getStage();
  return FromLaneOp::create(b, i32(known ? number.getZExtValue() % ring.getStages() : 0), i32(0));
}

Value RingBarriers::parityOf(Ring &ring, Value tile) {
  return RingPositionOp::create(b, tile, ring.getStages()).getParity();
}

void RingBarriers::lowerProduce(RingCounters &counters, ProduceOp produce) {
  Ring &ring = ringOf(produce);
  ProducedCopies copies = *copiesOf(produce);
  at(produce);
  Value tile = counters.tileOf(produce), stage = stageOf(ring, tile), target = tileIn(ring, stage);
  Value parity = parityOf(ring, ring.sent ? later(tile, 1) : tile);
  MbarrierWaitOp::create(b, ring.empty, stage, parity, /*before=*/true);
  if (!ring.gathers &&
      !ring.widens) // all lanes have seen this phase before a copy lets other lanes end the next
    SyncOp::create(b, Scope::Warp);
  Block &block = produce.getCopies().front();
  auto loop = produce->getParentOfType<scf::ForOp>();
  for (auto gather : block.getOps<GatherOp>())
    if (auto stored = gather.getTargets().front().getDefiningOp<RingStageOp>(); ring.widens && stored && loop)
      stagesAttr.set(loop, b.getI64IntegerAttr(stored.getRing().getType().getStages()));
  block.getArgument(0).replaceAllUsesWith(target);
  if (copies.clear)
    counters.clearedOf(produce) = tmaLoadAndClear(copies, ring, stage, counters.clearedOf(produce));
  else
    block.walk([&](TmaLoadOp tmaLoad) {
      tmaLoad.getBarriersMutable().assign(ring.full);
      tmaLoad.getIndexMutable().assign(stage);
    });
  produce->getBlock()->getOperations().splice(produce->getIterator(), block.getOperations());
  at(produce);
  if (ring.gathers)
    ArriveOnCopiesOp::create(b, ring.full, stage);
  if (ring.widens) {
    FenceAsyncOp::create(b);
    SyncOp::create(b, Scope::Warp); // all lanes have written
    ArriveOp::create(b, ring.full, stage, Value());
  }
  produce.erase();
}

Value RingBarriers::tmaLoadAndClear(const ProducedCopies &copies, Ring &ring, Value stage, Value cleared) {
  TmaLoadOp tmaLoad = copies.tmaLoad;
  ClearOp clear = copies.clear;
  at(clear);
  Value landed = i32(ring.getStages()); // the ring's additional barrier
  Value isTail = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, clear.getLine(),
                                       i32(clear.getTile().getType().getRows()));
  tmaLoad.getBarriersMutable().assign(ring.full);
  tmaLoad.getIndexMutable().assign(arith::SelectOp::create(b, isTail, landed, stage));
  tmaLoad->moveBefore(clear);
  auto branch = scf::IfOp::create(b, isTail);
  Value next = arith::XOrIOp::create(b, cleared, arith::ExtUIOp::create(b, b.getI32Type(), isTail));
  b.setInsertionPoint(branch.thenYield());
  MbarrierWaitOp::create(b, ring.full, landed, cleared, /*before=*/false);
  clear->moveBefore(branch.thenYield());
  FenceAsyncOp::create(b);
  SyncOp::create(b, Scope::Warp); // all lanes have cleared
  ArriveOp::create(b, ring.full, stage, Value());
  return next;
}

void RingBarriers::lower(RingCounters &counters, ArrayRef<Operation *> operations) {
  SmallVector<ConsumeOp> unused;
  bool someUsed = false;
  for (Operation *op : operations) {
    if (auto produce = dyn_cast<ProduceOp>(op)) {
      lowerProduce(counters, produce);
      continue;
    }
    auto consume = cast<ConsumeOp>(op);
    TileUses uses = *usesOf(consume);
    if (!uses.first) {
      unused.push_back(consume);
      continue;
    }
    someUsed = true;
    passTakes(counters, unused, uses.first);
    unused.clear();
    lowerConsume(counters, consume, uses);
  }
  if (!unused.empty())
    passTakes(counters, unused, someUsed ? unused.back()->getBlock()->getTerminator() : unused.back());
}

/// Whether this wait needs a fence. Tiles of inner loops may bring their own fence: it comes after this wait,
/// too.
bool RingBarriers::needsFence(ConsumeOp consume, const TileUses &uses) {
  auto isFenced = [&](StartMmaOp mma) {
    return llvm::any_of(mma->getOperands(), [&](Value operand) {
      auto other = operand.getDefiningOp<ConsumeOp>();
      return other &&
             isa_and_nonnull<scf::ForOp, scf::IfOp>(consume->getBlock()->findAncestorOpInBlock(*other)) &&
             ringOf(other).gathers;
    });
  };
  return ringOf(consume).gathers && !llvm::all_of(uses.mmas, isFenced);
}

void RingBarriers::lowerConsume(RingCounters &counters, ConsumeOp consume, const TileUses &uses) {
  Ring &ring = ringOf(consume);
  Value tile = counters.tileOf(consume);
  at(uses.first);
  b.setLoc(consume.getLoc());
  if (ring.sent) { // meanwhile the TMA store from the previous stage has read it
    WaitTmaStoresOp::create(b);
    SyncOp::create(b, Scope::Warp); // lanes themselves may have read the tile
    release(ring, later(tile, ring.getStages() - 1));
  }
  Value stage = stageOf(ring, tile);
  MbarrierWaitOp::create(b, ring.full, stage, parityOf(ring, tile), /*before=*/false);
  if (needsFence(consume, uses))
    FenceAsyncOp::create(b);
  Value taken = tileIn(ring, stage);
  if (ring.sent) {
    waitTmaStores(consume);
  } else {
    b.setInsertionPointAfter(uses.last);
    if (!uses.endsWithMma) // no lane may still be waiting, or reading
      SyncOp::create(b, Scope::Warp);
    release(ring, tile);
  }
  consume.getTile().replaceAllUsesWith(taken);
  consume.erase();
}

/// Waits for TMA stores in flight at the end of the outermost loop.
void RingBarriers::waitTmaStores(ConsumeOp consume) {
  scf::ForOp outermost;
  for (auto loop = consume->getParentOfType<scf::ForOp>(); loop; loop = loop->getParentOfType<scf::ForOp>())
    outermost = loop;
  b.setInsertionPointAfter(outermost);
  if (finished.insert(outermost).second)
    WaitTmaStoresOp::create(b);
}

/// Releases tiles without uses, where the next tile is used: they have come by then. No warp may be two
/// phases of a barrier ahead, or parities would be confused.
void RingBarriers::passTakes(RingCounters &counters, ArrayRef<ConsumeOp> consumes, Operation *place) {
  if (consumes.empty())
    return;
  at(place);
  for (ConsumeOp consume : consumes) {
    Value tile = counters.tileOf(consume), stage = stageOf(ringOf(consume), tile);
    MbarrierWaitOp::create(b, ringOf(consume).full, stage, parityOf(ringOf(consume), tile), /*before=*/false);
  }
  SyncOp::create(b, Scope::Warp); // all lanes have seen these phases before one ends them
  for (ConsumeOp consume : consumes)
    release(ringOf(consume), counters.tileOf(consume));
  for (ConsumeOp consume : consumes)
    consume.erase();
}

LogicalResult RingBarriers::run() {
  FailureOr<Rings> found = findRings(kernel);
  if (failed(found))
    return failure();
  rings = *found;
  if (rings.empty())
    return success();
  FailureOr<SmallVector<RingRole>> roles = findRingRoles(kernel);
  if (failed(roles))
    return failure();
  allocate();
  auto lowerBlock = [&](RingCounters &counters, ArrayRef<Operation *> inBlock) { lower(counters, inBlock); };
  for (const RingRole &role : *roles)
    RingCounters(role).run(lowerBlock);
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

struct InsertBarriers : tile::impl::InsertBarriersPassBase<InsertBarriers> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = tile::scheduleAttr.get(kernel);
      if (!schedule || schedule.getKind() != ScheduleKind::Wgmma)
        continue;
      RingBarriers inserted(kernel, schedule);
      if (failed(inserted.run()))
        return signalPassFailure();
      rings += inserted.countRings();
      barriers += inserted.countBarriers();
    }
  }
};

} // namespace

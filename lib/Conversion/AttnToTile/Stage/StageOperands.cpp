//===- StageOperands.cpp - Copies of rows and tokens on the chip ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dots read shared memory, or registers. Where an online operation takes rows or
// tokens, this pass puts copies of them on the chip in front of it:
//
//   rows     one gather by the block where the task begins; each loop over tiles
//            waits for it, and loads it into registers if the schedule says so
//   tokens   a gather of keys and values at the start of each iteration, into a
//            slot of two rings, with the waits of a program that copies first and
//            computes then. --tile-pipeline-copies lets the two overlap.
//
// Where the keys of a tile are split between warps, each warp copies its own
// and nothing but these holds it up. Where some warps only copy, see StageFills.cpp.
//
//===----------------------------------------------------------------------===//
#include "StageFills.h"
#include "StageGradients.h"
#include "TileCopies.h"

#include "attn/Conversion/Passes.h"
#include "attn/Conversion/TokenTiles.h"

namespace mlir::attn {
#define GEN_PASS_DEF_STAGEOPERANDSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class Staging : public TileCopies {
public:
  Staging(Chain &chain, func::FuncOp kernel)
      : TileCopies(chain, kernel), scope(schedule.getSplitKeys() ? Scope::Warp : Scope::Block) {}

  void run(RowsOp queryRows);

private:
  void allocate();
  void stageRows(RowsOp queryRows);
  void stageTokens(UpdateOp update);
  void awaitRows(UpdateOp update, scf::ForOp tiles);

  Scope scope;
  Value queryTile;
  /// Rings for the tiles of each kind of region.
  struct Rings {
    KVType kind;
    SmallVector<Value> rings;
  };
  SmallVector<Rings> ringsOfKinds;
  ArrayRef<Value> ringsOf(KVType region);
};

void Staging::run(RowsOp queryRows) {
  b.setInsertionPointAfter(*b.kernel.front().getOps<StartNextOp>().begin());
  allocate();
  stageRows(queryRows);
  for (UpdateOp update : chain.updates) {
    awaitRows(update, cast<scf::ForOp>(update->getParentOp()));
    stageTokens(update);
  }
  b.describeParameters();
}

void Staging::allocate() {
  queryTile = AllocOp::create(b, sharedType(Axis::Query, schedule.getRows(), chain.paddedKeyDim()), Value(),
                              false, IntegerAttr());
  SmallVector<KVType> regions;
  for (UpdateOp update : chain.updates)
    regions.push_back(update.getKv().getType());
  SmallVector<KVType> kinds = regionsByTiles(regions);
  for (KVType kind : kinds)
    ringsOfKinds.push_back({kind, {}});
  SmallVector<Value> all;
  for (const TokenRing &ring :
       tokenRings(kinds, keys, chain.paddedKeyDim(), chain.paddedValueDim(), schedule.getSplitKeys())) {
    auto type = RingType::get(b.getContext(), schedule.getStages(), ring.tile);
    all.push_back(AllocOp::create(b, type, ring.under ? all[*ring.under] : Value(),
                                  /*per_warp=*/schedule.getSplitKeys(), IntegerAttr()));
    ringsOfKinds[ring.kind].rings.push_back(all.back());
  }
}

ArrayRef<Value> Staging::ringsOf(KVType region) {
  return llvm::find_if(ringsOfKinds, [&](const Rings &of) { return haveSameTiles(of.kind, region); })->rings;
}

void Staging::stageRows(RowsOp queryRows) {
  setRows(queryRows);
  b.setInsertionPoint(queryRows);
  gatherQueries(queryTile, Scope::Block);
  CommitOp::create(b);
  // A task without segments has not waited for its queries.
  scf::ForOp segments = chain.updates.front()->getParentOfType<scf::ForOp>()->getParentOfType<scf::ForOp>();
  b.setInsertionPointAfter(segments);
  WaitOp::create(b, 0);
  // The next task overwrites queries that slower warps may still read, unless they met behind the last loop
  // or exchange results.
  if (schedule.getStages() == 1 && !schedule.getSplitKeys()) {
    b.setInsertionPoint(segments->getBlock()->getTerminator());
    for (Operation &op : llvm::reverse(*segments->getBlock()))
      if (isa<mlir::attn::WriteOp>(op)) {
        b.setInsertionPointAfter(&op);
        break;
      }
    SyncOp::create(b, Scope::Block);
  }
}

/// Waits for queries in front of the loop that reads them, and not where they were asked for, because the
/// pipeline starts the first tiles of keys in front of a wait that precedes its loop.
void Staging::awaitRows(UpdateOp update, scf::ForOp tiles) {
  b.setInsertionPoint(tiles);
  WaitOp::create(b, 0);
  SyncOp::create(b, Scope::Block);
  Value copy = queryTile;
  if (schedule.getQueryInRegisters())
    copy = LoadOp::create(b, queryType(), queryTile, warpRow);
  Value query = update.getQuery();
  update.getQueryMutable().assign(StagedOp::create(b, query.getType(), query, copy));
}

void Staging::stageTokens(UpdateOp update) {
  auto tokens = update.getKv().getDefiningOp<TokensOp>();
  Segment segment = segmentOf(tokens);
  b.setInsertionPointAfter(tokens);
  auto slot = [&](Value ring) {
    return RingStageOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, b.i32(0));
  };
  SmallVector<Value> tiles;
  for (Value ring : ringsOf(update.getKv().getType()))
    tiles.push_back(slot(ring));
  Value slots = lookupTokens(update, segment, tokens.getFirst(), scope);
  gatherTokens(update, segment, tokens.getFirst(), slots, {"k", "v"}, tiles, scope);
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, scope);
  auto staged = StagedOp::create(b, tokens.getType(), tokens, tiles);
  update.getKvMutable().assign(staged);
  b.setInsertionPointAfter(update);
  SyncOp::create(b, scope); // the slot may be filled again
}

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
  if (!kernel->getAttrOfType<ScheduleAttr>("tile.schedule") || !kernel->hasAttr("tile.parameters"))
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
      auto schedule = kernel->getAttrOfType<ScheduleAttr>("tile.schedule");
      if (schedule.getKind() == ScheduleKind::Wgmma)
        stageFills(chain, kernel);
      else if (chain.readsFinished())
        stageGradients(chain, kernel);
      else
        Staging(chain, kernel).run(cast<RowsOp>(chain.init.getQuery().getDefiningOp()));
    }
  }
};

} // namespace

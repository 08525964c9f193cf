//===- StageCopies.cpp - Copies that all warps make -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is held, a task's rows or tokens, has a tile of its own, and what is walked a
// ring of tiles. A walked part is copied where its iteration begins, with the wait of a
// program that copies first and computes then; --tile-pipeline-copies lets the two
// overlap. Where the keys of a tile are split between warps, each warp copies its own,
// and nothing but these holds it up.
//
// Of rows the copies are the queries and, for gradients, the output's gradient and,
// where rows are held, the output. Of tokens they are keys and values, with metadata by
// line; where tokens' weights alone are added up, keys.
//
//===----------------------------------------------------------------------===//
#include "StageCopies.h"
#include "TileCopies.h"

#include "attn/Conversion/TokenTiles.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class CopyStaging : public TileCopies {
public:
  CopyStaging(Chain &chain, func::FuncOp kernel)
      : TileCopies(chain, kernel), scope(schedule.getSplitKeys() ? Scope::Warp : Scope::Block) {}

  void run();

private:
  void holdRows(RowsOp queryRows);
  void holdFinishedRows(RowsOp queryRows);
  void holdTokens(TokensOp tokens);
  void walkTokens(UpdateOp update);
  void walkRows(UpdateOp update);

  /// Allocates for each number of features a tile of the block's packed rows, or a ring of them.
  SmallVector<Value> allocateRows(ArrayRef<int64_t> features, bool ring);
  SmallVector<Value> allocateTokens();
  void allocateTokenRings();
  ArrayRef<Value> ringsOf(KVType region);
  SmallVector<Value> stagesOf(ValueRange rings);
  void copyTokens(UpdateOp update, TokensOp tokens, ValueRange tiles, Scope by);
  /// Waits for the copies that were written last.
  void await(Scope by);
  void awaitRows(UpdateOp update, Value tile);
  /// Puts behind a held part what stands for it from there on.
  template <typename Op> void hold(Op part, ValueRange tiles);
  /// Gives the update what stands for a walked part. Behind the update the stage may be filled again.
  template <typename Op> void walk(Op part, ValueRange tiles, UpdateOp update, OpOperand &use, Scope by);

  Scope scope; ///< of the warps that share a copy of walked tokens
  /// Rings for the tiles of each kind of region.
  struct Rings {
    KVType kind;
    SmallVector<Value> rings;
  };
  SmallVector<Rings> ringsOfKinds;
  SmallVector<Value> rowTiles, tokenTiles;
};

void CopyStaging::run() {
  RowsOp queryRows;
  b.kernel.walk([&](RowsOp op) { queryRows = queryRows ? queryRows : op; });
  setRows(queryRows);
  b.setInsertionPointAfter(*b.kernel.front().getOps<StartNextOp>().begin());
  const int64_t keyDim = chain.paddedKeyDim(), valueDim = chain.paddedValueDim();
  if (!chain.readsFinished()) {
    rowTiles = allocateRows({keyDim}, /*ring=*/false);
    allocateTokenRings();
    holdRows(queryRows);
    for (UpdateOp update : chain.updates) {
      awaitRows(update, rowTiles.front());
      walkTokens(update);
    }
  } else if (chain.updates.empty()) { // deltas are made of outputs; sums are read where they are needed
    if (chain.gradient.getSummed())
      return;
    rowTiles = allocateRows({valueDim, valueDim}, /*ring=*/false);
    holdFinishedRows(queryRows);
  } else if (chain.holdsTokens()) {
    UpdateOp update = chain.updates.front();
    Value part = chain.significance ? chain.significance.getTokens() : chain.gradient.getPart();
    rowTiles =
        allocateRows(chain.significance ? ArrayRef<int64_t>{keyDim} : ArrayRef<int64_t>{keyDim, valueDim},
                     /*ring=*/true);
    tokenTiles = allocateTokens();
    holdTokens(part.getDefiningOp<TokensOp>());
    walkRows(update);
  } else {
    rowTiles = allocateRows({keyDim, valueDim, valueDim}, /*ring=*/false);
    allocateTokenRings();
    holdFinishedRows(queryRows);
    for (UpdateOp update : chain.updates)
      walkTokens(update);
  }
  b.describeParameters();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

SmallVector<Value> CopyStaging::allocateRows(ArrayRef<int64_t> features, bool ring) {
  return llvm::map_to_vector(features, [&](int64_t each) -> Value {
    SharedType tile = sharedType(Axis::Query, blockRows(), each);
    Type type = ring ? Type(RingType::get(b.getContext(), schedule.getStages(), tile)) : Type(tile);
    return AllocOp::create(b, type, Value(), /*per_warp=*/false, IntegerAttr());
  });
}

/// Gradients read keys and values. Significance reads keys and their metadata, and each warp has its own.
SmallVector<Value> CopyStaging::allocateTokens() {
  SmallVector<SharedType> tiles;
  if (chain.significance) {
    TokenTiles all = TokenTiles::of(chain.updates.front().getKv().getType(), keys, chain.paddedKeyDim(),
                                    chain.paddedValueDim());
    tiles.push_back(all.keys);
    llvm::append_range(tiles, all.keyMeta);
  } else {
    for (int64_t features : {chain.paddedKeyDim(), chain.paddedValueDim()})
      tiles.push_back(sharedType(Axis::Key, blockKeys(), features));
  }
  return llvm::map_to_vector(tiles, [&](SharedType tile) -> Value {
    return AllocOp::create(b, tile, Value(), /*per_warp=*/chain.significance != nullptr, IntegerAttr());
  });
}

void CopyStaging::allocateTokenRings() {
  SmallVector<KVType> kinds = regionsByTiles(
      llvm::map_to_vector(chain.updates, [](UpdateOp update) { return update.getKv().getType(); }));
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

ArrayRef<Value> CopyStaging::ringsOf(KVType region) {
  return llvm::find_if(ringsOfKinds, [&](const Rings &of) { return haveSameTiles(of.kind, region); })->rings;
}

SmallVector<Value> CopyStaging::stagesOf(ValueRange rings) {
  return llvm::map_to_vector(rings, [&](Value ring) -> Value {
    return RingStageOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, b.i32(0));
  });
}

//===----------------------------------------------------------------------===//
// What is held
//===----------------------------------------------------------------------===//

/// One gather by the block where the task begins, waited for in front of the loops that read it.
void CopyStaging::holdRows(RowsOp queryRows) {
  b.setInsertionPoint(queryRows);
  gatherQueries(rowTiles.front(), Scope::Block);
  CommitOp::create(b);
  // A task without segments has not waited for its queries.
  scf::ForOp segments = chain.updates.front()->getParentOfType<scf::ForOp>()->getParentOfType<scf::ForOp>();
  b.setInsertionPointAfter(segments);
  WaitOp::create(b, 0);
  // The next task overwrites queries that slower warps may still read, unless they met behind the last loop
  // or exchange results.
  if (schedule.getStages() > 1 || schedule.getSplitKeys())
    return;
  b.setInsertionPoint(segments->getBlock()->getTerminator());
  for (Operation &op : llvm::reverse(*segments->getBlock()))
    if (isa<mlir::attn::WriteOp>(op)) {
      b.setInsertionPointAfter(&op);
      break;
    }
  SyncOp::create(b, Scope::Block);
}

/// Waits for queries in front of the loop that reads them, and not where they were asked for, because the
/// pipeline starts the first tiles of keys in front of a wait that precedes its loop.
void CopyStaging::awaitRows(UpdateOp update, Value tile) {
  b.setInsertionPoint(cast<scf::ForOp>(update->getParentOp()));
  WaitOp::create(b, 0);
  SyncOp::create(b, Scope::Block);
  if (schedule.getQueryInRegisters())
    tile = LoadOp::create(b, queryType(), tile, warpRow);
  Value query = update.getQuery();
  update.getQueryMutable().assign(StagedOp::create(b, query.getType(), query, tile));
}

void CopyStaging::holdFinishedRows(RowsOp queryRows) {
  SmallVector<StringRef> names{"q", "do", "o"};
  b.setInsertionPointAfter(queryRows);
  gatherRows(ArrayRef(names).take_back(rowTiles.size()), rowTiles, Scope::Block);
  await(Scope::Block);
  hold(queryRows, rowTiles);
}

void CopyStaging::holdTokens(TokensOp tokens) {
  b.setInsertionPointAfter(tokens);
  copyTokens(chain.updates.front(), tokens, tokenTiles, chain.significance ? Scope::Warp : Scope::Block);
  hold(tokens, tokenTiles);
}

/// All warps have read the copies when the next task's are written: they meet behind what is written of this
/// one.
template <typename Op> void CopyStaging::hold(Op part, ValueRange tiles) {
  auto staged = StagedOp::create(b, part.getType(), part, tiles);
  part->replaceUsesWithIf(ValueRange{staged}, [&](OpOperand &use) {
    return isa<InitGradientOp, InitSignificanceOp, UpdateOp, WriteGradientOp, WriteSignificanceOp>(
        use.getOwner());
  });
  b.kernel.walk([&](Operation *write) {
    if (!isa<WriteGradientOp, WriteSignificanceOp>(write))
      return;
    b.setInsertionPointAfter(write);
    SyncOp::create(b, Scope::Block);
  });
}

//===----------------------------------------------------------------------===//
// What is walked
//===----------------------------------------------------------------------===//

void CopyStaging::walkTokens(UpdateOp update) {
  auto tokens = update.getKv().getDefiningOp<TokensOp>();
  b.setInsertionPointAfter(tokens);
  SmallVector<Value> tiles = stagesOf(ringsOf(tokens.getType()));
  copyTokens(update, tokens, tiles, scope);
  walk(tokens, tiles, update, update.getKvMutable(), scope);
}

void CopyStaging::walkRows(UpdateOp update) {
  auto queryRows = update.getQuery().getDefiningOp<RowsOp>();
  b.setInsertionPointAfter(queryRows);
  SmallVector<Value> tiles = stagesOf(rowTiles);
  if (chain.significance) // queries as the attention is given them: apart, maybe
    gatherQueries(tiles.front(), Scope::Block);
  else
    gatherRows({"q", "do"}, tiles, Scope::Block);
  await(Scope::Block);
  walk(queryRows, tiles, update, update.getQueryMutable(), Scope::Block);
}

template <typename Op>
void CopyStaging::walk(Op part, ValueRange tiles, UpdateOp update, OpOperand &use, Scope by) {
  use.assign(StagedOp::create(b, part.getType(), part, tiles));
  b.setInsertionPointAfter(update);
  SyncOp::create(b, by);
}

/// Copies keys and values, or for significance keys alone, of which each warp has its own.
void CopyStaging::copyTokens(UpdateOp update, TokensOp tokens, ValueRange tiles, Scope by) {
  Segment segment = segmentOf(tokens);
  Value first = tokens.getFirst();
  SmallVector<StringRef> parts{"k", "v"};
  if (chain.significance) {
    first = b.add(first, b.mul(WarpIdOp::create(b, b.getI32Type()), b.i32(keys)));
    parts.pop_back();
  }
  Value slots = lookupTokens(update, segment, first, by);
  gatherTokens(update, segment, first, slots, parts, tiles, by);
  await(chain.significance ? Scope::Block : by);
}

void CopyStaging::await(Scope by) {
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, by);
}

} // namespace

void mlir::attn::stageCopies(Chain &chain, func::FuncOp kernel) { CopyStaging(chain, kernel).run(); }

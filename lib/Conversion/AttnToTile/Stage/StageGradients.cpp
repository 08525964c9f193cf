//===- StageGradients.cpp - Copies that gradients are made of -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StageGradients.h"
#include "TileCopies.h"

#include "attn/Conversion/TokenTiles.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class GradientStaging : public TileCopies {
public:
  using TileCopies::TileCopies;

  void run();

private:
  void runWithoutUpdates();
  /// A tile of each of these numbers of features; a ring of them where lines are walked.
  SmallVector<Value> allocate(Axis axis, ArrayRef<int64_t> features);
  /// For each warp a tile of its keys, and those of their metadata.
  SmallVector<Value> allocateKeys();
  SmallVector<Value> stagesOf(ValueRange rings);
  void copyRows(ArrayRef<StringRef> names, ValueRange tiles);
  void copyTokens(UpdateOp update, TokensOp tokens, ValueRange tiles);
  /// Waits for the copies that were written last.
  void await();
  /// Behind a held part: its copies, and what stands for it from there on.
  template <typename Op> void holdCopies(Op part, ValueRange tiles);
  void stageUpdate(UpdateOp update, ValueRange rings);

  bool heldAre(Axis axis) { return (axis == Axis::Key) == chain.holdsTokens(); }
};

/// Outputs and their gradients are what deltas are made of; sums are read where they are needed.
void GradientStaging::runWithoutUpdates() {
  if (chain.gradient.getSummed())
    return;
  SmallVector<Value> tiles = allocate(Axis::Query, {chain.paddedValueDim(), chain.paddedValueDim()});
  auto queryRows = chain.gradient.getPart().getDefiningOp<RowsOp>();
  setRows(queryRows);
  b.setInsertionPointAfter(queryRows);
  copyRows({"do", "o"}, tiles);
  holdCopies(queryRows, tiles);
  b.describeParameters();
}

void GradientStaging::run() {
  b.setInsertionPointAfter(*b.kernel.front().getOps<StartNextOp>().begin());
  if (chain.updates.empty())
    return runWithoutUpdates();
  int64_t keyDim = chain.paddedKeyDim(), valueDim = chain.paddedValueDim();
  SmallVector<int64_t> ofRows{keyDim};
  if (chain.gradient)
    ofRows.append(chain.holdsTokens() ? 1 : 2, valueDim);
  SmallVector<Value> rowTiles = allocate(Axis::Query, ofRows);
  SmallVector<Value> tokenTiles =
      chain.significance ? allocateKeys() : allocate(Axis::Key, {keyDim, valueDim});
  RowsOp queryRows;
  b.kernel.walk([&](RowsOp op) { queryRows = op; });
  setRows(queryRows);
  if (chain.holdsTokens()) {
    Value part = chain.significance ? chain.significance.getTokens() : chain.gradient.getPart();
    auto tokens = part.getDefiningOp<TokensOp>();
    b.setInsertionPointAfter(tokens);
    copyTokens(chain.updates.front(), tokens, tokenTiles);
    holdCopies(tokens, tokenTiles);
  } else {
    b.setInsertionPointAfter(queryRows);
    copyRows({"q", "do", "o"}, rowTiles);
    holdCopies(queryRows, rowTiles);
  }
  for (UpdateOp update : chain.updates)
    stageUpdate(update, chain.holdsTokens() ? rowTiles : tokenTiles);
  b.describeParameters();
}

SmallVector<Value> GradientStaging::allocate(Axis axis, ArrayRef<int64_t> features) {
  SmallVector<Value> all;
  for (int64_t each : features) {
    SharedType tile = sharedType(axis, axis == Axis::Key ? blockKeys() : blockRows(), each);
    Type type = heldAre(axis) ? Type(tile) : RingType::get(b.getContext(), schedule.getStages(), tile);
    all.push_back(AllocOp::create(b, type, Value(), /*per_warp=*/false, IntegerAttr()));
  }
  return all;
}

SmallVector<Value> GradientStaging::allocateKeys() {
  TokenTiles tiles = TokenTiles::of(chain.updates.front().getKv().getType(), keys, chain.paddedKeyDim(),
                                    chain.paddedValueDim());
  SmallVector<Value> all;
  for (SharedType tile : llvm::concat<SharedType>(SmallVector<SharedType>{tiles.keys}, tiles.keyMeta))
    all.push_back(AllocOp::create(b, tile, Value(), /*per_warp=*/true, IntegerAttr()));
  return all;
}

SmallVector<Value> GradientStaging::stagesOf(ValueRange rings) {
  return llvm::map_to_vector(rings, [&](Value ring) -> Value {
    return RingStageOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, b.i32(0));
  });
}

void GradientStaging::await() {
  CommitOp::create(b);
  WaitOp::create(b, 0);
  SyncOp::create(b, Scope::Block);
}

void GradientStaging::copyRows(ArrayRef<StringRef> names, ValueRange tiles) {
  gatherRows(names, tiles, Scope::Block);
  await();
}

void GradientStaging::copyTokens(UpdateOp update, TokensOp tokens, ValueRange tiles) {
  Segment segment = segmentOf(tokens);
  Value first = tokens.getFirst();
  Scope scope = Scope::Block;
  SmallVector<StringRef> parts{"k", "v"};
  if (chain.significance) { // of keys alone, to each warp its own
    first = b.add(first, b.mul(WarpIdOp::create(b, b.getI32Type()), b.i32(keys)));
    scope = Scope::Warp;
    parts.pop_back();
  }
  Value slots = lookupTokens(update, segment, first, scope);
  gatherTokens(update, segment, first, slots, parts, tiles, scope);
  await();
}

/// All warps have read the copies when the next task's are written: they meet behind what is written of this
/// one.
template <typename Op> void GradientStaging::holdCopies(Op part, ValueRange tiles) {
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

void GradientStaging::stageUpdate(UpdateOp update, ValueRange rings) {
  if (auto tokens = update.getKv().getDefiningOp<TokensOp>()) {
    b.setInsertionPointAfter(tokens);
    SmallVector<Value> tiles = stagesOf(rings);
    copyTokens(update, tokens, tiles);
    update.getKvMutable().assign(StagedOp::create(b, tokens.getType(), tokens, tiles));
  } else {
    auto queryRows = update.getQuery().getDefiningOp<RowsOp>();
    b.setInsertionPointAfter(queryRows);
    SmallVector<Value> tiles = stagesOf(rings);
    if (chain.significance) { // queries as the attention is given them: apart, maybe
      gatherQueries(tiles.front(), Scope::Block);
      await();
    } else {
      copyRows({"q", "do"}, tiles);
    }
    update.getQueryMutable().assign(StagedOp::create(b, queryRows.getType(), queryRows, tiles));
  }
  b.setInsertionPointAfter(update);
  SyncOp::create(b, Scope::Block); // the stage may be filled again
}

} // namespace

void mlir::attn::stageGradients(Chain &chain, func::FuncOp kernel) { GradientStaging(chain, kernel).run(); }

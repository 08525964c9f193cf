//===- StageFills.cpp - Rings that other warps fill -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where some warps only copy, every copy is a fill of a ring, and how far it runs
// ahead is decided later (--tile-specialize-warps). Fills fetch whole boxes where the
// schedule says so, each by a warp of its own, so that none waits for a tile of
// another's ring: the next task's first keys and values arrive while its queries'
// tile is still read. Else all of these warps gather.
//
// What lies behind a box's last token is whatever memory holds, perhaps NaN, and
// 0 * NaN would reach the output: those lines of the values are cleared. (Keys need
// no such care where they are multiplied with queries alone: their scores are masked.
// Gathers fill with zeros.)
//
// A loop's tiles may be of one of several regions. The question which stands in the
// fills, and is asked outside of the loop.
//
// Where gradients are added up, either rows are held, with what was finished of them and
// its gradient beside the queries; or tokens are (StageRowFills.cpp).
//
//===----------------------------------------------------------------------===//
#include "StageFills.h"
#include "TileCopies.h"

#include "attn/Dialect/Attn/IR/Stores.h"

#include <numeric>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class FillStaging : public TileCopies {
public:
  FillStaging(Chain &chain, func::FuncOp kernel)
      : TileCopies(chain, kernel), fetches(schedule.fetchesTokens()) {}

  void run();

private:
  void allocate();
  void stageRows(RowsOp queryRows);
  void stageFinished(RowsOp queryRows);
  void stageTokens(scf::ForOp tiles);
  /// Where the tile's tokens lie, for each operand: null where no table says it.
  SmallVector<Value> lookUp(Value firstKey);
  void copy(Value where, Value firstKey, StringRef part, Value tile);
  /// What `body` gives for the operand that the tiles are of, from number `operand` on.
  SmallVector<Value> forOperand(unsigned operand, TypeRange types,
                                function_ref<SmallVector<Value>(unsigned)> body);
  void setAlignment();

  bool fetches;
  Value queryRing, keyRing, valueRing, queryTile;
  Value outputGradientRing, outputRing; ///< of rows whose gradient is added up
  // Of the loop over tiles whose tokens are being staged.
  Segment segment;
  SmallVector<Value> isOperand; ///< whether tiles are of the operand, for all but the last
};

void FillStaging::run() {
  b.setInsertionPointAfter(*b.kernel.front().getOps<StartNextOp>().begin());
  allocate();
  SmallVector<RowsOp> rows;
  b.kernel.walk([&](RowsOp op) { rows.push_back(op); });
  if (chain.gradient)
    stageFinished(rows.front());
  else
    for (RowsOp op : rows)
      stageRows(op);
  setRows(rows.front()); // those that tokens are copied for
  SetVector<Operation *> loops;
  for (UpdateOp update : chain.updates)
    loops.insert(update.getKv().getDefiningOp<TokensOp>()->getParentOp());
  for (Operation *loop : loops)
    stageTokens(cast<scf::ForOp>(loop));
  setAlignment();
  b.describeParameters();
}

void FillStaging::allocate() {
  queryRing = ring(*schedule.getQueryStages(), sharedType(Axis::Query, schedule.getRows(),
                                                          chain.paddedKeyDim(), schedule.getQueryBoxes()));
  keyRing = ring(schedule.getStages(), sharedType(Axis::Key, keys, chain.paddedKeyDim()));
  valueRing = ring(schedule.getStages(),
                   sharedType(Axis::Key, keys, chain.paddedValueDim(), *schedule.getValueBoxes()));
  if (!chain.gradient)
    return;
  SharedType ofRows = sharedType(Axis::Query, schedule.getRows(), chain.paddedValueDim());
  outputGradientRing = ring(*schedule.getQueryStages(), ofRows);
  outputRing = ring(*schedule.getQueryStages(), ofRows);
}

/// The rows that updates read are filled where the task begins; those that are written leave by way of the
/// same tile.
void FillStaging::stageRows(RowsOp queryRows) {
  setRows(queryRows);
  b.setInsertionPointAfter(queryRows);
  if (!queryTile) {
    bool fetchesRows = schedule.fetchesQueries();
    queryTile = fill(queryRing, fetchesRows ? std::optional(queryWarp) : std::nullopt, [&](Value tile) {
      fetchesRows ? fetchQueries(tile) : gatherQueries(tile, Scope::Producers);
    });
  }
  auto staged = StagedOp::create(b, queryRows.getType(), queryRows, queryTile);
  queryRows->replaceUsesWithIf(
      ValueRange{staged}, [&](OpOperand &use) { return isa<UpdateOp, mlir::attn::WriteOp>(use.getOwner()); });
}

/// Queries, and what was finished of them and its gradient: the latter two give each row's delta.
void FillStaging::stageFinished(RowsOp queryRows) {
  setRows(queryRows);
  b.setInsertionPointAfter(queryRows);
  bool fetchesRows = schedule.fetchesQueries();
  auto copy = [&](Value ring, int64_t warp, StringRef name) {
    return fill(ring, fetchesRows ? std::optional(warp) : std::nullopt, [&](Value tile) {
      fetchesRows ? fetchRows(name, tile) : gatherRows({name}, {tile}, Scope::Producers);
    });
  };
  SmallVector<Value> tiles{copy(queryRing, queryWarp, "q"), copy(outputGradientRing, outputWarp, "do"),
                           copy(outputRing, outputWarp, "o")};
  auto staged = StagedOp::create(b, queryRows.getType(), queryRows, tiles);
  queryRows->replaceUsesWithIf(ValueRange{staged},
                               [&](OpOperand &use) { return isa<UpdateOp, InitGradientOp>(use.getOwner()); });
}

SmallVector<Value> FillStaging::forOperand(unsigned operand, TypeRange types,
                                           function_ref<SmallVector<Value>(unsigned)> body) {
  if (operand + 1 == chain.updates.size())
    return body(operand);
  auto branch = scf::IfOp::create(b, types, isOperand[operand], /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  auto fill = [&](Block *block, function_ref<SmallVector<Value>()> values) {
    if (!block->empty())
      block->back().erase();
    b.setInsertionPointToStart(block);
    scf::YieldOp::create(b, values());
  };
  fill(branch.thenBlock(), [&] { return body(operand); });
  fill(branch.elseBlock(), [&] { return forOperand(operand + 1, types, body); });
  return SmallVector<Value>(branch.getResults());
}

SmallVector<Value> FillStaging::lookUp(Value firstKey) {
  Type i32 = b.getI32Type();
  if (fetches)
    return forOperand(0, {i32}, [&](unsigned operand) -> SmallVector<Value> {
      auto ahead = AheadOp::create(b, i32, firstKey);
      b.fill(ahead.getBody(), {i32},
             [&](ValueRange key) { return fetchSlot(chain.updates[operand], segment, key[0]); });
      return {ahead};
    });
  auto hasTable = [](UpdateOp update) { return storeOf(update.getKv().getType()).table().has_value(); };
  if (llvm::none_of(chain.updates, hasTable))
    return {Value()};
  return forOperand(0, {i32}, [&](unsigned operand) -> SmallVector<Value> {
    Value slots = lookupTokens(chain.updates[operand], segment, firstKey, Scope::Producers);
    return {slots ? slots : b.i32(0)};
  });
}

/// Copies keys or values of the tile, whose tokens lie `where` the lookup says.
void FillStaging::copy(Value where, Value firstKey, StringRef part, Value tile) {
  forOperand(0, {}, [&](unsigned operand) -> SmallVector<Value> {
    UpdateOp update = chain.updates[operand];
    if (fetches)
      fetchTokens(update, segment, where, part, tile);
    else
      gatherTokens(update, segment, firstKey, storeOf(update.getKv().getType()).table() ? where : Value(),
                   {part}, ValueRange{tile}, Scope::Producers);
    return {};
  });
}

void FillStaging::stageTokens(scf::ForOp tiles) {
  SmallVector<TokensOp> tokens;
  for (UpdateOp update : chain.updates)
    tokens.push_back(update.getKv().getDefiningOp<TokensOp>());
  Value firstKey = tiles.getInductionVar();
  segment = segmentOf(tokens.front());
  b.setInsertionPoint(tiles);
  if (chain.updates.size() > 1)
    segment.operand = cast<OneOfOp>(*chain.updates.front()->user_begin()).getOperand();
  for (unsigned operand = 0; operand + 1 < chain.updates.size(); ++operand)
    isOperand.push_back(b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(operand)));

  b.setInsertionPointAfter(tokens.back());
  Value where = lookUp(firstKey).front();
  auto warp = [&](int64_t which) { return fetches ? std::optional(which) : std::nullopt; };
  auto fillTokens = [&](Value ring, int64_t by, StringRef part, bool summed) {
    return fill(ring, warp(by), [&](Value tile) {
      copy(where, firstKey, part, tile);
      if (fetches && summed)
        ClearOp::create(b, tile, b.sub(segment.kvEnd, firstKey));
    });
  };
  Value keyTile = fillTokens(keyRing, keyWarp, "k", /*summed=*/chain.gradient != nullptr);
  Value valueTile = fillTokens(valueRing, valueWarp, "v", /*summed=*/true);
  for (auto [update, tile] : llvm::zip_equal(chain.updates, tokens)) {
    auto staged = StagedOp::create(b, tile.getType(), tile, ValueRange{keyTile, valueTile});
    update.getKvMutable().assign(staged);
  }
}

/// Segments begin where boxes do not cross pages.
void FillStaging::setAlignment() {
  if (!fetches)
    return;
  int64_t align = 1;
  for (auto [update, lines] : llvm::zip_equal(chain.updates, schedule.getKeyCopies()))
    align = std::lcm(align, storeOf(update.getKv().getType()).boxAlignment(lines));
  tile::keyAlignAttr.set(b.kernel, b.getI32IntegerAttr(align));
}

} // namespace

void mlir::attn::stageFills(Chain &chain, func::FuncOp kernel) {
  if (chain.holdsTokens())
    stageRowFills(chain, kernel);
  else
    FillStaging(chain, kernel).run();
}

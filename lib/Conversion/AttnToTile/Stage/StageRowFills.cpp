//===- StageRowFills.cpp - Rows that other warps fetch --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients of tokens that are held: rows come tile by tile, queries and the gradients
// of outputs each by a warp of its own, and with them three numbers of each row, its
// LSE, delta and position, by a third.
//
// Where that serves (joinsNumbers), the numbers of a tile's rows lie one kind behind the
// other in one tile, with one barrier. Every barrier is one at which all warps that
// compute wait in each tile, and one more by which they hand it back: with three for the
// numbers, gradients of heads of 128 took 6 to 7 % longer (docs/rationale.md, "Fused").
//
// Where gradients of rows are added up, too, warpgroups exchange those of scores in tiles
// beside these rings, as many as the schedule says, and each tile of rows takes the next.
//
//===----------------------------------------------------------------------===//
#include "StageFills.h"
#include "TileCopies.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Numbers of a row that are copied beside it.
constexpr int64_t numbersOfRow = 3;

/// Tokens that are held, and fills of the rows that see them.
class RowFills : public TileCopies {
public:
  using TileCopies::TileCopies;
  void run();

private:
  /// A number of each row: where it is, and which warp copies it where each kind has a barrier of its own.
  struct RowNumber {
    StringRef name;
    Type element;
    int64_t warp;
  };
  std::array<RowNumber, numbersOfRow> numbers() {
    Type f32 = b.getF32Type();
    return {{{logLse, f32, keyWarp}, {"delta", f32, valueWarp}, {"q_pos", b.getI32Type(), keyWarp}}};
  }
  SharedType numbersType(int64_t kinds, Type element) {
    return sharedType(Axis::Query, kinds * blockRows(), 1, 0, element);
  }
  SmallVector<Value> fillTokens(TokensOp tokens, ArrayRef<Value> rings);
  SmallVector<Value> fillRows(ArrayRef<Value> rings);
};

void RowFills::run() {
  // The task is asked for before barriers are made, and comes meanwhile.
  b.setInsertionPointAfter(*b.kernel.front().getOps<RecordOp>().begin());
  UpdateOp update = chain.updates.front();
  auto tokens = update.getKv().getDefiningOp<TokensOp>();
  auto queryRows = update.getQuery().getDefiningOp<RowsOp>();
  auto rings = [&](int64_t slots, Axis axis, int64_t lines) {
    return SmallVector<Value>{ring(slots, sharedType(axis, lines, chain.paddedKeyDim())),
                              ring(slots, sharedType(axis, lines, chain.paddedValueDim()))};
  };
  SmallVector<Value> held = rings(1, Axis::Key, blockKeys());
  SmallVector<Value> walked = rings(schedule.getStages(), Axis::Query, blockRows());
  Value exchange, sums;
  if (chain.addsToRows()) {
    sums = AllocOp::create(
        b, sharedType(Axis::Query, blockRows(), chain.paddedKeyDim(), /*boxes=*/0, b.getF32Type()), Value(),
        /*per_warp=*/false, IntegerAttr());
    auto type = SharedType::get(b.getContext(), Axis::Key, blockKeys(), Axis::Query, blockRows(),
                                chain.element(), /*swizzled=*/false, /*boxes=*/0);
    exchange = ring(schedule.getExchanges(), type);
  }
  // Tiles lie in front of numbers, whose rings seldom end where a tile may begin.
  if (joinsNumbers())
    walked.push_back(ring(schedule.getStages(), numbersType(numbersOfRow, b.getF32Type())));
  else
    for (const RowNumber &each : numbers())
      walked.push_back(ring(schedule.getStages(), numbersType(1, each.element)));
  setRows(queryRows);
  b.setInsertionPointAfter(tokens);
  auto stagedTokens = StagedOp::create(b, tokens.getType(), tokens, fillTokens(tokens, held));
  update.getKvMutable().assign(stagedTokens);
  b.setInsertionPointAfter(queryRows);
  SmallVector<Value> copies = fillRows(walked);
  if (exchange) { // in turns, by the number of the tile
    Value turn = b.rem(queryRows->getParentOfType<scf::ForOp>().getInductionVar(), schedule.getExchanges());
    auto type = cast<RingType>(exchange.getType()).getTile();
    copies.append({RingStageOp::create(b, type, exchange, turn), sums});
  }
  auto stagedRows = StagedOp::create(b, queryRows.getType(), queryRows, copies);
  update.getQueryMutable().assign(stagedRows);
  b.describeParameters();
}

SmallVector<Value> RowFills::fillTokens(TokensOp tokens, ArrayRef<Value> rings) {
  UpdateOp update = chain.updates.front();
  const Segment &segment = segmentOf(tokens);
  Value where = fetchSlot(update, segment, tokens.getFirst());
  auto copy = [&](Value ring, int64_t warp, StringRef part) {
    return fill(ring, warp, [&](Value tile) {
      fetchTokens(update, segment, where, part, tile);
      if (chain.addsToRows()) // which are sums over these tokens
        ClearOp::create(b, tile, b.sub(tokens.getEnd(), tokens.getFirst()));
    });
  };
  return {copy(rings[0], keyWarp, "k"), copy(rings[1], valueWarp, "v")};
}

/// Rows are what is summed over. Their numbers come beside them.
SmallVector<Value> RowFills::fillRows(ArrayRef<Value> rings) {
  auto copy = [&](Value ring, int64_t warp, StringRef name) {
    return fill(ring, warp, [&](Value tile) {
      fetchRows(name, tile);
      ClearOp::create(b, tile, packedCount);
    });
  };
  SmallVector<Value> copies{copy(rings[0], queryWarp, "q"), copy(rings[1], outputWarp, "do")};
  if (!joinsNumbers()) {
    for (auto [each, ring] : llvm::zip_equal(numbers(), rings.drop_front(2)))
      copies.push_back(
          fill(ring, each.warp, [&, name = each.name](Value tile) { gatherNumbers(name, tile); }));
    return copies;
  }
  auto partOf = [&](Value tile, int64_t number) -> Value {
    return OverlayOp::create(b, numbersType(1, numbers()[number].element), tile, b.i32(number * blockRows()));
  };
  Value all = fill(rings[2], keyWarp, [&](Value tile) {
    for (auto [number, each] : llvm::enumerate(numbers()))
      gatherNumbers(each.name, partOf(tile, number));
  });
  for (int64_t number = 0; number < numbersOfRow; ++number)
    copies.push_back(partOf(all, number));
  return copies;
}

} // namespace

void mlir::attn::stageRowFills(Chain &chain, func::FuncOp kernel) { RowFills(chain, kernel).run(); }

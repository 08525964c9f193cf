//===- GradientTile.cpp - A tile of rows and tokens, and gradients --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientTile.h"
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Stage/StoreRows.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The lines of a wgmma result that a warp has.
static constexpr int64_t warpLines = 16;

FragmentType mlir::attn::gradientType(FragmentExpansion &e, int64_t features) {
  bool held = e.form.keepsTokens();
  return e.b.fragment({held ? Axis::Key : Axis::Query, Axis::Feature},
                      {held ? e.form.getKeys() : e.form.getRows(), features}, e.b.getF32Type());
}

Value mlir::attn::firstToken(KernelBuilder &b, TokensOp tokens) {
  return tokens.getWarp() ? b.add(tokens.getFirst(), tokens.getWarp()) : tokens.getFirst();
}

Value GradientTile::mmaPairs(Value ofRows, Value ofTokens, IntegerAttr features, Value deltas) {
  Value begin;
  if (deltas)
    begin = b.map(e.pairs(), deltas, [&](ValueRange v) -> Value { return arith::NegFOp::create(b, v[0]); });
  Value line = startsMmas() ? held ? tokens.getGroup() : rows.group()
               : held       ? tokens.getWarp()
                            : rows.first();
  return ScoresOp::create(b, e.pairs(), startsMmas() ? Mmas::Started : Mmas::Mma, ofRows, ofTokens, line,
                          features, begin, /*scale=*/Value(), /*token_scales=*/Value());
}

Value GradientTile::addMma(Value sum, Value ofPairs, Value other) {
  return AccumulateOp::create(b, sum.getType(), startsMmas() ? Mmas::Started : Mmas::Mma, ofPairs, other,
                              /*first=*/Value(), sum);
}

/// Named barriers at which the warps that compute sync: `exchanged`, when they have exchanged gradients of
/// scores, and `staged`, when they have multiplied them, so that their tile may be overwritten, and when
/// pieces of sums are whole. The barrier of the block is 0.
///
/// With two alternating tiles of gradients, the operands of an MMA are overwritten two tiles later, and a
/// warp that has synced at `exchanged` meanwhile no longer reads them. A piece belongs to one warpgroup: each
/// has a named barrier, from `staged` on, at which its warps sync when the piece is whole. The number of that
/// barrier is no constant, so ptxas counts all sixteen barriers as used; one block fits.
static constexpr int64_t exchanged = 1, staged = 2;

void GradientTile::stage(Value scoreGradients, Value exchange) {
  StageOp::create(b, scoreGradients, exchange, tokens.getWarp());
}

Value GradientTile::startRowsPiece(Value exchange, Value keys) {
  FenceAsyncOp::create(b);
  WaitTmaStoresOp::create(b); // of the tile before: its memory may be overwritten after the sync
  NamedBarrierSyncOp::create(b, b.i32(exchanged), e.schedule.getWarps() * 32);
  FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {warpLines, pieceFeatures()}, b.getF32Type());
  if (!halvesRows())
    return StartMmaOp::create(b, type, exchange, Value(), keys, firstFeature(), IntegerAttr(), Value());
  auto whole = cast<SharedType>(exchange.getType());
  auto columns = SharedType::get(b.getContext(), Axis::Key, whole.getRows(), Axis::Query,
                                 ScheduleAttr::groupRows, whole.getElement(), false, 0);
  Value mine = OverlayOp::create(b, columns, exchange, b.mul(group(), b.i32(whole.getRows() / 2)));
  return StartMmaOp::create(b, type, mine, Value(), keys, Value(), IntegerAttr(), Value());
}

void GradientTile::addRowsPiece(Value piece, Value place) {
  // A warpgroup has 64 rows.
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(e.schedule.getProducerWarps()));
  Value first = b.mul(b.rem(warp, ScheduleAttr::groupWarps), b.i32(warpLines));
  auto type = cast<FragmentType>(piece.getType());
  Value firstRow = halvesRows() ? tokens.getGroup() : b.i32(0);
  Value lines = CoordinatesOp::create(b, b.fragment({Axis::Query}, {warpLines}, b.getI32Type()),
                                      b.add(first, firstRow));
  // Lines past the last row belong to other rows, to which a NaN of these tokens must not be added.
  piece = b.map(type, ValueRange{piece, lines},
                [&](ValueRange v) -> Value { return b.select(b.less(v[1], rows.count()), v[0], b.f32(0)); });
  auto whole = cast<SharedType>(place.getType());
  int64_t consumers = e.schedule.getConsumers();
  int64_t features = halvesRows() ? whole.getCols() : whole.getCols() / consumers;
  auto part = SharedType::get(b.getContext(), Axis::Query, ScheduleAttr::groupRows, Axis::Feature, features,
                              whole.getElement(), /*swizzled=*/false, /*boxes=*/0);
  Value mine = OverlayOp::create(b, part, place, b.mul(group(), b.i32(whole.getRows() / consumers)));
  StageOp::create(b, piece, mine, first);
  FenceAsyncOp::create(b);
  if (e.schedule.getExchanges() > 1)
    NamedBarrierSyncOp::create(b, b.add(b.i32(staged), group()), ScheduleAttr::groupWarps * 32);
  else
    NamedBarrierSyncOp::create(b, b.i32(staged), e.schedule.getWarps() * 32);
  auto one = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, first, b.i32(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenYield());
  constexpr int64_t panelBytes = 128;
  int64_t panels = llvm::divideCeil(part.getLineBytes(), panelBytes);
  tmaStoreSums(b, e.form, rows, mine, firstRow, halvesRows() ? Value() : b.mul(group(), b.i32(panels)));
}

SmallVector<Value> GradientTile::finish(ValueRange mmas, int64_t pending) {
  if (!startsMmas())
    return SmallVector<Value>(mmas);
  return SmallVector<Value>(WaitMmasOp::create(b, mmas.getTypes(), pending, mmas).getResults());
}

Value GradientTile::number(Copy name) {
  Value copy = rows.copy(name);
  if (!copy || isa<FragmentType>(copy.getType()))
    return copy;
  Type element = cast<SharedType>(copy.getType()).getElement();
  return LoadColumnsOp::create(b, TypeRange{e.rowsOf(element)}, copy).getResult(0);
}

Value GradientTile::weights(Value scores, Value lse) {
  Value unit = one.front().getScore().empty() ? e.unitOf(one.front().getQuery()) : b.f32(log2e);
  return WeightsOp::create(b, scores.getType(), scores, lse, unit);
}

SmallVector<Value> GradientTile::regionScores(Value products, Value position, ArrayRef<TableRead> reads) {
  UpdateOp update = one.front();
  if (update.getScore().empty())
    return {products, Value()};
  SmallVector<int64_t> numbers; // numbers of these reads among the region's
  for (auto [number, read] : llvm::enumerate(update.getScore().getOps<mlir::attn::ReadOp>()))
    if (llvm::any_of(reads, [&, read = read](const TableRead &each) { return each.read == read; }))
      numbers.push_back(number);
  SmallVector<Type> types(2 + reads.size(), e.pairs());
  ScoreFnOp step = e.scoreRegion(update, types, products, position, firstToken(b, tokens), numbers);
  return SmallVector<Value>(step.getResults());
}

Value GradientTile::masked(Value scores, Value position) {
  Value first = firstToken(b, tokens);
  if (!e.form.has(FormTraits::TokensFirst))
    return e.maskScores(one, scores, position, first);
  UpdateOp update = one.front();
  VisibilityAttr visibility = update.getVisibility();
  return mlir::attn::MaskOp::create(b, scores.getType(), scores, position, first, tokens.getEnd(),
                                    tokens.getPos0(), visibility,
                                    e.endsOf(visibility, firstEndAttr.get(update).getInt()),
                                    /*partial=*/Value(), /*begin=*/Value(), /*front=*/false,
                                    /*behind=*/false);
}

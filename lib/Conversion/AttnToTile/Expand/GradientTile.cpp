//===- GradientTile.cpp - A tile of rows and tokens, and gradients --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientTile.h"
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Kernel/PlanAccess.h"
#include "AttnToTile/Stage/StoreRows.h"

#include "attn/Dialect/Tile/IR/Signals.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The lines of a wgmma result that a warp has.
static constexpr int64_t warpLines = 16;
/// The sums of a line in a panel of shared memory.
static constexpr int64_t panelSums = 32;
/// Heads of fewer features clear lines past the last row in a branch, which most tiles do not take: gradients
/// of heads of 64 and 96 gain 1 %. Long sequences with heads of 128 lose as much (H200, 2026-12-02).
static constexpr int64_t selectsFrom = 128;

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

/// Named barriers. Warps that compute sync at `exchanged` when they have exchanged gradients of scores; the
/// warp that stores arrives there when pieces of the tile before have been read. At `staged` the warps that
/// compute arrive when pieces of sums are whole, and the warp that stores waits. The barrier of the block is
/// 0.
///
/// With two alternating tiles of gradients, the operands of an MMA are overwritten two tiles later, and a
/// warp that has synced at `exchanged` meanwhile no longer reads them. A piece belongs to one warpgroup: each
/// has a named barrier, from `staged` on. The number of that barrier is no constant, so ptxas counts all
/// sixteen barriers as used; one block fits. With one tile of gradients all sync at `staged`, when they have
/// multiplied them and their tile may be overwritten.
///
/// If pieces are added in an order, the warp that stores arrives at `added` when they are, and a third warp
/// posts it: its fence takes about as long as a tile. It arrives at `ready` before.
///
/// If the tile of gradients is a second place for sums, `exchanged` says that both places are free. Warps
/// that compute sync at `met` when gradients lie there, and again when they have been multiplied.
static constexpr int64_t exchanged = 1, staged = 2, added = 4, ready = 5, met = 6;
/// The progress of a task that has added to all of its rows.
static constexpr int32_t allRows = 1 << 30;
static constexpr int64_t warpThreads = 32, groupThreads = ScheduleAttr::groupWarps * warpThreads;

void GradientTile::stage(Value scoreGradients, Value exchange, Value place) {
  if (placesParts(place))
    NamedBarrierSyncOp::create(b, b.i32(exchanged), threadsThatSync());
  StageOp::create(b, scoreGradients, exchange, tokens.getWarp());
}

void GradientTile::syncExchange(Value place) {
  FenceAsyncOp::create(b);
  if (placesParts(place))
    meet();
  else
    NamedBarrierSyncOp::create(b, b.i32(exchanged), threadsThatSync());
}

void GradientTile::meet() { NamedBarrierSyncOp::create(b, b.i32(met), e.schedule.getWarps() * warpThreads); }

SmallVector<Value, 2> GradientTile::placesOf(Value exchange, Value place) {
  SmallVector<Value, 2> places{place};
  if (placesParts(place))
    places.push_back(OverlayOp::create(b, place.getType(), exchange, b.i32(0)));
  return places;
}

bool GradientTile::placesParts(Value place) {
  return cast<SharedType>(place.getType()).getCols() < e.form.getKeyTile();
}

SmallVector<GradientTile::Piece, 2> GradientTile::pieces() {
  constexpr int64_t panel = 64;
  int64_t features = e.form.getKeyTile();
  if (halvesRows())
    return {{0, 0, features}};
  int64_t half = features / e.schedule.getConsumers(), whole = half / panel * panel, rest = half - whole;
  if (whole == 0 || rest == 0)
    return {{0, half, half}};
  return {{0, half + rest, whole}, {whole, half, rest}};
}

Value GradientTile::firstOf(const Piece &piece) {
  if (halvesRows())
    return {};
  return b.add(b.i32(piece.ofFirst), b.mul(group(), b.i32(piece.ofSecond - piece.ofFirst)));
}

SmallVector<GradientTile::Piece> GradientTile::parts() {
  SmallVector<Piece> found;
  for (const Piece &piece : pieces())
    for (int64_t at = 0; at < piece.features; at += panelSums)
      found.push_back({piece.ofFirst + at, piece.ofSecond + at, panelSums});
  return found;
}

SmallVector<Value> GradientTile::startRows(Value exchange, Value keys) {
  SmallVector<Piece, 2> all = pieces();
  if (of == Stationary::Tokens)
    all.resize(1);
  SmallVector<Value> started;
  for (const Piece &piece : all)
    started.push_back(startPiece(piece, exchange, keys));
  return started;
}

Value GradientTile::startPiece(const Piece &piece, Value exchange, Value keys) {
  if (halvesRows()) {
    auto whole = cast<SharedType>(exchange.getType());
    auto columns = SharedType::get(b.getContext(), Axis::Key, whole.getRows(), Axis::Query,
                                   ScheduleAttr::groupRows, whole.getElement(), false, 0);
    exchange = OverlayOp::create(b, columns, exchange, b.mul(group(), b.i32(whole.getRows() / 2)));
  }
  FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {warpLines, piece.features}, b.getF32Type());
  return StartMmaOp::create(b, type, exchange, Value(), keys, firstOf(piece), IntegerAttr(), Value());
}

bool GradientTile::addRows(ArrayRef<Value> started, Value &ofKeys, Value exchange, Value keys, Value place) {
  SmallVector<Piece, 2> all = pieces();
  const int64_t behind = of == Stationary::Tokens ? 1 : 0; // the sum of keys
  if (placesParts(place))
    putParts(finish(started, behind), exchange, place);
  else
    for (auto [number, piece] : llvm::enumerate(ArrayRef(all).take_front(started.size())))
      put(piece, finish(started[number], started.size() - 1 - number + behind).front(), place);
  for (const Piece &piece : ArrayRef(all).drop_front(started.size())) {
    SmallVector<Value> ended = finish({ofKeys, startPiece(piece, exchange, keys)}, 0);
    ofKeys = ended.front();
    put(piece, ended.back(), place);
  }
  if (!placesParts(place)) {
    FenceAsyncOp::create(b);
    if (e.schedule.getExchanges() > 1)
      NamedBarrierArriveOp::create(b, b.add(b.i32(staged), group()), groupThreads + warpThreads);
    else
      NamedBarrierSyncOp::create(b, b.i32(staged), threadsThatSync());
  }
  storePieces(exchange, place);
  return all.size() > started.size();
}

void GradientTile::putParts(ArrayRef<Value> sums, Value exchange, Value place) {
  SmallVector<Value> columns;
  for (Value sum : sums) {
    auto type = cast<FragmentType>(sum.getType());
    auto some = b.fragment({Axis::Query, Axis::Feature}, {type.getSizes()[0], panelSums}, type.getElement());
    for (int64_t at = 0; at < type.getSizes()[1]; at += panelSums)
      columns.push_back(PartOp::create(b, some, sum, b.getI64IntegerAttr(at)));
  }
  meet(); // both have multiplied the gradients of scores
  SmallVector<Value, 2> places = placesOf(exchange, place);
  for (auto [number, part] : llvm::enumerate(parts())) {
    const size_t turn = number % places.size();
    if (number > 0 && turn == 0)
      NamedBarrierSyncOp::create(b, b.i32(exchanged), threadsThatSync());
    put(part, columns[number], places[turn]);
    if (turn + 1 == places.size() || number + 1 == columns.size()) {
      FenceAsyncOp::create(b);
      NamedBarrierSyncOp::create(b, b.i32(staged), threadsThatSync());
    }
  }
}

/// Lines past the last row belong to other rows, to which a NaN of these tokens must not be added.
Value GradientTile::clearPastLast(Value sum) {
  // A warpgroup has 64 rows.
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(e.schedule.getProducerWarps()));
  Value first = b.add(b.mul(b.rem(warp, ScheduleAttr::groupWarps), b.i32(warpLines)),
                      halvesRows() ? tokens.getGroup() : b.i32(0));
  Value lines = CoordinatesOp::create(b, b.fragment({Axis::Query}, {warpLines}, b.getI32Type()), first);
  auto cleared = [&]() -> Value {
    return b.map(cast<FragmentType>(sum.getType()), ValueRange{sum, lines},
                 [&](ValueRange v) -> Value { return b.select(b.less(v[1], rows.count()), v[0], b.f32(0)); });
  };
  if (e.form.getKeyDim() >= selectsFrom)
    return cleared();
  auto branch = scf::IfOp::create(b, TypeRange{sum.getType()}, b.less(rows.count(), b.i32(e.form.getRows())),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, sum);
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, cleared());
  return branch.getResult(0);
}

void GradientTile::put(const Piece &piece, Value sum, Value place) {
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(e.schedule.getProducerWarps()));
  Value first = b.mul(b.rem(warp, ScheduleAttr::groupWarps), b.i32(warpLines));
  StageOp::create(b, clearPastLast(sum), placeOf(piece, place), first);
}

/// How far a task has come, as its semaphore says: a number that grows with each tile. All terms of packed
/// rows from `row` on have been added; of several parts of a group, those of parts up to `part`.
static Value progress(KernelBuilder &b, Value row, Value part = {}, int64_t parts = 1) {
  if (!part)
    return b.sub(b.i32(allRows), row);
  return b.sub(b.add(b.i32(allRows - (parts - 1)), part), b.mul(row, b.i32(parts)));
}

/// Puts the next operations where `condition` holds, if it is given.
static void insertIf(KernelBuilder &b, Value condition) {
  if (condition)
    b.setInsertionPoint(scf::IfOp::create(b, condition).thenYield());
}

/// Lets the warp that stores say that all pieces so far have been added.
static void passAdded(KernelBuilder &b, Value condition = {}) {
  OpBuilder::InsertionGuard guard(b);
  insertIf(b, condition);
  WaitTmaStoresOp::create(b, /*complete=*/true);
  NamedBarrierSyncOp::create(b, b.i32(ready), 2 * warpThreads);
  NamedBarrierArriveOp::create(b, b.i32(added), 2 * warpThreads);
}

/// Lets the warp that posts wait for that, and post how far this task has come.
static void post(KernelBuilder &b, Value progress, Value condition = {}) {
  OpBuilder::InsertionGuard guard(b);
  auto delegate = DelegateOp::create(b, postingWarp);
  b.createBlock(&delegate.getBody());
  insertIf(b, condition);
  NamedBarrierArriveOp::create(b, b.i32(ready), 2 * warpThreads);
  NamedBarrierSyncOp::create(b, b.i32(added), 2 * warpThreads);
  Value task = BlockIdOp::create(b, b.getI32Type());
  SemaphorePostOp::create(b, progress, planArray(b, PlanArray::Semaphores), b.wide(task));
}

/// Waits until another task has come as far. A negative number is no task.
static void waitFor(KernelBuilder &b, Value task, Value progress) {
  Value least = b.select(b.less(task, b.i32(0)), b.i32(0), progress);
  SemaphoreWaitOp::create(b, planArray(b, PlanArray::Semaphores), b.wide(b.max(task, b.i32(0))), least);
}

void GradientTile::storePieces(Value exchange, Value place) {
  if (beginningOf(b).getAfter())
    post(b, progressBefore(), postsHere());
  OpBuilder::InsertionGuard guard(b);
  auto delegate = DelegateOp::create(b, storingWarp);
  b.createBlock(&delegate.getBody());
  SmallVector<Value, 2> places = placesOf(exchange, place);
  // A place of all features has those of each warpgroup one after the other.
  SmallVector<Piece> all{{0, e.form.getKeyTile() / 2, e.form.getKeyTile() / 2}};
  if (placesParts(place))
    all = parts();
  for (size_t number = 0; number < all.size(); number += places.size()) {
    auto some = ArrayRef(all).drop_front(number).take_front(places.size());
    storeAt(ArrayRef(places).take_front(some.size()), some, /*first=*/number == 0);
  }
}

void GradientTile::storeAt(ArrayRef<Value> places, ArrayRef<Piece> pieces, bool first) {
  Value after = beginningOf(b).getAfter();
  const bool syncsAll = e.schedule.getExchanges() == 1;
  WaitTmaStoresOp::create(b); // of the pieces before
  NamedBarrierArriveOp::create(b, b.i32(exchanged), threadsThatSync());
  if (after && first)
    passAdded(b, postsHere());
  if (syncsAll)
    NamedBarrierSyncOp::create(b, b.i32(staged), threadsThatSync());
  for (int64_t group = 0; group < e.schedule.getConsumers(); ++group) {
    if (!syncsAll)
      NamedBarrierSyncOp::create(b, b.i32(staged + group), groupThreads + warpThreads);
    if (after && first && group == 0)
      waitFor(b, after, progressOf(after));
    for (auto [place, piece] : llvm::zip_equal(places, pieces)) {
      Value panel = b.i32((group == 0 ? piece.ofFirst : piece.ofSecond) / panelSums);
      tmaStoreSums(b, e.form, rows, partOf(place, b.i32(group)),
                   b.i32(halvesRows() ? group * ScheduleAttr::groupRows : 0), halvesRows() ? Value() : panel);
    }
  }
}

int64_t GradientTile::groupParts() { return e.form.getGroup() / rows.heads(); }

Value GradientTile::progressBefore() {
  if (Value part = rows.op.getPart())
    return b.sub(progress(b, rows.begin(), part, groupParts()), b.i32(1));
  return progress(b, b.add(rows.begin(), b.i32(e.form.getRows())));
}

Value GradientTile::progressOf(Value task) {
  Value part = rows.op.getPart();
  if (!part)
    return progress(b, rows.begin());
  // The other task comes first at the same part of its tile that contains this tile's first row.
  Value begin;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(beginningOf(b));
    TokenTask other = readRecord<TokenTask>(b, b.max(task, b.i32(0)));
    begin = b.mul(b.min(other.rowBegin, other.rowEnd), b.i32(rows.heads()));
  }
  int64_t lines = e.form.getRows();
  Value tile = b.div(b.sub(rows.begin(), begin), lines);
  return progress(b, b.add(begin, b.mul(tile, b.i32(lines))), part, groupParts());
}

Value GradientTile::postsHere() {
  Value tile = b.div(rows.begin(), e.form.getRows());
  if (Value part = rows.op.getPart())
    tile = b.add(b.mul(tile, b.i32(groupParts())), part);
  else if (rows.heads() == 1)
    return {};
  return b.compare(arith::CmpIPredicate::eq, b.rem(tile, 2), b.i32(0));
}

SharedType GradientTile::placeType(int64_t lines, int64_t features) {
  return SharedType::get(b.getContext(), Axis::Query, lines, Axis::Feature, features, b.getF32Type(),
                         /*swizzled=*/false, /*boxes=*/0);
}

Value GradientTile::partOf(Value place, Value group) {
  auto whole = cast<SharedType>(place.getType());
  int64_t consumers = e.schedule.getConsumers();
  int64_t features = halvesRows() ? whole.getCols() : whole.getCols() / consumers;
  return OverlayOp::create(b, placeType(ScheduleAttr::groupRows, features), place,
                           b.mul(group, b.i32(whole.getRows() / consumers)));
}

Value GradientTile::placeOf(const Piece &piece, Value place) {
  auto whole = cast<SharedType>(place.getType());
  if (halvesRows() || piece.features == whole.getCols() / e.schedule.getConsumers())
    return partOf(place, group());
  Type lines = placeType(whole.getRows() * whole.getCols() / panelSums, panelSums);
  Value panels = OverlayOp::create(b, lines, place, b.i32(0)); // one after the other
  return OverlayOp::create(b, placeType(whole.getRows(), piece.features), panels,
                           b.mul(b.div(firstOf(piece), panelSums), b.i32(whole.getRows())));
}

int64_t GradientTile::threadsThatSync() { return e.schedule.getWarps() * warpThreads + warpThreads; }

void mlir::attn::waitForPieces(KernelBuilder &b) {
  const bool inOrder = static_cast<bool>(beginningOf(b).getAfter());
  if (inOrder)
    post(b, progress(b, b.i32(0)));
  OpBuilder::InsertionGuard guard(b);
  auto delegate = DelegateOp::create(b, storingWarp);
  b.createBlock(&delegate.getBody());
  if (inOrder)
    passAdded(b);
  else
    WaitTmaStoresOp::create(b);
}

InitGradientOp mlir::attn::beginningOf(KernelBuilder &b) {
  InitGradientOp init;
  b.kernel.walk([&](InitGradientOp op) { init = op; });
  return init;
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

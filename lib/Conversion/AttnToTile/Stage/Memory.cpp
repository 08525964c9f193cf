//===- Memory.cpp - Shared memory of a kernel's copies --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The copies of rows are queries and, for gradients, the output's gradient. If
// rows are stationary, there is also the output: it and its gradient give each
// row's delta. The copies of tokens are keys and values, with metadata by line.
// Significance and gradients of values read no values, and the warps of
// significance have tiles of their own.
//
// Gradients of tokens on wgmma walk rows whose numbers are copied, too: LSE,
// delta and position. Where possible (joinsNumbers), they lie in one tile with
// one mbarrier. All warps that compute wait at each mbarrier in each tile, and
// release the stage by another: with three mbarriers for the numbers, gradients
// of heads of 128 took 6 to 7 % longer (docs/rationale/backward.md).
//
//===----------------------------------------------------------------------===//
#include "Memory.h"

#include "AttnToTile/Kernel/EarlyNumbers.h"

#include "attn/Conversion/TokenTiles.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

SmallVector<Copy> mlir::attn::namesOf(ArrayRef<Buffer> buffers) {
  SmallVector<Copy> names;
  for (const Buffer &buffer : buffers)
    llvm::append_range(names, buffer.names);
  return names;
}

/// Memory is laid out in the order of allocation. Tiles come before numbers, whose rings seldom end at an
/// address where a tile may begin.
void Memory::allocate() {
  Block &body = b.kernel.front();
  if (k.hasProducers() && k.form.keepsTokens()) {
    // The task's record is requested before barriers are made, and arrives meanwhile.
    b.setInsertionPointAfter(*body.getOps<RecordOp>().begin());
    addTokens();
    addRows({Copy::Query, Copy::OutputGradient});
    addExchange();
    addNumbers();
    return;
  }
  b.setInsertionPointAfter(*body.getOps<StartNextOp>().begin());
  if (k.hasProducers()) {
    addRows({Copy::Query});
    addTokens();
    addWeights();
    addRows({Copy::OutputGradient, Copy::Output});
    return;
  }
  addRows({Copy::Query, Copy::OutputGradient, Copy::Output});
  addTokens();
  addWeights();
  addLargest();
}

const Memory::Kind &Memory::kindOf(KVType region) const {
  return *llvm::find_if(kinds, [&](const Kind &kind) { return haveSameTiles(kind.region, region); });
}

Value Memory::alloc(Type type, Value overlaid, bool perWarp) {
  return AllocOp::create(b, type, overlaid, perWarp, IntegerAttr());
}

Type Memory::memoryType(SharedType tile, bool walked) {
  if (!walked && !k.hasProducers())
    return tile;
  int64_t held = k.form.keepsTokens() ? 1 : k.schedule.getQueryStages().value_or(1);
  return RingType::get(b.getContext(), walked ? k.schedule.getStages() : held, tile);
}

/// Adds those of the copies that the kernel reads.
void Memory::addRows(ArrayRef<Copy> names) {
  for (Copy name : names) {
    bool isQuery = name == Copy::Query;
    if (isQuery ? k.updates.empty() : !k.gradient || (name == Copy::Output && k.form.keepsTokens()))
      continue;
    SharedType tile = k.rowTile(k.rowLines(), isQuery ? k.form.getKeyTile() : k.form.getValueTile(),
                                isQuery ? k.schedule.getQueryBoxes() : 0);
    rows.push_back({{name}, alloc(memoryType(tile, /*walked=*/k.form.keepsTokens()))});
  }
}

/// Scales of keys are read as soon as scores are there, so they are produced behind the keys.
void Memory::addWidenedTokens() {
  KVType region = k.regions().front();
  Kind kind{region, {}, {}};
  for (const WideningRing &ring : wideningRings(region, k.tokenLines(), k.form.getKeyTile(),
                                                k.valueFeatures(), k.schedule.getStages())) {
    Buffer buffer{{ring.name}, alloc(ring.type)};
    if (ring.isStored)
      kind.stored.push_back(buffer);
    else if (ring.name == Copy::KeyMeta)
      kind.buffers.insert(kind.buffers.begin() + 1, buffer);
    else
      kind.buffers.push_back(buffer);
  }
  kinds.push_back(std::move(kind));
}

void Memory::addTokens() {
  if (widensTokens(k.schedule, k.regions()))
    return addWidenedTokens();
  int64_t lines = k.tokenLines(), keyTile = k.form.getKeyTile(), valueTile = k.valueFeatures();
  if (k.splitsTiles()) {
    Kind kind{k.regions().front(), {}, {}}; // regions have the same tiles
    for (const HalfRing &ring : halfRings(kind.region, k.schedule, keyTile, valueTile, k.form.getElement()))
      kind.buffers.push_back({{ring.name}, alloc(memoryType(ring.tile, /*walked=*/true))});
    kinds.push_back(std::move(kind));
    return;
  }
  bool split = k.schedule.getSplitKeys(), walked = !k.form.keepsTokens();
  SmallVector<KVType> regions = regionsByTiles(k.regions());
  SmallVector<Copy> names; // in the order of rings
  for (KVType region : regions) {
    TokenTiles tiles = TokenTiles::of(region, lines, keyTile, valueTile);
    names.push_back(Copy::Keys);
    if (!region.getLatent())
      names.push_back(Copy::Values);
    if (tiles.keyRest)
      names.push_back(Copy::KeyRest);
    names.append(tiles.keyMeta.size(), Copy::KeyMeta);
    names.append(tiles.valueMeta.size(), Copy::ValueMeta);
    kinds.push_back({region, {}, {}});
  }
  SmallVector<Value> all;
  for (auto [name, ring] :
       llvm::zip_equal(names, tokenRings(regions, lines, keyTile, valueTile, /*together=*/split))) {
    all.emplace_back();
    bool readsValues = !k.significance && !k.addsValuesAlone();
    if (!readsValues && (name == Copy::Values || name == Copy::ValueMeta))
      continue;
    SharedType tile = ring.tile;
    if (int64_t boxes = k.schedule.getValueBoxes().value_or(0); boxes && name == Copy::Values)
      tile = SharedType::get(b.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(),
                             tile.getCols(), tile.getElement(), tile.getSwizzled(), boxes);
    all.back() = alloc(memoryType(tile, walked), ring.under ? all[*ring.under] : Value(),
                       /*perWarp=*/split || k.significance);
    kinds[ring.kind].buffers.push_back({{name}, all.back()});
  }
}

/// Warpgroups or warps that share weights leave those of a half in one tile, and a number for each row in
/// another.
void Memory::addWeights() {
  if (!k.schedule.sharesWeights())
    return;
  weights = alloc(weightsTile(k.schedule, weightElement(k.schedule, k.regions(), k.form.getElement())));
  units = alloc(unitsTile(k.schedule));
}

/// Warpgroups exchange gradients of scores in as many tiles as the schedule says; each tile of rows takes the
/// next one.
void Memory::addExchange() {
  if (!k.gradient.getAddsRows())
    return;
  sums = alloc(k.rowTile(k.rowLines(), placedSums(k.form.getKeyTile()), /*boxes=*/0, b.getF32Type()));
  auto tile = SharedType::get(b.getContext(), Axis::Key, k.tokenLines(), Axis::Query, k.rowLines(),
                              k.form.getElement(), /*swizzled=*/false, /*boxes=*/0);
  exchange = alloc(RingType::get(b.getContext(), k.schedule.getExchanges(), tile));
}

/// A task's sums lie over it: they are exchanged when no tile of the task needs it any more.
void Memory::addLargest() {
  if (!k.readsFinished() && narrowsQueries(k.schedule, k.regions(), k.form.getElement()))
    largest = alloc(ScratchType::get(b.getContext(), largestBytes(k.schedule)), /*overlaid=*/units);
}

void Memory::addNumbers() {
  auto add = [&](ArrayRef<Copy> names, Type element) {
    SharedType tile = k.rowTile(names.size() * k.rowLines(), /*features=*/1, /*boxes=*/0, element);
    rows.push_back({SmallVector<Copy>(names), alloc(memoryType(tile, /*walked=*/true))});
  };
  if (joinsNumbers(k.updates.front(), k.form, k.gradient.getAddsRows()))
    return add({Copy::Lse, Copy::Delta, Copy::Position}, b.getF32Type());
  add({Copy::Lse}, b.getF32Type());
  add({Copy::Delta}, b.getF32Type());
  add({Copy::Position}, b.getI32Type());
}

//===- TokenTiles.cpp - Tokens of a region in shared memory ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/TokenTiles.h"

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The metadata tiles of a part of a store: f32 where a line has one scale, f16 for the scale and zero point
/// of each group, 32-bit words of four block scales; the scales within a row. A copy takes 16, 8 or 4 bytes
/// at an address that is a multiple of its size.
static SmallVector<SharedType> metaTiles(const rt::StorePart &part, int64_t lines, MLIRContext *context) {
  if (!part.format.hasLines() && !part.format.isMixed())
    return {};
  Type element = part.format.isInteger()   ? Type(Float16Type::get(context))
                 : part.format.hasBlocks() ? Type(IntegerType::get(context, 32))
                                           : Type(Float32Type::get(context));
  int64_t bytes =
      part.format.isMixed() ? 4 * part.format.rowScales(part.dim) : part.format.metaBytes(part.dim);
  int64_t width = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4;
  auto tile = SharedType::get(context, Axis::Key, lines, Axis::Feature, width / bytesOf(element), element,
                              /*swizzled=*/false, /*boxes=*/0);
  return SmallVector<SharedType>(bytes / width, tile);
}

TokenTiles TokenTiles::of(KVType region, int64_t lines, int64_t keyDim, int64_t valueDim) {
  MLIRContext *context = region.getContext();
  auto codes = [&](Type stored, int64_t features) {
    return SharedType::get(context, Axis::Key, lines, Axis::Feature, features, codesOf(stored),
                           /*swizzled=*/false, /*boxes=*/0);
  };
  const rt::Store store = storeOf(region);
  if (store.isLatent()) {
    const int64_t rest = store.keys.format.rest;
    return {codes(region.getKey(), keyDim - rest),
            SharedType(),
            rest ? codes(BFloat16Type::get(context), rest) : SharedType(),
            metaTiles(store.keys, lines, context),
            {}};
  }
  return {codes(region.getKey(), keyDim), codes(region.getValue(), valueDim), SharedType(),
          metaTiles(store.keys, lines, context), metaTiles(store.values, lines, context)};
}

SmallVector<SharedType> TokenTiles::all() const {
  SmallVector<SharedType> tiles{keys};
  if (values)
    tiles.push_back(values);
  if (keyRest)
    tiles.push_back(keyRest);
  llvm::append_range(tiles, keyMeta);
  llvm::append_range(tiles, valueMeta);
  return tiles;
}

bool mlir::attn::narrowsQueries(ScheduleAttr schedule, ArrayRef<KVType> regions, Type element) {
  constexpr int64_t rowsOfOneMma = 16;
  return schedule.getKind() == ScheduleKind::Mma && !schedule.getQueryInRegisters() &&
         schedule.getRows() == rowsOfOneMma && isMultiplied(element) && !regions.empty() &&
         llvm::all_of(regions, [&](KVType region) {
           return region.getLatent() && isa<QuantizedType>(region.getKey()) &&
                  formatOf(region.getKey()).rest == formatOf(regions.front().getKey()).rest;
         });
}

bool mlir::attn::widensTokens(ScheduleAttr schedule, ArrayRef<KVType> regions) {
  return schedule.getKind() == ScheduleKind::Wgmma && llvm::any_of(regions, isQuantized) &&
         !schedule.sharesWeights();
}

bool mlir::attn::widensOnTheWay(ScheduleAttr schedule, ArrayRef<KVType> regions) {
  return schedule.getKind() == ScheduleKind::Wgmma && llvm::any_of(regions, isQuantized) &&
         schedule.sharesWeights();
}

/// The tile that a tile is widened to. Quantized values become f16, scales and zeros of keys f32.
static SharedType widenedTile(SharedType tile, Type element) {
  return SharedType::get(tile.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(),
                         tile.getCols(), element, tile.getSwizzled(), tile.getBoxes());
}

/// Tiles of metadata come last: the others are multiples of the swizzle's period.
SmallVector<WideningRing> mlir::attn::wideningRings(KVType region, int64_t lines, int64_t keyDim,
                                                    int64_t valueDim, int64_t stages) {
  constexpr int64_t storedStages = 2; // one is widened while the next arrives
  MLIRContext *context = region.getContext();
  TokenTiles tiles = TokenTiles::of(region, lines, keyDim, valueDim);
  SmallVector<WideningRing> rings;
  auto stored = [&](Copy name, SharedType tile) {
    rings.push_back({name, /*isStored=*/true, RingType::get(context, storedStages, tile)});
  };
  auto widened = [&](Copy name, SharedType tile, Type element) {
    rings.push_back({name, /*isStored=*/false, RingType::get(context, stages, widenedTile(tile, element))});
  };
  widened(Copy::Keys, tiles.keys, Float16Type::get(context));
  widened(Copy::Values, tiles.values, Float16Type::get(context));
  stored(Copy::Keys, tiles.keys);
  stored(Copy::Values, tiles.values);
  for (SharedType tile : tiles.keyMeta)
    stored(Copy::KeyMeta, tile);
  for (SharedType tile : tiles.valueMeta)
    stored(Copy::ValueMeta, tile);
  for (SharedType tile : tiles.keyMeta)
    widened(Copy::KeyMeta, tile, Float32Type::get(context));
  return rings;
}

bool mlir::attn::haveSameTiles(KVType a, KVType b) {
  return a.getKey() == b.getKey() && a.getValue() == b.getValue() && a.getLatent() == b.getLatent();
}

SmallVector<KVType> mlir::attn::regionsByTiles(ArrayRef<KVType> regions) {
  SmallVector<KVType> kinds;
  for (KVType region : regions)
    if (llvm::none_of(kinds, [&](KVType kind) { return haveSameTiles(kind, region); }))
      kinds.push_back(region);
  return kinds;
}

SmallVector<TokenRing> mlir::attn::tokenRings(ArrayRef<KVType> kinds, int64_t lines, int64_t keyDim,
                                              int64_t valueDim, bool together) {
  SmallVector<TokenRing> rings;
  for (auto [kind, region] : llvm::enumerate(kinds)) {
    llvm::SmallDenseSet<unsigned> taken;
    for (SharedType tile : TokenTiles::of(region, lines, keyDim, valueDim).all()) {
      TokenRing ring{static_cast<unsigned>(kind), tile};
      for (auto [number, other] : llvm::enumerate(rings))
        if (together && !ring.under && !other.under && other.kind != kind &&
            memoryBytes(other.tile) == memoryBytes(tile) && taken.insert(number).second)
          ring.under = number;
      rings.push_back(ring);
    }
  }
  return rings;
}

SmallVector<HalfRing> mlir::attn::halfRings(KVType region, ScheduleAttr schedule, int64_t keyDim,
                                            int64_t valueDim, Type element) {
  auto tile = [&](int64_t features) {
    return SharedType::get(schedule.getContext(), Axis::Key, schedule.getWarpKeys(), Axis::Feature, features,
                           element, /*swizzled=*/false, /*boxes=*/0);
  };
  if (!region.getLatent())
    return {{Copy::Keys, tile(keyDim), false},
            {Copy::Values, tile(valueDim), true},
            {Copy::KeysBehind, tile(keyDim), false},
            {Copy::ValuesBehind, tile(valueDim), true}};
  const int64_t first = schedule.getSliceFeatures(valueDim), rest = keyDim - first;
  return {{Copy::Keys, tile(first), true},
          {Copy::KeyRest, tile(rest), true},
          {Copy::KeysBehind, tile(first), true},
          {Copy::KeyRestBehind, tile(rest), true}};
}

Type mlir::attn::weightElement(ScheduleAttr schedule, ArrayRef<KVType> regions, Type element) {
  const bool converts = schedule.getKind() == ScheduleKind::Mma && isQuantized(regions.front());
  return converts ? Type(Float16Type::get(element.getContext())) : element;
}

SharedType mlir::attn::weightsTile(ScheduleAttr schedule, Type element) {
  // Warps exchange theirs at once, warpgroups one after the other.
  const int64_t places = schedule.getKind() == ScheduleKind::Mma ? schedule.getSlices() : 1;
  return SharedType::get(schedule.getContext(), Axis::Query, places * schedule.getRows(), Axis::Key,
                         schedule.getWarpKeys(), element, /*swizzled=*/false, /*boxes=*/0);
}

SharedType mlir::attn::unitsTile(ScheduleAttr schedule) {
  MLIRContext *context = schedule.getContext();
  const int64_t numbers = 2 * schedule.getSlices();
  return SharedType::get(context, Axis::Query, numbers * schedule.getRows(), Axis::Feature, 1,
                         Float32Type::get(context), /*swizzled=*/false, /*boxes=*/0);
}

//===- StoredTokens.cpp - Tokens of a tile in their store -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gathers and TMA loads see a tensor as slots (one per token) of heads of
// features, and share the map from a token to its slot. The launch gives the
// strides of slots and heads, and the distance of unified pages. Only quantized
// values with metadata by line lie as their shape says.
//
// In a ragged store, the head selects the row of the block table. The offset of
// a head's slice in a page is constant, so boxes work there, too.
//
//===----------------------------------------------------------------------===//
#include "Source.h"
#include "TensorMaps.h"

#include "AttnToTile/Kernel/StoreValues.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Tile/IR/CacheHint.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

StoredTokens::StoredTokens(StagedKernel &kernel, UpdateOp update, Value first)
    : first(first), k(kernel), b(kernel.b), update(update), tokens(tokensOf(update.getKv())),
      rows(b, kernel.form, update.getQuery()), store(storeOf(tokens.getType())) {}

Value StoredTokens::slotOf(Value token, bool startsPage) {
  auto ofHead = [&] { return place(); };
  StoreValues values{b, argumentName(update.getKv()), ofHead};
  if (startsPage || !store.hasSingleTokens() || !k.form.has(FormTraits::Lists))
    return store.lineSlotOf(values, tokens.getInstance(), token, startsPage);
  // The plan may have a list of single tokens.
  Type i32 = b.getI32Type();
  auto branch = scf::IfOp::create(b, TypeRange{i32}, isList(b, tokens), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, b.read(planArray(b, PlanArray::Slots), b.wide(token)));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, store.lineSlotOf(values, tokens.getInstance(), token));
  return branch.getResult(0);
}

Value StoredTokens::knownToken(Value token, int64_t lines) {
  Value begin = tokens.getBegin();
  if (!begin || !store.isPaged())
    return token;
  return b.max(token, b.sub(begin, b.rem(begin, lines)));
}

Value StoredTokens::lookUp(Scope copiers, Value from) {
  Type i32 = b.getI32Type();
  auto lookup = LookupOp::create(b, i32, from, tokens.getEnd(), k.tokenLines(), copiers, Value());
  b.fill(lookup.getSlot(), {i32}, [&](ValueRange token) { return slotOf(knownToken(token[0])); });
  return lookup;
}

/// The elements from one slot's line of `line` elements to the next slot's; in the store of a class, per head
/// of the class.
static int64_t strideOf(const rt::Store &store, int64_t line) {
  return store.headPitch() != 1 || store.isOfClass() ? line : store.heads * line;
}

/// Adds a part of a line that holds quantized features, their scales and a rest, from byte `byte` of it on.
void StoredTokens::addPart(int64_t byte, int64_t features, Sources &from) {
  std::string name = tensor(store.codesName(store.keys));
  Value head = place();
  from.buffers.push_back(b.buffer(name, b.getI8Type()));
  from.features.push_back(features);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(head);
  Value line = b.mul(b.wide(head), b.wide(b.stride(name, store.headAxis())));
  from.origins.push_back(b.add(line, b.i64(byte)));
  from.pitches.push_back(b.stride(name, store.slotAxis()));
}

void StoredTokens::addCodes(bool keys, Sources &from) {
  const rt::StorePart &part = store.part(keys);
  if (part.format.isMixed())
    return addPart(0, part.format.rowCoded(part.dim), from);
  KVType type = tokens.getType();
  std::string name = tensor(store.codesName(part));
  Value head = place();
  from.buffers.push_back(b.buffer(name, codesOf(keys ? type.getKey() : type.getValue())));
  from.features.push_back(part.dim);
  if (store.isStrided()) {
    // The origin is the same for all tiles of a task.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(head);
    from.origins.push_back(b.mul(b.wide(head), b.wide(b.stride(name, store.headAxis()))));
    from.pitches.push_back(b.stride(name, store.slotAxis()));
    return;
  }
  from.origins.push_back(b.wide(b.mul(head, b.i32(store.headPitch() * part.dim))));
  from.strides.push_back(strideOf(store, part.dim));
}

/// Adds a source for each of the tiles of a line.
void StoredTokens::addMeta(bool keys, Sources &from) {
  const rt::StorePart &part = store.part(keys);
  if (part.format.isMixed())
    return addPart(part.format.rowCoded(part.dim), part.format.rowScales(part.dim), from);
  TokenTiles tiles = TokenTiles::of(tokens.getType(), k.tokenLines(), k.form.getKeyTile(), k.valueFeatures());
  ArrayRef<SharedType> parts = keys ? tiles.keyMeta : tiles.valueMeta;
  Type element = parts.front().getElement();
  int64_t columns = parts.front().getCols(), line = columns * parts.size();
  Value buffer = b.buffer(tensor(rt::Store::metaName(part)), element);
  Value origin = b.mul(place(), b.i32(store.headPitch() * line));
  for (size_t i = 0; i < parts.size(); ++i) {
    from.buffers.push_back(buffer);
    from.origins.push_back(b.wide(b.add(origin, b.i32(i * columns))));
    from.features.push_back(columns);
    from.strides.push_back(strideOf(store, line));
  }
}

void StoredTokens::gather(ArrayRef<Copy> names, ValueRange tiles, Scope copiers, Value slots) {
  Sources from;
  if (llvm::is_contained(names, Copy::Keys))
    addCodes(/*keys=*/true, from);
  if (llvm::is_contained(names, Copy::Values))
    addCodes(/*keys=*/false, from);
  if (llvm::is_contained(names, Copy::KeyRest))
    addPart(store.keys.format.restByte(store.keys.dim), store.keys.format.rest, from);
  if (llvm::is_contained(names, Copy::KeyMeta))
    addMeta(/*keys=*/true, from);
  if (llvm::is_contained(names, Copy::ValueMeta))
    addMeta(/*keys=*/false, from);
  Value apart = store.isUnified() ? b.dimension(sizeOf(rt::StoreSize::PageBytes)) : Value();
  // The launch knows the number of heads of a class.
  bool counts = store.isOfClass() && !store.isStrided() && store.headPitch() == 1;
  Value heads = counts ? b.dimension(sizeOf(rt::StoreSize::Heads)) : Value();
  auto strides = store.isStrided() ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(from.strides);
  auto gather = GatherOp::create(b, first, tokens.getEnd(), from.buffers, from.origins, tiles, strides, heads,
                                 from.pitches, slots, apart, copiers,
                                 apart ? b.getI64IntegerAttr(store.gatheredSlots()) : IntegerAttr(),
                                 paddedFrom(tiles, from.features));
  if (storesScoresAttr.isOn(b.kernel))
    setCacheHint(gather, evictFirst); // few rows read them, once; scores are to stay in the L2
  if (!slots)
    b.fill(gather.getSlot(), {b.getI32Type()},
           [&](ValueRange token) { return slotOf(knownToken(token[0])); });
}

SmallVector<Value> StoredTokens::fetchLines(int64_t feature, SharedType tile, Value slots) {
  constexpr int64_t panel = 64, each = 16 * 32;
  Sources from;
  addCodes(/*keys=*/true, from);
  Value origin = b.add(from.origins.front(), b.i64(feature)); // features of a byte
  const int64_t count = tile.getRows() * tile.getCols() / each / k.schedule.getProducerWarps();
  SmallVector<Type> types(count, VectorType::get(4, b.getI32Type()));
  auto fetch = FetchLinesOp::create(b, types, b.getI64IntegerAttr(tile.getRows()),
                                    b.getI64IntegerAttr(tile.getCols() / panel), slots, /*next=*/Value(),
                                    from.buffers.front(), origin, from.pitches.front());
  return SmallVector<Value>(fetch.getResults());
}

int64_t StoredTokens::boxLines(Copy name) {
  ArrayRef<int64_t> lines = areValues(name) ? k.schedule.getValueCopies() : k.schedule.getKeyCopies();
  return lines[operandAttr.get(update).getInt()];
}

Value StoredTokens::lookUpBoxes(Value from) {
  int64_t lines = boxLines(Copy::Keys);
  // Tiles are looked up one ahead. After the last tile there may be no table entry, and no warp uses the
  // slot.
  if (lines == k.tokenLines())
    return slotOf(store.isPaged() ? b.min(knownToken(from, lines), b.sub(tokens.getEnd(), b.i32(1))) : from);
  auto lookup = LookupBoxesOp::create(b, b.getI32Type(), from, tokens.getEnd(), lines, Value());
  b.fill(lookup.getSlot(), {b.getI32Type()}, [&](ValueRange token) {
    Value known = knownToken(token[0], lines);
    Value slot = slotOf(known, !store.tearsPages(k.tokenLines()));
    if (known == token[0])
      return slot;
    // A box in front of the first token lies outside of the map, so that the copy writes zeros. The box of
    // that token may end with lines that nobody has written, which must not be read for others.
    return arith::SelectOp::create(b, b.less(token[0], known), b.i32(-lines), slot).getResult();
  });
  return lookup;
}

/// The slot of a half of a tile, or one outside of the map if the half lies in front of the first token, or
/// behind the last one: the copy then writes zeros. It is decided where the half is copied, as a lookup is in
/// flight until then.
Value StoredTokens::slotOfHalf(Value slot, int64_t lines) {
  if (!k.splitsTiles() || !store.isPaged() || lines != k.tokenLines())
    return slot;
  Value known = knownToken(first, lines), outside = b.less(b.sub(tokens.getEnd(), b.i32(1)), first);
  if (known != first)
    outside = b.createOrFold<arith::OrIOp>(outside, b.less(first, known));
  return arith::SelectOp::create(b, outside, b.i32(-lines), slot);
}

void StoredTokens::tmaLoad(Copy name, Value tile, Value slot) {
  constexpr int64_t panelBytes = 128;
  const rt::StorePart &part = store.part(/*keys=*/!areValues(name));
  int64_t dim = part.dim, bytes = part.format.rowBytes(dim), lines = boxLines(name);
  auto type = cast<SharedType>(tile.getType());
  std::string buffer = tensor(store.codesName(part));
  rt::Store::BoxAxis axis = store.boxAxis();
  MapAxis slots{axis.extent, {}, store.heads * bytes, lines, ""}, heads{store.heads, {}, bytes, 1, ""};
  if (store.isStrided()) {
    slots.stride = heads.stride = 1;
    slots.times = rt::strideName(buffer, store.slotAxis());
    heads.times = rt::strideName(buffer, store.headAxis());
  }
  if (store.isOfClass()) { // the launch gives their number
    heads.extent = 1;
    heads.dims.push_back(sizeOf(rt::StoreSize::Heads));
  }
  for (rt::StoreSize size : axis.times)
    slots.dims.push_back(sizeOf(size));
  const bool isRest = name == Copy::KeyRest || name == Copy::KeyRestBehind;
  std::string map = tensor(std::string(1, part.letter) + (isRest ? ".rest.map" : ".map"));
  SmallVector<Value> maps = tensorMaps(b, map, buffer, type, lines, std::nullopt, slots, dim, heads);
  IntegerAttr panel;
  if (isRest)
    panel = b.getI64IntegerAttr((dim - type.getCols()) * bytes / dim / panelBytes);
  TmaLoadOp::create(b, maps, slotOfHalf(slot, lines), place(), tile, Value(), Value(), /*next=*/Value(),
                    lines, isPadded(type, dim), panel);
}

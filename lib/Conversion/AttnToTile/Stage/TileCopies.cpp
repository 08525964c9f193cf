//===- TileCopies.cpp - What reaches shared memory, and results leave it ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two ways in for queries, keys and values. A *gather* computes an address for every 16 bytes, in many
// threads: it takes every store. A *fetch* tells the hardware's copy engine which box of a tensor is wanted,
// in one thread: it needs the lines of a box to lie in consecutive slots, which is so in dense and packed
// stores and inside a page. Results go the opposite way: a *send* of a box, a *scatter* of what fills none.
//
// Both see a tensor as slots (one per token, or per query row) of heads of
// features, and share the map from a token to its slot. How far slots and heads lie apart says the launch;
// only codes with metadata by line lie as their shape says. Of unified pages it says how far they lie apart.
//
// Of a ragged store the head says which row of the block table is read. Where in
// a page a head's slice lies does not change, so boxes serve it, too.
//
//===----------------------------------------------------------------------===//
#include "TileCopies.h"
#include "AttnToTile/Kernel/StoreValues.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Dialect/Tile/IR/CacheHint.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Value TileCopies::placeOf(UpdateOp update, const Segment &segment) {
  return update.getKv().getType().isOfClass() ? b.sub(ordinal, segment.firstOrdinal) : kvHead;
}

/// Slot of a token in the operand's store, the same for keys and values, by which lines are found.
Value TileCopies::slotOf(UpdateOp update, const Segment &segment, Value token, bool startsPage) {
  rt::Store store = storeOf(update.getKv().getType());
  auto place = [&] { return placeOf(update, segment); };
  StoreValues values{b, argumentName(update.getKv()), place};
  if (startsPage || !store.hasSingleTokens() || !mayList())
    return store.lineSlotOf(values, segment.instance, token, startsPage);
  // The plan may have a list of its own.
  Type i32 = b.getI32Type();
  auto branch = scf::IfOp::create(b, TypeRange{i32}, isList(segment), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, b.read(planArray(b, PlanArray::Slots), b.wide(token)));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, store.lineSlotOf(values, segment.instance, token));
  return branch.getResult(0);
}

/// What a gather must know where lines of its targets are longer than those of the tensors.
static DenseI64ArrayAttr featuresOf(ValueRange targets, ArrayRef<int64_t> features) {
  bool padded = llvm::any_of(llvm::zip(targets, features), [](auto pair) {
    return cast<SharedType>(std::get<0>(pair).getType()).getCols() != std::get<1>(pair);
  });
  return padded ? DenseI64ArrayAttr::get(targets.front().getContext(), features) : DenseI64ArrayAttr();
}

void TileCopies::gatherQueries(Value target, Scope scope) {
  // Rows and heads lie whole units apart.
  constexpr int64_t unit = 16;
  auto gather = GatherOp::create(b, packedBegin, taskEnd(), ValueRange{b.buffer("q", chain.element())},
                                 ValueRange{b.i64(0)}, ValueRange{target}, DenseI64ArrayAttr(), Value(),
                                 ValueRange{b.i32(unit)}, Value(), Value(), scope, IntegerAttr(),
                                 featuresOf(target, chain.keyDim()));
  b.fill(gather.getSlot(), {b.getI32Type()}, [&](ValueRange line) {
    return b.stridedSlot("q", line[0], kvHead, chain.group(), unit, b.getI32Type());
  });
}

void TileCopies::gatherRows(ArrayRef<StringRef> names, ValueRange targets, Scope scope) {
  Sources from;
  for (StringRef name : names) {
    from.buffers.push_back(b.buffer(name, chain.element()));
    from.origins.push_back(b.i64(0));
    from.features.push_back(name == "q" ? chain.keyDim() : chain.valueDim());
  }
  auto gather = GatherOp::create(b, packedBegin, taskEnd(), from.buffers, from.origins, targets,
                                 b.getDenseI64ArrayAttr(from.features), Value(), ValueRange(), Value(),
                                 Value(), scope, IntegerAttr(), featuresOf(targets, from.features));
  b.fill(gather.getSlot(), {b.getI32Type()},
         [&](ValueRange line) { return packedSlot(line[0], b.getI32Type()); });
}

void TileCopies::gatherNumbers(StringRef name, Value target) {
  Type element = cast<SharedType>(target.getType()).getElement();
  auto gather =
      GatherOp::create(b, packedBegin, taskEnd(), ValueRange{b.buffer(name, element)}, ValueRange{b.i64(0)},
                       ValueRange{target}, b.getDenseI64ArrayAttr({1}), Value(), ValueRange(), Value(),
                       Value(), Scope::Warp, IntegerAttr(), DenseI64ArrayAttr());
  b.fill(gather.getSlot(), {b.getI32Type()}, [&](ValueRange line) {
    return element.isInteger() ? unpack(line[0]).first : numberSlot(line[0], b.getI32Type());
  });
}

Value TileCopies::heads(UpdateOp update) {
  rt::Store store = storeOf(update.getKv().getType());
  return store.isOfClass() && !store.isStrided() && store.headPitch() == 1
             ? b.dimension(tensor(update, rt::sizeName(rt::StoreSize::Heads)))
             : Value();
}

Value TileCopies::lookupTokens(UpdateOp update, const Segment &segment, Value firstKey, Scope scope) {
  if (!storeOf(update.getKv().getType()).table())
    return {};
  auto lookup = LookupOp::create(b, b.getI32Type(), firstKey, segment.kvEnd,
                                 scope == Scope::Warp ? keys : blockKeys(), scope, Value());
  b.fill(lookup.getSlot(), {b.getI32Type()},
         [&](ValueRange token) { return slotOf(update, segment, token[0]); });
  return lookup;
}

/// Elements from a slot's line of so many to the next one's; of a class, to be multiplied by its heads.
static int64_t strideOf(const rt::Store &store, int64_t line) {
  return store.headPitch() != 1 || store.isOfClass() ? line : store.heads * line;
}

void TileCopies::addCodes(UpdateOp update, const Segment &segment, StringRef which, Sources &from) {
  rt::Store store = storeOf(update.getKv().getType());
  const rt::StorePart &part = store.part(which == "k");
  std::string name = tensor(update, store.codesName(part));
  Value place = placeOf(update, segment);
  from.buffers.push_back(b.buffer(name, storedElement(update, which)));
  from.features.push_back(part.dim);
  if (store.isStrided()) {
    // It is the same for all tiles of a task.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(place);
    from.origins.push_back(b.mul(b.wide(place), b.wide(b.stride(name, store.headAxis()))));
    from.pitches.push_back(b.stride(name, store.slotAxis()));
    return;
  }
  from.origins.push_back(b.wide(b.mul(place, b.i32(store.headPitch() * part.dim))));
  from.strides.push_back(strideOf(store, part.dim));
}

/// A source for each of the tiles of a line.
void TileCopies::addMeta(UpdateOp update, const Segment &segment, StringRef which, Sources &from) {
  rt::Store store = storeOf(update.getKv().getType());
  const rt::StorePart &part = store.part(which == "k");
  TokenTiles tiles =
      TokenTiles::of(update.getKv().getType(), keys, chain.paddedKeyDim(), chain.paddedValueDim());
  ArrayRef<SharedType> parts = which == "k" ? tiles.keyMeta : tiles.valueMeta;
  Type element = parts.front().getElement();
  int64_t columns = parts.front().getCols(), line = columns * parts.size();
  Value buffer = b.buffer(tensor(update, rt::Store::metaName(part)), element);
  Value origin = b.mul(placeOf(update, segment), b.i32(store.headPitch() * line));
  for (size_t i = 0; i < parts.size(); ++i) {
    from.buffers.push_back(buffer);
    from.origins.push_back(b.wide(b.add(origin, b.i32(i * columns))));
    from.features.push_back(columns);
    from.strides.push_back(strideOf(store, line));
  }
}

void TileCopies::gatherTokens(UpdateOp update, const Segment &segment, Value firstKey, Value slots,
                              ArrayRef<StringRef> parts, ValueRange targets, Scope scope) {
  rt::Store store = storeOf(update.getKv().getType());
  Sources from;
  for (StringRef which : parts)
    addCodes(update, segment, which, from);
  for (StringRef which : parts)
    if (store.part(which == "k").format.hasLines())
      addMeta(update, segment, which, from);
  Value apart =
      store.isUnified() ? b.dimension(tensor(update, rt::sizeName(rt::StoreSize::PageBytes))) : Value();
  auto gather = GatherOp::create(
      b, firstKey, segment.kvEnd, from.buffers, from.origins, targets,
      store.isStrided() ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(from.strides), heads(update),
      from.pitches, slots, apart, scope, apart ? b.getI64IntegerAttr(store.tokensOf(1)) : IntegerAttr(),
      featuresOf(targets, from.features));
  if (storesScoresAttr.isOn(b.kernel))
    setCacheHint(gather, evictFirst); // few rows read them, once; the scores are to stay
  if (!slots)
    b.fill(gather.getSlot(), {b.getI32Type()},
           [&](ValueRange token) { return slotOf(update, segment, token[0]); });
}

/// A map for each width of the tile's panels. Axes: features of a panel, then `inner`, then slots, panels and
/// heads; boxes hold whole panels, all of one width where they are as long as the tile. Where the tile's
/// lines are padded, the first axis is all features that exist, so that what is behind them is outside of the
/// tensor, and there is one panel.
SmallVector<Value> TileCopies::tensorMaps(StringRef name, StringRef buffer, SharedType tile, int64_t lines,
                                          std::optional<MapAxis> inner, MapAxis slots, int64_t features,
                                          MapAxis heads) {
  tile = SharedType::get(b.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(), tile.getCols(),
                         tile.getElement(), /*swizzled=*/true, tile.getBoxes());
  int64_t size = tile.getElement().getIntOrFloatBitWidth() / 8;
  bool padded = isPadded(tile, features);
  SmallVector<Value> maps;
  for (int64_t width : {128, 64, 32}) {
    int64_t panels = llvm::count_if(tile.getPanels(), [&](auto &panel) { return panel.width == width; });
    if (panels == 0)
      continue;
    SmallVector<MapAxis> axes{{padded ? features : width / size, {}, size, width / size, ""}};
    if (inner)
      axes.push_back(*inner);
    axes.push_back(slots);
    if (padded)
      axes.push_back({1, {}, width, 1, ""});
    else
      axes.push_back({features * size / width, {}, width, lines == tile.getBoxLines() ? panels : 1, ""});
    axes.push_back(heads);
    SmallVector<int64_t> extents, strides, box;
    SmallVector<Attribute> dims;
    SmallVector<StringRef> times;
    for (const MapAxis &axis : axes) {
      extents.push_back(axis.extent);
      strides.push_back(axis.stride);
      box.push_back(axis.box);
      times.push_back(axis.times);
      dims.push_back(b.getStrArrayAttr(SmallVector<StringRef>(axis.dims.begin(), axis.dims.end())));
    }
    std::string unique = (name + "." + Twine(lines) + "x" + Twine(width / size)).str();
    maps.push_back(b.tensorMap(TensorMapAttr::get(
        b.getContext(), unique, buffer, tile.getElement(), b.getDenseI64ArrayAttr(extents),
        b.getArrayAttr(dims), b.getDenseI64ArrayAttr(strides), b.getDenseI64ArrayAttr(box), width,
        llvm::all_of(times, [](StringRef name) { return name.empty(); }) ? ArrayAttr()
                                                                         : b.getStrArrayAttr(times))));
  }
  return maps;
}

Value TileCopies::fill(Value ring, std::optional<int64_t> warp, function_ref<void(Value)> copies) {
  SharedType tile = cast<RingType>(ring.getType()).getTile();
  auto op = FillOp::create(b, tile, ring, warp ? b.getI64IntegerAttr(*warp) : IntegerAttr());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&op.getCopies(), {}, {tile}, {op.getLoc()});
  copies(op.getCopies().getArgument(0));
  return op;
}

Value TileCopies::fetchSlot(UpdateOp update, const Segment &segment, Value firstKey) {
  rt::Store store = storeOf(update.getKv().getType());
  int64_t lines = linesOf(update, "k");
  // Tiles are looked up one ahead. Behind the last there may be no table entry, and nobody takes the slot.
  if (lines == blockKeys())
    return slotOf(update, segment,
                  store.isPaged() ? b.min(firstKey, b.sub(segment.kvEnd, b.i32(1))) : firstKey);
  auto lookup = LookupBoxesOp::create(b, b.getI32Type(), firstKey, segment.kvEnd, lines, Value());
  b.fill(lookup.getSlot(), {b.getI32Type()},
         [&](ValueRange token) { return slotOf(update, segment, token[0], !store.tearsPages(blockKeys())); });
  return lookup;
}

void TileCopies::fetchTokens(UpdateOp update, const Segment &segment, Value slot, StringRef part,
                             Value target) {
  rt::Store store = storeOf(update.getKv().getType());
  const rt::StorePart &stored = store.part(part == "k");
  int64_t dim = stored.dim, bytes = stored.format.rowBytes(dim);
  auto tile = cast<SharedType>(target.getType());
  int64_t lines = linesOf(update, part);
  std::string buffer = tensor(update, store.codesName(stored));
  rt::Store::BoxAxis axis = store.boxAxis();
  MapAxis slots{axis.extent, {}, store.heads * bytes, lines, ""}, heads{store.heads, {}, bytes, 1, ""};
  if (store.isStrided()) {
    slots.stride = heads.stride = 1;
    slots.times = rt::strideName(buffer, store.slotAxis());
    heads.times = rt::strideName(buffer, store.headAxis());
  }
  if (store.isOfClass()) { // how many the launch says
    heads.extent = 1;
    heads.dims.push_back(tensor(update, rt::sizeName(rt::StoreSize::Heads)));
  }
  for (rt::StoreSize size : axis.times)
    slots.dims.push_back(tensor(update, rt::sizeName(size)));
  SmallVector<Value> maps =
      tensorMaps(tensor(update, (part + ".map").str()), buffer, tile, lines, std::nullopt, slots, dim, heads);
  FetchOp::create(b, maps, slot, placeOf(update, segment), target, Value(), Value(), lines,
                  isPadded(tile, dim));
}

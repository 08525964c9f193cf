//===- RowChunks.cpp - A lane's share of a piece ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/StoreValues.h"
#include "RowAccess.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

static constexpr int64_t lanes = 32;

RowExpansion::RowExpansion(func::FuncOp kernel) : b(kernel), i32(b.getI32Type()) {
  b.setInsertionPointToStart(&kernel.front());
  lane = LaneIdOp::create(b, i32);
}

void RowExpansion::placeChunks(Operation *op) {
  b.setInsertionPoint(op);
  for (Operation &other : *op->getBlock())
    if (auto take = dyn_cast<LoadRowsOp>(other))
      chunks[&other] = chunksOf(Access(take));
    else if (auto put = dyn_cast<StoreRowsOp>(other))
      if (&other == op || !put.getShare().getHeads())
        chunks[&other] = chunksOf(Access(put));
}

SmallVector<RowExpansion::Chunk> RowExpansion::chunksOf(const Access &access) {
  RowMemory memory = access.memory();
  SmallVector<Chunk> result;
  for (int64_t load = 0; load < access.share.loads(); ++load)
    if (access.share.getHeads())
      result.push_back(access.meta ? headMetaChunkOf(access, memory, load)
                                   : headChunkOf(access, memory, load));
    else
      result.push_back(access.meta ? metaChunkOf(access, memory, load) : chunkOf(access, memory, load));
  return result;
}

Value RowExpansion::fromLane(Value value, Value row) {
  Value &known = handed[{value, row}];
  if (!known)
    known = FromLaneOp::create(b, value, row);
  return known;
}

Value RowExpansion::numberOf(ShareAttr share, int64_t load) {
  return b.add(lane, b.i32(load * share.getLanes()));
}

Value RowExpansion::columnOf(ShareAttr share, int64_t load) {
  if (share.isWide()) // of one head: lanes past its end are left out
    return numberOf(share, load);
  return share.isOneRow() ? lane : b.rem(numberOf(share, load), share.getWidth());
}

/// The index of the row among the eight. If a load has one row, keys and values ask for the same number.
Value RowExpansion::rowOf(ShareAttr share, int64_t load) {
  if (share.isWide())
    return b.i32(0);
  if (!share.isOneRow())
    return b.div(numberOf(share, load), share.getWidth());
  if (share.getHeads()) // pieces of unlike branches
    return b.i32(load);
  Value &known = numbers[load];
  if (!known)
    known = b.i32(load);
  return known;
}

Value RowExpansion::strideOf(const RowMemory &memory) {
  Value &known = strides[memory.layer];
  if (!known) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(lane.getDefiningOp());
    known = b.wide(b.dimension(memory.layer));
  }
  return known;
}

Value RowExpansion::bufferOf(const RowMemory &memory, int64_t chunk) {
  return b.buffer(memory.buffer, b.getIntegerType(8 * std::min<int64_t>(chunk, 4)));
}

RowExpansion::Chunk RowExpansion::chunkOf(const Access &access, const RowMemory &memory, int64_t load) {
  ShareAttr share = access.share;
  int64_t width = share.getWidth(), used = share.getLanes(), chunk = share.getChunk();
  int64_t perElement = std::max<int64_t>(1, chunk / 4);
  Value column = b.add(columnOf(share, load), b.mul(access.piece, b.i32(width)));
  Value row = rowOf(share, load);

  Value there = b.compare(arith::CmpIPredicate::sge, fromLane(access.mark, row), b.i32(0));
  auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
  if (ShareAttr::rows * width % used)
    both(b.less(numberOf(share, load), b.i32(ShareAttr::rows * width)));
  if (used < lanes)
    both(b.less(lane, b.i32(used)));
  Value slot = access.listed ? fromLane(access.rows, row) : b.add(access.rows, row);
  Value layers = b.mul(b.mul(access.layer, strideOf(memory)), b.i64(rowChunkBytes / chunk));
  if (access.isMixed()) {
    const rt::StorePart part = storedPartOf(access.argument, access.part);
    const int64_t columns = part.dim / rowNumbers, heads = memory.rowBytes / part.format.rowBytes(part.dim);
    both(b.less(column, b.i32(heads * columns)));
    Value line = b.add(layers, inLayer(access, memory, slot, b.i32(0)));
    line = b.add(line, b.wide(b.mul(b.div(column, columns), b.i32(memory.chunks(chunk) / heads))));
    return mixedChunkOf(there, line, b.rem(column, columns));
  }
  both(b.less(column, b.i32(memory.chunks(chunk))));
  return {there, b.mul(b.add(layers, inLayer(access, memory, slot, column)), b.i64(perElement))};
}

/// The chunks from the start of a layer. The heads of a row follow each other, unless a page stores one head
/// after the other.
Value RowExpansion::inLayer(const Access &access, const RowMemory &memory, Value slot, Value column) {
  int64_t chunk = access.share.getChunk();
  auto type = dyn_cast<KVType>(access.argument.getType());
  if (type && storeOf(type).isUnified())
    return b.add(inPages(access, slot, memory.chunks(chunk), chunk), b.wide(column));
  if (!type || !storeOf(type).hasHeadsFirst())
    return b.add(b.mul(b.wide(slot), b.i64(memory.chunks(chunk))), b.wide(column));
  const rt::Store store = storeOf(type);
  int64_t ofHead = memory.chunks(chunk) / store.heads;
  Value head = b.div(column, ofHead);
  auto place = [&] { return head; };
  StoreValues values{b, "", place};
  return b.add(b.mul(b.wide(store.lineOf(values, slot)), b.i64(ofHead)), b.wide(b.rem(column, ofHead)));
}

/// The offset of a slot's line in unified pages, which have one head, in chunks of `chunk` bytes.
Value RowExpansion::inPages(const Access &access, Value slot, int64_t line, int64_t chunk) {
  const rt::Store store = storeOf(cast<KVType>(access.argument.getType()));
  std::string name =
      (argumentName(access.argument) + "." + StringRef(rt::sizeName(rt::StoreSize::PageBytes))).str();
  Value apart = b.div(b.dimension(name), chunk);
  return b.add(b.mul(b.wide(b.div(slot, store.tokensOf(1))), b.wide(apart)),
               b.wide(b.mul(b.rem(slot, store.tokensOf(1)), b.i32(line))));
}

/// Neighbouring lanes hold neighbouring rows, so a head's metadata in a page is written a sector at a time.
RowExpansion::Chunk RowExpansion::metaChunkOf(const Access &access, const RowMemory &memory, int64_t load) {
  ShareAttr share = access.share;
  int64_t width = share.getWidth(), words = share.getChunk() / metaWordBytes,
          atOnce = lanes / ShareAttr::rows;
  auto type = cast<KVType>(access.argument.getType());
  const rt::Store store = storeOf(type);
  const rt::StorePart part = storedPartOf(access.argument, access.part);
  int64_t ofHead = part.format.metaBytes(part.dim) / share.getChunk();
  // Rows are converted by bytes of blocks, which may be fewer than the bytes of a line.
  int64_t used = share.getChunk() == 1 ? part.format.groups(part.dim) : ofHead;

  Value row = b.rem(lane, ShareAttr::rows);
  Value inPiece = b.add(b.div(lane, ShareAttr::rows), b.i32(load * atOnce));
  Value column = b.add(inPiece, b.mul(access.piece, b.i32(width)));
  Value there = b.compare(arith::CmpIPredicate::sge, access.mark, b.i32(0)); // the mark of row lane % 8
  auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
  if (width % atOnce)
    both(b.less(inPiece, b.i32(width)));
  both(b.less(column, b.i32(store.heads * used)));

  Value head = b.div(column, used);
  auto place = [&] { return head; };
  StoreValues values{b, "", place};
  Value slot = access.listed ? access.rows : b.add(access.rows, row);
  Value line = store.isUnified() ? inPages(access, slot, ofHead, share.getChunk())
                                 : b.mul(b.wide(store.lineOf(values, slot)), b.i64(ofHead));
  Value inLayer = b.add(line, b.wide(b.rem(column, used)));
  Value layers = b.mul(access.layer, strideOf(memory));
  if (words == 0)
    return {there, b.add(b.mul(layers, b.i64(metaWordBytes)), inLayer)};
  return {there, b.add(layers, b.mul(inLayer, b.i64(words)))};
}

void RowExpansion::take(LoadRowsOp op) {
  if (!chunks.contains(op))
    placeChunks(op);
  b.setInsertionPoint(op);
  int64_t chunk = op.getShare().getChunk();
  Value buffer = bufferOf(Access(op).memory(), chunk);
  SmallVector<Type> types(std::max<int64_t>(1, chunk / 4), i32);
  for (const Chunk &place : chunks[op]) {
    if (place.column) {
      held[op.getResult()].push_back(readMixed(storedPartOf(op.getFrom(), op.getPart()), buffer, place));
      continue;
    }
    auto loaded = scf::IfOp::create(b, types, place.there, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loaded.elseBlock());
    scf::YieldOp::create(b, SmallVector<Value>(types.size(), b.i32(0)));
    b.setInsertionPointToStart(loaded.thenBlock());
    SmallVector<Value> words;
    if (types.size() > 1) {
      llvm::append_range(words, ReadAdjacentOp::create(b, types, buffer, place.index).getValues());
    } else {
      // An earlier launch may have written what this one reads, as attn.append does for attn.move.
      Type element = cast<BufferType>(buffer.getType()).getElement();
      Value word = tile::ReadOp::create(b, element, buffer, place.index, b.getUnitAttr());
      words.push_back(element == i32 ? word : b.createOrFold<arith::ExtUIOp>(i32, word));
    }
    scf::YieldOp::create(b, words);
    held[op.getResult()].emplace_back(loaded.getResults());
  }
}

void RowExpansion::put(StoreRowsOp op) {
  if (!chunks.contains(op))
    placeChunks(op);
  b.setInsertionPoint(op);
  Value buffer = bufferOf(Access(op).memory(), op.getShare().getChunk());
  for (auto [place, words] : llvm::zip_equal(chunks[op], held.at(op.getValue()))) {
    if (place.column) {
      writeMixed(storedPartOf(op.getTo(), op.getPart()), buffer, place, words);
      continue;
    }
    auto stored = scf::IfOp::create(b, place.there);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(stored.thenYield());
    if (words.size() > 1) {
      WriteAdjacentOp::create(b, words, buffer, place.index);
    } else {
      Type element = cast<BufferType>(buffer.getType()).getElement();
      Value word = element == i32 ? words[0] : b.createOrFold<arith::TruncIOp>(element, words[0]);
      tile::WriteOp::create(b, word, buffer, place.index);
    }
  }
}

Value RowExpansion::givenScale(Value kv, RowPart part, Value layer, Value piece, ShareAttr share,
                               int64_t load) {
  RowMemory memory = sharedScalesOf(kv, part);
  Value &known = scales[memory.buffer];
  if (known && share.isOneRow() && !share.getHeads()) // all loads have the same columns
    return known;
  const rt::Store store = storeOf(cast<KVType>(kv.getType()));
  const rt::StorePart stored = storedPartOf(kv, part);
  Value column = b.add(columnOf(share, load), b.mul(piece, b.i32(share.getWidth())));
  Value head = share.getHeads() ? b.add(rowOf(share, load), b.mul(piece, b.i32(share.getHeads())))
                                : b.div(column, stored.dim / rowNumbers);
  head = b.min(head, b.i32(store.heads - 1)); // lanes past the last column
  auto place = [&] { return head; };
  StoreValues values{b, "", place};
  Value index = b.wide(store.sharedOf(values, stored));
  index = b.add(b.mul(layer, strideOf(memory)), index);
  return known = b.read(b.buffer(memory.buffer, b.getF32Type()), index);
}

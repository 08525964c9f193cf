//===- HeadChunks.cpp - A lane's share of the heads of a row --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A launch gives the strides of rows, and of the pages, tokens and heads of a
// cache, so one kernel serves tensors of any order. Heads of a row follow each
// other, unless queries are a part of heads.
//
//   line of a slot = page * stride 0 + token in the page * stride 1 + head * stride 2
//
//===----------------------------------------------------------------------===//
#include "RowAccess.h"

#include "RowNumbers.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

static constexpr int64_t lanes = 32;

static int64_t headsOf(Value argument) {
  auto type = dyn_cast<KVType>(argument.getType());
  return type ? storeOf(type).heads : cast<RankedTensorType>(argument.getType()).getDimSize(2);
}

/// The start of a head's line, in the chunks of the access.
Value RowExpansion::lineOf(const Access &access, const RowMemory &memory, Value head) {
  int64_t chunk = access.share.getChunk();
  auto along = [&](Value index, size_t axis) {
    return b.mul(b.wide(index), b.wide(b.div(b.stride(memory.buffer, axis), chunk)));
  };
  // Layers of lines are counted in 16 bytes, and layers of metadata in 4.
  int64_t unit = access.meta ? metaWordBytes : rowChunkBytes;
  Value start = b.mul(b.mul(access.layer, strideOf(memory)), b.i64(unit / chunk));
  auto type = dyn_cast<KVType>(access.argument.getType());
  if (!type) {
    Value row = b.add(start, along(access.rows, 1));
    if (access.share.getApart())
      return b.add(row, along(head, 2));
    const rt::StorePart part = storedPartOf(access.argument, access.part);
    return b.add(row, b.wide(b.mul(head, b.i32(part.format.rowBytes(part.dim) / chunk))));
  }
  const rt::Store store = storeOf(type);
  if (!store.isPaged())
    return b.add(b.add(start, along(access.rows, 0)), along(head, 1));
  int64_t page = store.tokensOf(int64_t{1});
  Value inPage = b.add(along(b.rem(access.rows, page), 1), along(head, 2));
  return b.add(b.add(start, along(b.div(access.rows, page), 0)), inPage);
}

RowExpansion::Chunk RowExpansion::headChunkOf(const Access &access, const RowMemory &memory, int64_t load) {
  ShareAttr share = access.share;
  int64_t width = share.getWidth(), used = share.getLanes(), heads = share.getHeads();
  Value there = b.compare(arith::CmpIPredicate::sge, access.mark, b.i32(0));
  auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
  if (heads * width % used)
    both(b.less(numberOf(share, load), b.i32(heads * width)));
  if (used < lanes)
    both(b.less(lane, b.i32(used)));
  Value head = b.add(rowOf(share, load), b.mul(access.piece, b.i32(heads)));
  if (headsOf(access.argument) % heads)
    both(b.less(head, b.i32(headsOf(access.argument))));
  if (access.isMixed())
    return mixedChunkOf(there, lineOf(access, memory, head), columnOf(share, load));
  int64_t perElement = std::max<int64_t>(1, share.getChunk() / 4);
  Value index = b.add(lineOf(access, memory, head), b.wide(columnOf(share, load)));
  return {there, b.mul(index, b.i64(perElement))};
}

/// Metadata of the piece's heads lies in neighbouring lanes, each head's groups one after the other.
RowExpansion::Chunk RowExpansion::headMetaChunkOf(const Access &access, const RowMemory &memory,
                                                  int64_t load) {
  ShareAttr share = access.share;
  int64_t groups = share.getWidth(), heads = share.getHeads(), all = headsOf(access.argument);
  Value entry = b.add(lane, b.i32(load * lanes));
  Value head = b.add(b.div(entry, groups), b.mul(access.piece, b.i32(heads)));
  Value there = b.compare(arith::CmpIPredicate::sge, access.mark, b.i32(0));
  auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
  if (heads * groups % lanes)
    both(b.less(entry, b.i32(heads * groups)));
  if (all % heads)
    both(b.less(head, b.i32(all)));
  return {there, b.add(lineOf(access, memory, head), b.wide(b.rem(entry, groups)))};
}

SmallVector<Value> RowExpansion::readNumbers(Value tensor, Value first, int64_t count) {
  RowNumbers n(b);
  Type element = cast<RankedTensorType>(tensor.getType()).getElementType();
  StringRef name = argumentName(tensor);
  int64_t bytes = element.getIntOrFloatBitWidth() / 8, words = count * bytes / 4;
  if (words == 0 || count == 1) {
    Value read = b.read(b.buffer(name, b.getIntegerType(8 * bytes)), first, /*written=*/true);
    return {bytes == 4 ? n.number(read) : n.unpack({b.createOrFold<arith::ExtUIOp>(i32, read)}, element)[0]};
  }
  Value buffer = b.buffer(name, i32);
  Value index = b.createOrFold<arith::DivUIOp>(b.mul(first, b.i64(bytes)), b.i64(4));
  SmallVector<Value> read;
  for (int64_t done = 0; done < words; done += std::min<int64_t>(words, 4)) {
    int64_t together = std::min<int64_t>(words, 4);
    Value at = b.add(index, b.i64(done));
    if (together == 1)
      read.push_back(b.read(buffer, at, /*written=*/true));
    else
      llvm::append_range(read,
                         ReadAdjacentOp::create(b, SmallVector<Type>(together, i32), buffer, at).getValues());
  }
  return n.unpack(read, element);
}

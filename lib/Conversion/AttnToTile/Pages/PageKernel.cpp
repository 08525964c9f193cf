//===- PageKernel.cpp - A kernel over a table of pages --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PageKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

PageKernel::PageKernel(ManagePagesOp manage, func::FuncOp kernel, Role role)
    : ListKernel(manage, kernel), manage(manage), role(role) {}

void PageKernel::run() {
  declareParameters();
  if (role == Role::CountPages) {
    countPages();
  } else {
    readSums();
    exchangePages();
    if (role == Role::TakePages)
      publish();
  }
  finish(role, lanes);
}

void PageKernel::declareParameters() {
  declareTensors();
  b.buffer("sums", i32);
  pages = b.dimension("free.dim0");
  block = BlockIdOp::create(b, i32);
  blocks = BlockCountOp::create(b, i32);
  thread = b.add(b.mul(WarpIdOp::create(b, i32), b.i32(lanes)), lane);
  auto ceilDiv = [&](Value x, Value y) {
    return b.createOrFold<arith::DivUIOp>(b.add(x, b.sub(y, b.i32(1))), y);
  };
  Value share = b.mul(ceilDiv(ceilDiv(lists, blocks), b.i32(lanes)), b.i32(lanes));
  begin = b.min(b.mul(block, share), lists);
  end = b.min(b.add(begin, share), lists);
  constexpr int64_t scanned = 5; // values at once, at most
  exchange = AllocOp::create(b, ScratchType::get(b.getContext(), scanned * warps * 4), Value(), UnitAttr(),
                             IntegerAttr());
}

SmallVector<Value> PageKernel::walkTogether(Value begin, Value end, ValueRange carried, Body body) {
  return walk(begin, end, threads, carried,
              [&](Value i, ValueRange carried) { return body(b.add(i, thread), carried); });
}

ScanOp PageKernel::scan(ValueRange values) {
  SmallVector<Type> types(values.size(), i32);
  return ScanOp::create(b, types, types, values, exchange.getMemory(), warps);
}

void PageKernel::writeWords(StringRef buffer, Value index, ValueRange words) {
  WriteAdjacentOp::create(b, words, b.buffer(buffer, i32), b.wide(index));
}

/// Of tokens that are not negative; so many that adding to them overflows give a negative number.
Value PageKernel::pagesOf(Value tokens, int64_t ofPage) {
  return b.createOrFold<arith::ShRSIOp>(b.add(tokens, b.i32(ofPage - 1)), b.i32(llvm::Log2_64(ofPage)));
}

PageKernel::List PageKernel::listAt(Value i) {
  List list;
  list.exists = b.less(i, end);
  // A thread without a list reads the first thread's, which that one writes behind the next barrier.
  Value index = b.mul(b.select(list.exists, i, b.sub(i, thread)), b.i32(2)), zero = b.i32(0);
  SmallVector<Value> has = readWords("counts", b.wide(index), 2),
                     tokens = readWords("tokens", b.wide(index), 2);
  list.left = has[0];
  list.right = has[1];
  Value left = pagesOf(tokens[0], manage.getLeft()), right = pagesOf(tokens[1], manage.getRight());
  Value fits = both(both(atMost(zero, tokens[0]), atMost(zero, tokens[1])),
                    both(atMost(zero, left), atMost(zero, right)));
  list.fits = both(fits, both(atMost(left, columns), atMost(right, b.sub(columns, left))));
  Value changes = both(list.exists, list.fits);
  list.newLeft = b.select(changes, left, list.left);
  list.newRight = b.select(changes, right, list.right);
  return list;
}

PageKernel::Change PageKernel::changeOf(const List &list) {
  auto count = [&](Value old, Value now) {
    return b.max(role == Role::ReleasePages ? b.sub(old, now) : b.sub(now, old), b.i32(0));
  };
  Change change;
  change.lefts = count(list.left, list.newLeft);
  change.count = b.add(change.lefts, count(list.right, list.newRight));
  change.leftFirst = b.min(list.left, list.newLeft);
  change.shift = b.sub(b.sub(columns, b.max(list.right, list.newRight)), change.lefts);
  return change;
}

void PageKernel::countPages() {
  Value zero = b.i32(0), isFirst = equal(thread, zero);
  auto above = [&](Value x, Value y) { return b.max(b.sub(x, y), zero); };
  SmallVector<Value> mine = walkTogether(begin, end, {zero, zero, zero}, [&](Value i, ValueRange carried) {
    List list = listAt(i);
    Value gives = b.add(above(list.left, list.newLeft), above(list.right, list.newRight));
    Value asks = b.add(above(list.newLeft, list.left), above(list.newRight, list.right));
    Value unheld = b.select(list.fits, zero, asNumber(list.exists));
    return SmallVector<Value>{b.add(carried[0], gives), b.add(carried[1], asks), b.add(carried[2], unheld)};
  });
  ScanOp sums = scan(mine);
  b.doIf(isFirst, [&] {
    SmallVector<Value> words(sums.getTotals());
    words.push_back(zero);
    writeWords("sums", b.mul(block, b.i32(sumWords)), words);
  });
  b.doIf(both(isFirst, equal(block, zero)),
         [&] { writeWords("sums", b.mul(blocks, b.i32(sumWords)), readWords("span", b.wide(zero), 2)); });
}

void PageKernel::readSums() {
  Value zero = b.i32(0);
  SmallVector<Value> mine =
      walkTogether(zero, blocks, SmallVector<Value>(4, zero), [&](Value i, ValueRange carried) {
        Value exists = b.less(i, blocks), at = b.mul(b.min(i, b.sub(blocks, b.i32(1))), b.i32(sumWords));
        SmallVector<Value> words = readWords("sums", b.wide(at), sumWords);
        Value exchanged = words[role == Role::ReleasePages ? 0 : 1];
        Value found[] = {words[0], words[1], words[2], b.select(b.less(i, block), exchanged, zero)};
        SmallVector<Value> next;
        for (auto [sum, word] : llvm::zip_equal(carried, found))
          next.push_back(b.add(sum, b.select(exists, word, zero)));
        return next;
      });
  SmallVector<Value> totals(scan(mine).getTotals());
  SmallVector<Value> span = readWords("sums", b.wide(b.mul(blocks, b.i32(sumWords))), 2);
  firstFree = span[0];
  oldFree = span[1];
  given = totals[0];
  asked = totals[1];
  unheld = totals[2];
  inFront = totals[3];
  there = b.add(oldFree, given);
  isDone = both(equal(unheld, zero), atMost(asked, there));
}

void PageKernel::exchangePages() {
  Value zero = b.i32(0);
  Value changed = role == Role::ReleasePages ? given : b.add(given, asked);
  Value last = b.select(both(isDone, b.less(zero, changed)), end, begin);
  walkTogether(begin, last, {inFront}, [&](Value i, ValueRange carried) {
    List list = listAt(i);
    Change change = changeOf(list);
    ScanOp sums = scan(change.count);
    exchangeOfWarp(b.sub(i, lane), change, sums.getBefore()[0], carried[0]);
    if (role == Role::TakePages)
      b.doIf(list.exists, [&] { writeWords("counts", b.mul(i, b.i32(2)), {list.newLeft, list.newRight}); });
    return SmallVector<Value>{b.add(carried[0], sums.getTotals()[0])};
  });
}

void PageKernel::exchangeOfWarp(Value firstList, const Change &change, Value before, Value done) {
  Value firstOfWarp = fromLane(before, b.i32(0));
  Value start = b.sub(before, firstOfWarp), count = fromLane(b.add(start, change.count), b.i32(lanes - 1));
  // What releases puts behind the pages that were free; what takes begins with the first of those.
  Value ring = role == Role::ReleasePages ? wrap(b.add(firstFree, oldFree)) : firstFree;
  Value number = b.add(done, firstOfWarp);
  auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(lanes));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value mine = b.add(loop.getInductionVar(), lane), owner = b.i32(0);
  for (int64_t far = lanes / 2; far > 0; far /= 2) {
    Value next = b.add(owner, b.i32(far));
    owner = b.select(atMost(fromLane(start, next), mine), next, owner);
  }
  Value ofList = b.sub(mine, fromLane(start, owner));
  Value isLeft = b.less(ofList, fromLane(change.lefts, owner));
  Value leftFirst = fromLane(change.leftFirst, owner), shift = fromLane(change.shift, owner);
  Value column = b.add(ofList, b.select(isLeft, leftFirst, shift));
  Value entry = b.wide(b.add(b.mul(b.add(firstList, owner), columns), column));
  Value slot = b.wide(wrap(b.add(ring, b.add(number, mine))));
  b.doIf(b.less(mine, count), [&] {
    Value table = b.buffer("table", i32), free = b.buffer("free", i32);
    bool releases = role == Role::ReleasePages;
    Value page =
        tile::ReadOp::create(b, i32, releases ? table : free, releases ? entry : slot, b.getUnitAttr());
    tile::WriteOp::create(b, page, releases ? free : table, releases ? slot : entry);
    if (releases)
      tile::WriteOp::create(b, b.i32(-1), table, entry);
  });
}

void PageKernel::publish() {
  Value zero = b.i32(0), isOne = both(equal(block, zero), equal(thread, zero));
  b.doIf(isOne, [&] { writeWords("status", zero, {asNumber(isDone), asked, there, unheld}); });
  b.doIf(both(isOne, isDone),
         [&] { writeWords("span", zero, {wrap(b.add(firstFree, asked)), b.sub(there, asked)}); });
}

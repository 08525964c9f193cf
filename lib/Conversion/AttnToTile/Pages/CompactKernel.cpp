//===- CompactKernel.cpp - Moves that leave lists without holes -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompactKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

CompactKernel::CompactKernel(CompactTokensOp compact, func::FuncOp kernel)
    : ListKernel(compact, kernel), compact(compact), page(compact.getPageTokens()),
      end(compact.getRight() ? 1 : 0) {}

void CompactKernel::run() {
  b.buffer("keep", i32); // flags are read as words
  declareTensors();
  flags = b.dimension("keep.dim1");
  moves = b.dimension("from.dim1");
  walkLists(listsOfWarp, [&](Value first) {
    list = b.add(first, b.div(lane, lanesOfList));
    ofList = b.rem(lane, lanesOfList);
    compactLists();
  });
  finish(Role::CompactTokens, listsOfWarp, blocksAtOnce);
}

void CompactKernel::compactLists() {
  Value zero = b.i32(0), exists = b.less(list, lists);
  list = b.min(list, b.sub(lists, b.i32(1)));
  Value number = b.wide(b.add(b.mul(list, b.i32(2)), b.i32(end)));
  Value tokens = read("tokens", i32, number, true);
  Value held = b.mul(read("counts", i32, number), b.i32(page));
  Value isRight = both(atMost(zero, tokens), both(atMost(tokens, flags), atMost(tokens, held)));
  Value count = b.select(both(exists, isRight), tokens, zero);
  constexpr int64_t round = lanesOfList * flagsAtOnce;
  Value share = b.mul(b.div(b.add(count, b.i32(round - 1)), round), b.i32(flagsAtOnce));
  begin = b.mul(ofList, share);
  behind = b.min(b.add(begin, share), count);
  Value mine = countKept(behind);
  auto [upToMe, kept] = sumsOfList(mine);
  Value keptInFront = sumsOfList(countKept(b.min(behind, kept))).second;
  Value moved = b.sub(kept, keptInFront), isDone = both(isRight, atMost(moved, moves));
  Value listed = b.select(isDone, moved, zero);
  writeMoves(b.select(b.less(zero, listed), behind, begin), kept, keptInFront, b.sub(upToMe, mine));
  walk(b.select(exists, b.add(listed, ofList), moves), moves, lanesOfList, {}, [&](Value j, ValueRange) {
    for (StringRef slots : {"from", "to"})
      write(slots, elementOf(list, moves, j), b.i32(-1));
    return SmallVector<Value>{};
  });
  SyncOp::create(b, Scope::Warp); // all lanes have read the number that one writes
  Value isOne = both(exists, equal(ofList, zero));
  b.doIf(both(isOne, isDone), [&] { write("tokens", number, kept); });
  b.doIf(both(isOne, negate(isDone)),
         [&] { AddToOp::create(b, b.i32(1), b.buffer("status", i32), b.i64(0)); });
}

void CompactKernel::writeMoves(Value end, Value kept, Value keptInFront, Value before) {
  walk(begin, end, flagsAtOnce, {before}, [&](Value place, ValueRange carried) {
    Value stay = keptFrom(place, end), inFront = bitsBefore(place, kept);
    // In front of the list's new end those that go are listed, behind it those that stay.
    Value listed = both(b.createOrFold<arith::XOrIOp>(stay, inFront), bitsBefore(place, end));
    walk(b.i32(0), countBits(listed), 1, {listed}, [&](Value, ValueRange left) {
      Value bit = math::CountTrailingZerosOp::create(b, left[0]);
      Value next = both(left[0], b.sub(left[0], b.i32(1)));
      Value below = b.sub(b.createOrFold<arith::ShLIOp>(b.i32(1), bit), b.i32(1));
      Value keptBelow = b.add(carried[0], countBits(both(stay, below)));
      Value token = b.add(place, bit), slot = slotOf(list, token, page, this->end == 1);
      Value isHole = b.less(token, kept);
      b.doIf(isHole, [&] { write("to", elementOf(list, moves, b.sub(token, keptBelow)), slot); });
      b.doIf(negate(isHole),
             [&] { write("from", elementOf(list, moves, b.sub(keptBelow, keptInFront)), slot); });
      return SmallVector<Value>{next};
    });
    return SmallVector<Value>{b.add(carried[0], countBits(stay))};
  });
}

Value CompactKernel::countKept(Value end) {
  return walk(begin, end, flagsAtOnce, {b.i32(0)}, [&](Value place, ValueRange carried) {
    return SmallVector<Value>{b.add(carried[0], countBits(keptFrom(place, end)))};
  })[0];
}

Value CompactKernel::keptFrom(Value place, Value end) {
  constexpr int64_t ofWord = 4, low = 0x7f7f7f7f, high = 0x80808080;
  constexpr unsigned words = flagsAtOnce / ofWord;
  Value row = b.mul(b.wide(list), b.wide(b.div(flags, ofWord)));
  Value bits = b.i32(0);
  for (auto [i, word] : llvm::enumerate(readWords("keep", b.add(row, b.wide(b.div(place, ofWord))), words))) {
    // The highest bit of each byte that is not 0, and then the four bits side by side.
    Value set = both(either(b.add(both(word, b.i32(low)), b.i32(low)), word), b.i32(high));
    Value ones = b.createOrFold<arith::ShRUIOp>(set, b.i32(7));
    Value four = b.createOrFold<arith::ShRUIOp>(b.mul(ones, b.i32(0x01020408)), b.i32(24));
    bits = either(bits, b.createOrFold<arith::ShLIOp>(four, b.i32(i * ofWord)));
  }
  return both(bits, bitsBefore(place, end));
}

Value CompactKernel::bitsBefore(Value place, Value end) {
  Value count = b.max(b.min(b.sub(end, place), b.i32(flagsAtOnce)), b.i32(0));
  return b.sub(b.createOrFold<arith::ShLIOp>(b.i32(1), count), b.i32(1));
}

Value CompactKernel::countBits(Value bits) { return math::CtPopOp::create(b, bits); }

std::pair<Value, Value> CompactKernel::sumsOfList(Value value) {
  Value upToMe = value;
  for (int64_t distance = 1; distance < lanesOfList; distance *= 2) {
    Value other = fromLane(upToMe, b.max(b.sub(lane, b.i32(distance)), b.i32(0)));
    upToMe = b.add(upToMe, b.select(b.less(ofList, b.i32(distance)), b.i32(0), other));
  }
  return {upToMe, fromLane(upToMe, either(lane, b.i32(lanesOfList - 1)))};
}

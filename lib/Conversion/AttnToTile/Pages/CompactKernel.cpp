//===- CompactKernel.cpp - Moves that leave lists without holes -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompactKernel.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

CompactKernel::CompactKernel(CompactTokensOp compact, func::FuncOp kernel)
    : compact(compact), b(kernel), page(compact.getPageTokens()), end(compact.getRight() ? 1 : 0) {
  b.setInsertionPointToEnd(&kernel.front());
}

void CompactKernel::run() {
  Type i32 = b.getI32Type();
  for (const PageTensor &tensor : pageTensorsOf(compact))
    b.buffer(tensor.name, tensor.element(b.getContext()));
  Value lists = b.dimension("table.dim0");
  columns = b.dimension("table.dim1");
  flags = b.dimension("keep.dim1");
  moves = b.dimension("from.dim1");
  lane = LaneIdOp::create(b, i32);
  Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), WarpIdOp::create(b, i32));
  auto loop = scf::ForOp::create(b, first, lists, b.mul(BlockCountOp::create(b, i32), b.i32(warps)));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    list = loop.getInductionVar();
    compactList();
  }
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(4));
  setLaunch(b.kernel, {.role = ::attn::rt::KernelInfo::Role::CompactTokens, .rowsPerWarp = 1});
  b.finish(warps * lanes);
}

void CompactKernel::compactList() {
  Value zero = b.i32(0), number = b.add(b.mul(list, b.i32(2)), b.i32(end));
  Value tokens = read("tokens", b.wide(number), true);
  Value held = b.mul(read("counts", b.wide(number), false), b.i32(page));
  Value isRight = both(atMost(zero, tokens), both(atMost(tokens, flags), atMost(tokens, held)));
  Value count = b.select(isRight, tokens, zero);
  Value kept = countKept(count);
  Value moved = b.sub(kept, countKept(kept));
  Value isDone = both(isRight, atMost(moved, moves));
  Value listed = b.select(isDone, moved, zero);
  writeMoves(b.select(b.less(zero, listed), count, zero), kept);
  walk(listed, moves, {}, [&](Value j, ValueRange) {
    doIf(b.less(j, moves), [&] {
      for (StringRef slots : {"from", "to"})
        write(slots, indexOf(list, moves, j), b.i32(-1));
    });
    return SmallVector<Value>{};
  });
  SyncOp::create(b, Scope::Warp); // all lanes have read the number that one writes
  Value isFirst = b.compare(arith::CmpIPredicate::eq, lane, zero);
  doIf(both(isFirst, isDone), [&] { write("tokens", b.wide(number), kept); });
  doIf(both(isFirst, negate(isDone)),
       [&] { AddToOp::create(b, b.i32(1), b.buffer("status", b.getI32Type()), b.i64(0)); });
}

void CompactKernel::writeMoves(Value count, Value kept) {
  Value zero = b.i32(0);
  walk(zero, count, {zero, zero}, [&](Value i, ValueRange carried) {
    Value stay = stays(i, count), isInFront = b.less(i, kept);
    Value slot = slotOf(i, count);
    SmallVector<Value> next;
    for (auto [slots, isListed, before] : {std::tuple("from", both(stay, negate(isInFront)), carried[0]),
                                           std::tuple("to", both(negate(stay), isInFront), carried[1])}) {
      Value one = asNumber(isListed);
      Value rank = b.add(before, sumOfLanesBefore(one));
      doIf(isListed, [&] { write(slots, indexOf(list, moves, rank), slot); });
      next.push_back(fromLane(b.add(rank, one), b.i32(lanes - 1)));
    }
    return next;
  });
}

Value CompactKernel::countKept(Value end) {
  SmallVector<Value> mine = walk(b.i32(0), end, {b.i32(0)}, [&](Value i, ValueRange carried) {
    return SmallVector<Value>{b.add(carried[0], asNumber(stays(i, end)))};
  });
  return sumOfLanes(mine[0]);
}

Value CompactKernel::stays(Value i, Value end) {
  Value index = indexOf(list, flags, b.min(i, b.sub(end, b.i32(1))));
  Value flag = read("keep", index, false);
  Value isSet = b.compare(arith::CmpIPredicate::ne, flag, arith::ConstantIntOp::create(b, 0, 8));
  return both(b.less(i, end), isSet);
}

Value CompactKernel::slotOf(Value i, Value end) {
  Value place = b.min(i, b.sub(end, b.i32(1)));
  Value ofList = b.div(place, page);
  Value column = this->end ? b.sub(b.sub(columns, b.i32(1)), ofList) : ofList;
  Value held = read("table", indexOf(list, columns, column), false);
  return b.add(b.mul(held, b.i32(page)), b.rem(place, page));
}

SmallVector<Value> CompactKernel::walk(Value begin, Value end, ValueRange carried,
                                       function_ref<SmallVector<Value>(Value i, ValueRange carried)> body) {
  auto loop = scf::ForOp::create(b, begin, end, b.i32(lanes), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(b.add(loop.getInductionVar(), lane), loop.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

void CompactKernel::doIf(Value condition, function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  body();
}

Value CompactKernel::sumOfLanes(Value value) {
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2)
    value = b.add(value, fromLane(value, b.createOrFold<arith::XOrIOp>(lane, b.i32(distance))));
  return value;
}

Value CompactKernel::sumOfLanesBefore(Value value) {
  Value upToMe = value;
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    Value from = b.sub(lane, b.i32(distance)), isBefore = b.less(from, b.i32(0));
    Value other = fromLane(upToMe, b.select(isBefore, lane, from));
    upToMe = b.select(isBefore, upToMe, b.add(upToMe, other));
  }
  return b.sub(upToMe, value);
}

Value CompactKernel::read(StringRef buffer, Value index, bool written) {
  Type type = b.getIntegerType(buffer == "keep" ? 8 : 32);
  return tile::ReadOp::create(b, type, b.buffer(buffer, type), index, written ? b.getUnitAttr() : UnitAttr());
}

void CompactKernel::write(StringRef buffer, Value index, Value value) {
  tile::WriteOp::create(b, value, b.buffer(buffer, b.getI32Type()), index);
}

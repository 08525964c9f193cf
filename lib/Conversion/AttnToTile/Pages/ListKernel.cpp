//===- ListKernel.cpp - A kernel over lists of tokens in pages ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ListKernel.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

ListKernel::ListKernel(Operation *op, func::FuncOp kernel) : op(op), b(kernel), i32(b.getI32Type()) {
  b.setInsertionPointToEnd(&kernel.front());
}

void ListKernel::declareTensors() {
  for (const PageTensor &tensor : pageTensorsOf(op))
    b.buffer(tensor.name, tensor.element(b.getContext()));
  lists = b.dimension("table.dim0");
  columns = b.dimension("table.dim1");
  lane = LaneIdOp::create(b, i32);
}

void ListKernel::walkLists(int64_t ofWarp, function_ref<void(Value first)> body) {
  Value warp = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), WarpIdOp::create(b, i32));
  Value step = b.mul(BlockCountOp::create(b, i32), b.i32(warps * ofWarp));
  auto loop = scf::ForOp::create(b, b.mul(warp, b.i32(ofWarp)), lists, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

void ListKernel::finish(Role role, int ofWarp, int64_t blocks) {
  tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(blocks));
  setLaunch(b.kernel, {.role = role, .rowsPerWarp = ofWarp});
  b.finish(threads);
}

SmallVector<Value> ListKernel::walk(Value begin, Value end, int64_t step, ValueRange carried, Body body) {
  auto loop = scf::ForOp::create(b, begin, end, b.i32(step), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

Value ListKernel::read(StringRef buffer, Type type, Value index, bool written) {
  return b.read(b.buffer(buffer, type), index, written);
}

SmallVector<Value> ListKernel::readWords(StringRef buffer, Value index, unsigned count) {
  SmallVector<Type> types(count, i32);
  return SmallVector<Value>(ReadAdjacentOp::create(b, types, b.buffer(buffer, i32), index).getValues());
}

void ListKernel::write(StringRef buffer, Value index, Value value) {
  tile::WriteOp::create(b, value, b.buffer(buffer, value.getType()), index);
}

Value ListKernel::pageOf(Value list, Value place, int64_t pageTokens, bool isRight) {
  Value ofList = b.div(place, pageTokens);
  Value column = isRight ? b.sub(b.sub(columns, b.i32(1)), ofList) : ofList;
  return read("table", i32, elementOf(list, columns, column));
}

Value ListKernel::slotOf(Value list, Value place, int64_t pageTokens, bool isRight) {
  Value page = pageOf(list, place, pageTokens, isRight);
  return b.add(b.mul(page, b.i32(pageTokens)), b.rem(place, pageTokens));
}

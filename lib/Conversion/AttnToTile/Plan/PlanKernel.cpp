//===- PlanKernel.cpp - Threads, loops and memory of the planning kernel --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanKernel.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

PlanKernel::PlanKernel(Chain &chain, func::FuncOp kernel)
    : chain(chain), b(kernel), heads(chain.kvHeads()), group(chain.group()), sinks(chain.countsSinks()),
      follows(llvm::all_of(chain.updates, [](UpdateOp update) {
        return update.getVisibility().getKind() == VisibilityKind::Causal;
      })) {
  b.setInsertionPointToEnd(&kernel.front());
}

void PlanKernel::run() {
  declareParameters();
  layOutScratch();
  findUnits();
  findParts();
  decide();
  sortParts();
  findCuts();
  countCuts();
  writePositions();
  writeParts();
  writeTasks();
  writeStarts();
  writeMerges();
  writeWholeTasks();
  writeCutTasks();
  writeCutStarts();
  writeCutMerges();
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(1));
  setLaunch(
      b.kernel,
      {.role = ::attn::rt::KernelInfo::Role::Plan, .rowsPerWarp = 32, .launch = {.grid = PlanArray::Tasks}});
  b.finish(threads);
}

SmallVector<Value> PlanKernel::walk(Value count, ValueRange carried, Body body) {
  auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(threads), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = b.add(loop.getInductionVar(), thread);
  SmallVector<Value> next = body(i, b.less(i, count), loop.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

void PlanKernel::spread(Value count, function_ref<void(Value)> body) {
  // Short loops in a row begin with other warps each, so that one's loads do not wait for another's.
  Value turned = b.add(first, b.i32(spreads++ % 6 * (threads / 32 / 6 * 32)));
  Value begin = b.select(b.less(turned, step), turned, b.sub(turned, step));
  auto loop = scf::ForOp::create(b, begin, count, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

void PlanKernel::doIf(Value condition, function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  body();
}

ScanOp PlanKernel::scan(ValueRange values) {
  SmallVector<Type> types(values.size(), b.getI32Type());
  return ScanOp::create(b, types, types, values, exchange.getMemory(), warps);
}

Value PlanKernel::quotient(Value x, PlanDim divisor) {
  auto next = [&](int by) { return dim(static_cast<PlanDim>(static_cast<int>(divisor) + by)); };
  Type i64 = b.getI64Type();
  Value product = b.mul(b.createOrFold<arith::ExtUIOp>(i64, x), b.createOrFold<arith::ExtUIOp>(i64, next(1)));
  Value shift = b.createOrFold<arith::ExtUIOp>(i64, next(2));
  return b.createOrFold<arith::TruncIOp>(b.getI32Type(), b.createOrFold<arith::ShRUIOp>(product, shift));
}

Value PlanKernel::get(ScratchArray array, Value index) {
  return tile::ReadOp::create(b, b.getI32Type(), scratchMemory, b.wide(b.add(array.first, index)),
                              b.getUnitAttr());
}

void PlanKernel::put(ScratchArray array, Value index, Value value) {
  tile::WriteOp::create(b, value, scratchMemory, b.wide(b.add(array.first, index)));
}

Value PlanKernel::search(ScratchArray array, Value count, Value x) {
  Value steps = b.i32(0);
  for (int64_t bit = 0; bit < 24; ++bit)
    steps = b.add(steps, this->count(isAbove(count, b.i32((int64_t{1} << bit) - 1))));
  auto loop = scf::ForOp::create(b, b.i32(0), steps, b.i32(1), ValueRange{b.i32(0)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value far = b.sub(b.sub(steps, b.i32(1)), loop.getInductionVar());
  Value low = loop.getRegionIterArg(0);
  Value there = b.add(low, b.createOrFold<arith::ShLIOp>(b.i32(1), far));
  Value value = get(array, b.min(there, b.sub(count, b.i32(1))));
  Value goes = both(b.less(there, count), atMost(value, x));
  scf::YieldOp::create(b, b.select(goes, there, low));
  return loop.getResult(0);
}

ScratchArray PlanKernel::allocate(Value size) {
  ScratchArray array{b.add(region, words)};
  words = b.add(words, size);
  return array;
}

void PlanKernel::writeWords(PlanArray array, Value word, ArrayRef<Value> words) {
  Value buffer = planArray(b, array);
  for (size_t i = 0; i < words.size(); i += 4)
    WriteAdjacentOp::create(b, words.slice(i, std::min<size_t>(4, words.size() - i)), buffer,
                            b.wide(b.add(word, b.i32(i))));
}

void PlanKernel::write(PlanArray array, Value index, Value value) {
  tile::WriteOp::create(b, value, planArray(b, array), b.wide(index));
}

Value PlanKernel::dim(PlanDim which) {
  std::string_view name = ::attn::rt::planDimName(which);
  return b.dimension(StringRef(name.data(), name.size()));
}

//===- PlanKernel.cpp - Threads, loops and memory of the planning kernel --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanKernel.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

PlanKernel::PlanKernel(Chain &chain, func::FuncOp kernel)
    : chain(chain), b(kernel), heads(chain.kvHeads()), group(chain.group()), sinks(chain.countsSinks()),
      follows(llvm::all_of(
          chain.updates,
          [](UpdateOp update) { return update.getVisibility().getKind() == VisibilityKind::Causal; })),
      stores(storesScoresAttr.isOn(chain.function)) {
  bool byHead = false;
  for (unsigned o = 0; o < chain.updates.size(); ++o)
    byHead |= isRagged(o);
  lists = byHead ? heads : 1, dealt = byHead ? 1 : heads;
  b.setInsertionPointToEnd(&kernel.front());
}

void PlanKernel::run() {
  declareParameters();
  layOutScratch();
  findUnits();
  checkPages();
  findParts();
  decide();
  sortParts();
  findCuts();
  countCuts();
  writePositions();
  if (stores)
    writeScoreTasks();
  writeParts();
  writeTasks();
  writeStarts();
  writeMerges();
  writeWholeTasks();
  writeCutTasks();
  writeCutStarts();
  writeCutMerges();
  tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(1));
  // A quarter of a warp's lanes: what few tasks are written by is as many blocks as there may be.
  setLaunch(
      b.kernel,
      {.role = ::attn::rt::KernelInfo::Role::Plan, .rowsPerWarp = 8, .launch = {.grid = PlanArray::Tasks}});
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

SmallVector<Value> PlanKernel::ifThere(Value exists, size_t values, function_ref<SmallVector<Value>()> body) {
  SmallVector<Type> types(values, b.getI32Type());
  auto branch = scf::IfOp::create(b, types, exists, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, body());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, SmallVector<Value>(values, b.i32(0)));
  return SmallVector<Value>(branch.getResults());
}

void PlanKernel::spread(Value count, function_ref<void(Value)> body) {
  // Each loop begins with another warp, so that one's loads do not wait for another's. Neighbours are seven
  // warps apart: the tasks of a small plan take four of each block.
  Value turned = b.add(first, b.mul(b.i32(spreads++ * 7 % warps), b.div(step, warps)));
  Value begin = b.select(b.less(turned, step), turned, b.sub(turned, step));
  auto loop = scf::ForOp::create(b, begin, count, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
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

/// By quarters: three loads that do not wait for each other in place of two that do.
Value PlanKernel::search(ScratchArray array, Value count, Value x) {
  Value zero = b.i32(0), one = b.i32(1), last = b.sub(count, one);
  Value rest = b.max(last, zero), rounds = zero; // how many digits the last i has, each of two bits
  for (int64_t half : {8, 4, 2, 1}) {
    Value above = b.createOrFold<arith::ShRUIOp>(rest, b.i32(2 * half)), isLong = isAbove(above, zero);
    rounds = b.add(rounds, zeroUnless(isLong, b.i32(half)));
    rest = b.select(isLong, above, rest);
  }
  rounds = b.add(rounds, this->count(isAbove(rest, zero)));
  auto loop = scf::ForOp::create(b, zero, rounds, one, ValueRange{zero});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value digit = b.mul(b.sub(b.sub(rounds, one), loop.getInductionVar()), b.i32(2));
  Value quarter = b.createOrFold<arith::ShLIOp>(one, digit), low = loop.getRegionIterArg(0), next = low;
  SmallVector<Value> probes, values;
  for (int64_t i = 1; i < 4; ++i)
    probes.push_back(b.add(low, b.mul(quarter, b.i32(i))));
  for (Value there : probes)
    values.push_back(get(array, b.min(there, last)));
  for (auto [there, value] : llvm::zip_equal(probes, values))
    next = b.select(both(b.less(there, count), atMost(value, x)), there, next);
  scf::YieldOp::create(b, next);
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

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
  findWorkTiles();
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
  // Rows per warp are a quarter of its lanes: a plan of few tasks is written by as many blocks as possible.
  setLaunch(
      b.kernel,
      {.role = ::attn::rt::KernelInfo::Role::Plan, .rowsPerWarp = 8, .launch = {.grid = PlanArray::Tasks}});
  b.finish(threads);
}

PlanKernel::Numbers PlanKernel::walk(Number count, ArrayRef<Number> carried, Body body) {
  auto loop = scf::ForOp::create(b, b.i32(0), count, b.i32(threads), valuesOf(carried));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Number i = number(loop.getInductionVar()) + thread;
  Numbers next = body(i, i < count, numbersOf(loop.getRegionIterArgs()));
  if (!carried.empty())
    scf::YieldOp::create(b, valuesOf(next));
  return numbersOf(loop.getResults());
}

PlanKernel::Numbers PlanKernel::ifThere(Number exists, size_t values, function_ref<Numbers()> body) {
  SmallVector<Type> types(values, b.getI32Type());
  auto branch = scf::IfOp::create(b, types, exists, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, valuesOf(body()));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, SmallVector<Value>(values, b.i32(0)));
  return numbersOf(branch.getResults());
}

void PlanKernel::spread(Number count, function_ref<void(Number)> body) {
  // Each loop begins with another warp, so that the loads of one loop do not wait for those of another. The
  // warps of neighbouring loops are seven apart: the tasks of a small plan take four warps of each block.
  Number turned = first + number(spreads++ * 7 % warps) * (step / warps);
  Number begin = select(turned < step, turned, turned - step);
  auto loop = scf::ForOp::create(b, begin, count, step);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(number(loop.getInductionVar()));
}

void PlanKernel::forEach(Number begin, Number end, function_ref<void(Number)> body) {
  auto loop = scf::ForOp::create(b, begin, end, b.i32(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(number(loop.getInductionVar()));
}

PlanKernel::Sums PlanKernel::scan(ArrayRef<Number> values) {
  SmallVector<Type> types(values.size(), b.getI32Type());
  auto sums = ScanOp::create(b, types, types, valuesOf(values), exchange.getMemory(), warps);
  return {numbersOf(sums.getBefore()), numbersOf(sums.getTotals())};
}

Number PlanKernel::get(ScratchArray array, Number index) {
  return number(
      tile::ReadOp::create(b, b.getI32Type(), scratchMemory, b.wide(array.first + index), b.getUnitAttr()));
}

void PlanKernel::put(ScratchArray array, Number index, Number value) {
  tile::WriteOp::create(b, value, scratchMemory, b.wide(array.first + index));
}

/// Searches by quarters: three independent loads instead of two dependent ones.
Number PlanKernel::search(ScratchArray array, Number count, Number x) {
  Number last = count - 1, rest = max(last, 0);
  Number rounds = number(0); // the number of digits, of two bits each, of the last i
  for (int64_t half : {8, 4, 2, 1}) {
    Number above = shiftedRight(rest, number(2 * half)), isLong = above > 0;
    rounds = rounds + select(isLong, half, 0);
    rest = select(isLong, above, rest);
  }
  rounds = rounds + this->count(rest > 0);
  auto loop = scf::ForOp::create(b, b.i32(0), rounds, b.i32(1), ValueRange{b.i32(0)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Number digit = (rounds - 1 - number(loop.getInductionVar())) * 2;
  Number quarter = number(b.createOrFold<arith::ShLIOp>(b.i32(1), digit));
  Number low = number(loop.getRegionIterArg(0)), next = low;
  Numbers probes, values;
  for (int64_t i = 1; i < 4; ++i)
    probes.push_back(low + quarter * i);
  for (Number there : probes)
    values.push_back(get(array, min(there, last)));
  for (auto [there, value] : llvm::zip_equal(probes, values))
    next = select(there < count && value <= x, there, next);
  scf::YieldOp::create(b, Value(next));
  return number(loop.getResult(0));
}

void PlanKernel::writeWords(PlanArray array, Number word, ArrayRef<Value> words) {
  Value buffer = planArray(b, array);
  for (size_t i = 0; i < words.size(); i += 4)
    WriteAdjacentOp::create(b, words.slice(i, std::min<size_t>(4, words.size() - i)), buffer,
                            b.wide(word + i));
}

void PlanKernel::write(PlanArray array, Number index, Number value) {
  tile::WriteOp::create(b, value, planArray(b, array), b.wide(index));
}

Number PlanKernel::dim(PlanDim which) {
  std::string_view name = ::attn::rt::planDimName(which);
  return number(b.dimension(StringRef(name.data(), name.size())));
}

PlanKernel::Numbers PlanKernel::numbersOf(ValueRange values) {
  return llvm::map_to_vector(values, [&](Value value) { return number(value); });
}

PlanKernel::Numbers PlanKernel::sumsOf(ArrayRef<Number> x, ArrayRef<Number> y) {
  Numbers sums;
  for (auto [left, right] : llvm::zip_equal(x, y))
    sums.push_back(left + right);
  return sums;
}

NumberRange PlanKernel::rowsOfSequence(Number sequence) {
  Value starts = table("q_start");
  Number begin = read(starts, sequence);
  return {begin, read(starts, sequence + 1)};
}

//===- UnrollLoops.cpp - Several iterations at once, reads first ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   for i = 0 to n carrying c:       for i = 0 to n - n % N, step N carrying c:
//     a(i)                    =>       a(i), a(i+1), ..., a(i+N-1)
//     x = read(i)                      x0 = read(i), ..., read(i+N-1)
//     c' = f(c, x)                     c' = f(... f(f(c, x0), x1) ..., xN-1)
//                                    the same with N/2, N/4, ..., 1 for the rest
//
// A read takes a memory latency, so all reads of a round are in flight before the first is used: ptxas keeps
// the order of loads and their neighbours. The body has three parts: operations before its first read, its
// reads and their inputs, and the rest.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::tile {
#define GEN_PASS_DEF_UNROLLLOOPSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The body's operations by part.
using Parts = std::array<SmallVector<Operation *>, 3>;

struct UnrollLoops : tile::impl::UnrollLoopsPassBase<UnrollLoops> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found;
    getOperation().walk([&](scf::ForOp loop) {
      if (tile::unrollAttr.isOn(loop))
        found.push_back(loop);
    });
    for (scf::ForOp loop : found) {
      if (failed(unroll(loop)))
        return signalPassFailure();
      ++unrolled;
    }
  }

  static LogicalResult unroll(scf::ForOp loop) {
    if (getConstantIntValue(loop.getLowerBound()) != 0 || getConstantIntValue(loop.getStep()) != 1)
      return loop.emitOpError("expected a loop with tile.unroll to count from 0 in steps of 1");
    FailureOr<Parts> parts = split(loop);
    if (failed(parts))
      return failure();
    int64_t step = tile::unrollAttr.get(loop).getInt();
    ImplicitLocOpBuilder b(loop.getLoc(), loop);
    auto i32 = [&](int64_t value) -> Value { return arith::ConstantIntOp::create(b, value, 32); };
    Value from = loop.getLowerBound(), count = loop.getUpperBound();
    SmallVector<Value> carried(loop.getInitArgs());
    for (; step > 0; step /= 2) {
      Value rest = b.createOrFold<arith::RemUIOp>(count, i32(step));
      Value to = step == 1 ? count : b.createOrFold<arith::SubIOp>(count, rest);
      auto round = scf::ForOp::create(b, from, to, i32(step), carried);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(round.getBody());
      scf::YieldOp::create(b, iterate(b, loop, *parts, round, step));
      carried.assign(round->result_begin(), round->result_end());
      from = to;
    }
    loop.replaceAllUsesWith(carried);
    loop.erase();
    return success();
  }

  static FailureOr<Parts> split(scf::ForOp loop) {
    Parts parts;
    auto reads = [](Operation &op) { return hasEffect<MemoryEffects::Read>(&op); };
    Operation *last = nullptr;
    for (Operation &op : loop.getBody()->without_terminator()) {
      if (!isMemoryEffectFree(&op) && !hasSingleEffect<MemoryEffects::Read>(&op))
        return loop.emitOpError("expected nothing but reads and pure operations in a loop with tile.unroll");
      if (reads(op))
        last = &op;
    }
    unsigned part = last ? 0 : 2;
    for (Operation &op : loop.getBody()->without_terminator()) {
      if (part == 0 && reads(op))
        part = 1;
      parts[part].push_back(&op);
      if (&op == last)
        part = 2;
    }
    return parts;
  }

  /// Writes `step` iterations of the loop from `round`'s on; returns their results.
  static SmallVector<Value> iterate(ImplicitLocOpBuilder &b, scf::ForOp loop, const Parts &parts,
                                    scf::ForOp round, int64_t step) {
    SmallVector<IRMapping> mappings(step);
    for (auto [i, mapping] : llvm::enumerate(mappings)) {
      Value offset = arith::ConstantIntOp::create(b, i, 32);
      mapping.map(loop.getInductionVar(), b.createOrFold<arith::AddIOp>(round.getInductionVar(), offset));
      for (Operation *op : parts[0])
        b.clone(*op, mapping);
    }
    for (IRMapping &mapping : mappings)
      for (Operation *op : parts[1])
        b.clone(*op, mapping);
    SmallVector<Value> carried(round.getRegionIterArgs());
    for (IRMapping &mapping : mappings) {
      mapping.map(loop.getRegionIterArgs(), carried);
      for (Operation *op : parts[2])
        b.clone(*op, mapping);
      for (auto [value, yielded] : llvm::zip(carried, loop.getBody()->getTerminator()->getOperands()))
        value = mapping.lookupOrDefault(yielded);
    }
    return carried;
  }
};

} // namespace

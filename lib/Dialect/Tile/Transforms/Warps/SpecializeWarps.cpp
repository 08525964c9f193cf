//===- SpecializeWarps.cpp - Producer warps and consumer warps ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   earlier operations                 earlier operations
//   loop:                              if this warp is a producer:
//     a = address of tile t              if it is warp 0:
//     k = produce keys warp 0 {a} =>       loop: a = address of tile t; produce keys {a}
//     v = produce values warp 1 {a}      if it is warp 1:
//     c = f(c, k, v)                       loop: a = address of tile t; produce values {a}
//     delegate warp 2 { g(t) }           if it is warp 2:
//   use c                                  loop: g(t)
//                                      else:
//                                        loop: k = consume keys; v = consume values; c = f(c, k, v)
//                                        use c
//
// Both sides count the tiles of a ring. So a `tile.produce` may only be in loops, whose trip counts are equal
// in all warps, and the same warps produce a ring everywhere.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/Transforms/Slice.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <map>

#define DEBUG_TYPE "tile-specialize-warps"

namespace mlir::tile {
#define GEN_PASS_DEF_SPECIALIZEWARPSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The roles of a kernel's warps.
class Roles {
public:
  Roles(func::FuncOp kernel, ScheduleAttr schedule, ArrayRef<ProduceOp> produces,
        ArrayRef<DelegateOp> delegates)
      : kernel(kernel), schedule(schedule), produces(produces), delegates(delegates),
        b(kernel.getLoc(), kernel.getContext()) {}

  LogicalResult verify();
  LogicalResult write();

private:
  /// Verifies that all warps agree on how often they reach an operation of producers.
  LogicalResult verifyPlace(Operation *op, std::optional<int64_t> number);
  LogicalResult verifyProduce(ProduceOp produce);
  LogicalResult verifyCopies(ProduceOp produce);
  /// Returns the number of this warp, which the kernel may compute already.
  Value warpId();
  Value isWarp(arith::CmpIPredicate predicate, int64_t number) {
    return arith::CmpIOp::create(b, predicate, warp, arith::ConstantIntOp::create(b, number, 32));
  }
  LogicalResult produce();
  LogicalResult produceTogether();
  /// Writes the part of one producer warp.
  void produceAlone(OpBuilder &builder, int64_t number, function_ref<void(OpBuilder &)> body);
  LogicalResult verifySlice(const Slice &slice);
  void consume();

  func::FuncOp kernel;
  ScheduleAttr schedule;
  ArrayRef<ProduceOp> produces;
  ArrayRef<DelegateOp> delegates;
  ImplicitLocOpBuilder b;
  Operation *first = nullptr, *last = nullptr; ///< range of the kernel's operations that are split into roles
  Value warp;
  std::map<int64_t, Slice> slices; ///< operations of a producer warp, by its number: a warp waits only for
                                   ///< its own rings
};

LogicalResult Roles::verify() {
  if (!schedule.getProducers() || !schedule.getProducerRegisters() || !schedule.getConsumerRegisters())
    return kernel.emitError("expected a schedule with producers, producer_registers and "
                            "consumer_registers: the kernel has a tile.produce");
  if (kernel.getNumResults() != 0 || !kernel.getBody().hasOneBlock())
    return kernel.emitError(
        "expected a kernel of one block that returns nothing: its warps split into roles");
  for (DelegateOp delegate : delegates)
    if (failed(verifyPlace(delegate, delegate.getWarp())))
      return failure();
  return success(
      llvm::all_of(produces, [&](ProduceOp produce) { return succeeded(verifyProduce(produce)); }));
}

LogicalResult Roles::verifyPlace(Operation *op, std::optional<int64_t> number) {
  Operation *around = op->getParentOp();
  while (isa<scf::ForOp>(around))
    around = around->getParentOp();
  if (around != kernel)
    return op->emitOpError("expected only scf.for around a ")
           << op->getName() << ", got " << around->getName()
           << ": all warps must agree on the number of tiles";
  if (number && (*number < 0 || *number >= schedule.getProducerWarps()))
    return op->emitOpError("expected a warp from 0 to ")
           << schedule.getProducerWarps() - 1 << ", one of the schedule's producers, got " << *number;
  return success();
}

LogicalResult Roles::verifyProduce(ProduceOp produce) {
  std::optional<int64_t> number = produce.getWarp();
  if (failed(verifyPlace(produce, number)))
    return failure();
  for (ProduceOp other : produces)
    if (other.getRing() == produce.getRing() && other.getWarp() != number) {
      InFlightDiagnostic error =
          produce.emitOpError("expected the same warps to produce all tiles of a ring");
      error.attachNote(other.getLoc()) << "another producer";
      return error;
    }
  return verifyCopies(produce);
}

LogicalResult Roles::verifyCopies(ProduceOp produce) {
  WalkResult copies = produce.getCopies().walk([&](Operation *op) -> WalkResult {
    auto gather = dyn_cast<GatherOp>(op);
    Scope scope = produce.getWarp() ? Scope::Warp : Scope::Producers;
    if (gather && gather.getScope() != scope)
      return gather.emitOpError("expected scope ")
             << stringifyScope(scope) << ", that of the enclosing tile.produce, got "
             << stringifyScope(gather.getScope());
    if (isa<TmaLoadOp>(op) && !produce.getWarp())
      return op->emitOpError("needs `warp` on the enclosing tile.produce: a TMA load is issued by one warp");
    return WalkResult::advance();
  });
  return failure(copies.wasInterrupted());
}

Value Roles::warpId() {
  for (auto id : kernel.front().getOps<WarpIdOp>())
    if (id->isBeforeInBlock(first))
      return id;
  return WarpIdOp::create(b, b.getI32Type());
}

LogicalResult Roles::write() {
  Block &body = kernel.front();
  first = body.findAncestorOpInBlock(*produces.front());
  last = body.getTerminator()->getPrevNode();
  b.setInsertionPoint(first);
  b.setLoc(first->getLoc());
  warp = warpId();
  auto roles = scf::IfOp::create(b, isWarp(arith::CmpIPredicate::slt, schedule.getProducerWarps()),
                                 /*withElseRegion=*/true);
  b.setInsertionPoint(roles.thenYield());
  SetRegistersOp::create(b, *schedule.getProducerRegisters(), /*increase=*/false);
  if (failed(produce()))
    return failure();
  b.setInsertionPoint(roles.thenYield());
  bool gathers = llvm::any_of(produces, [](ProduceOp produce) {
    return produce.getCopies().walk([](GatherOp) { return WalkResult::interrupt(); }).wasInterrupted();
  });
  if (gathers) { // no thread exits with copies in flight
    CommitOp::create(b);
    WaitOp::create(b, 0);
  }
  b.setInsertionPoint(roles.elseYield());
  SetRegistersOp::create(b, *schedule.getConsumerRegisters(), /*increase=*/true);
  consume();
  while (last != roles) {
    Operation *before = last->getPrevNode();
    last->erase();
    last = before;
  }
  return success();
}

LogicalResult Roles::produce() {
  bool all = false;
  for (ProduceOp produce : produces) {
    if (std::optional<int64_t> number = produce.getWarp())
      slices.try_emplace(*number, first, last).first->second.add(produce.getOperation());
    else
      all = true;
  }
  for (DelegateOp delegate : delegates)
    slices.try_emplace(delegate.getWarp(), first, last).first->second.add(delegate.getOperation());
  for (auto &[number, slice] : slices)
    if (failed(verifySlice(slice)))
      return failure();
  if (all)
    return produceTogether();
  for (auto &[number, slice] : slices) {
    IRMapping mapping;
    produceAlone(b, number, [&](OpBuilder &inner) { slice.cloneTo(inner, mapping); });
  }
  return success();
}

void Roles::produceAlone(OpBuilder &builder, int64_t number, function_ref<void(OpBuilder &)> body) {
  Value isIt = arith::CmpIOp::create(builder, b.getLoc(), arith::CmpIPredicate::eq, warp,
                                     arith::ConstantIntOp::create(builder, b.getLoc(), number, 32));
  auto branch = scf::IfOp::create(builder, b.getLoc(), isIt);
  OpBuilder inner(branch.thenYield());
  body(inner);
  branch.walk([](DelegateOp delegate) {
    delegate->getBlock()->getOperations().splice(delegate->getIterator(),
                                                 delegate.getBody().front().getOperations());
    delegate.erase();
  });
}

/// Writes produces that all producers share: they walk the enclosing loops together. Producers split where a
/// loop has no shared produce, and where one has a delegate: there each writes its own.
LogicalResult Roles::produceTogether() {
  Slice together(first, last);
  for (ProduceOp produce : produces)
    together.add(produce.getOperation());
  for (DelegateOp delegate : delegates)
    together.add(delegate.getOperation());
  if (failed(verifySlice(together)))
    return failure();
  auto part = [&](OpBuilder &builder, Operation &op, IRMapping &mapping) {
    auto isOfAll = [](ProduceOp produce) {
      return produce.getWarp() ? WalkResult::advance() : WalkResult::interrupt();
    };
    bool parts = isa<scf::ForOp>(op) &&
                 llvm::none_of(op.getResults(), [&](Value result) { return together.needs(result); }) &&
                 !op.walk(isOfAll).wasInterrupted();
    if (!parts && !isa<DelegateOp>(op))
      return false;
    for (auto &[number, slice] : slices)
      if (llvm::is_contained(slice.getOperations(), &op))
        produceAlone(builder, number, [&](OpBuilder &inner) {
          IRMapping own = mapping;
          slice.clone(inner, op, own);
        });
    return true;
  };
  IRMapping mapping;
  together.cloneTo(b, mapping, part);
  return success();
}

/// Verifies a slice. Both roles may run an operation only if its results are its only effect, and MMAs are in
/// consumers alone.
LogicalResult Roles::verifySlice(const Slice &slice) {
  for (ProduceOp produce : produces)
    if (slice.needs(produce.getTile()))
      return produce.emitOpError("has a tile that a tile.produce depends on: producers cannot use tiles");
  for (Operation *op : slice.getOperations())
    if (!isa<scf::ForOp, scf::IfOp, ProduceOp, DelegateOp>(op) && !wouldOpBeTriviallyDead(op))
      return op->emitOpError(
          "may have effects, and a producer warp needs it: both producers and consumers would do it");
  return success();
}

void Roles::consume() {
  for (ProduceOp produce : produces) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(produce);
    Value tile = ConsumeOp::create(b, produce.getLoc(), produce.getTile().getType(), produce.getRing());
    if (first == produce)
      first = tile.getDefiningOp();
    if (last == produce)
      last = tile.getDefiningOp();
    produce.getTile().replaceAllUsesWith(tile);
    produce.erase();
  }
  for (DelegateOp delegate : delegates) {
    if (last == delegate)
      last = delegate->getPrevNode();
    delegate.erase();
  }
  Slice slice(first, last);
  slice.addEffects();
  IRMapping mapping;
  slice.cloneTo(b, mapping);
}

struct SpecializeWarps : tile::impl::SpecializeWarpsPassBase<SpecializeWarps> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = tile::scheduleAttr.get(kernel);
      if (!schedule || schedule.getKind() != ScheduleKind::Wgmma)
        continue;
      SmallVector<ProduceOp> produces;
      SmallVector<DelegateOp> delegates;
      kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
        if (auto produce = dyn_cast<ProduceOp>(op))
          produces.push_back(produce);
        else if (auto delegate = dyn_cast<DelegateOp>(op))
          delegates.push_back(delegate);
      });
      if (produces.empty()) {
        decline(DEBUG_TYPE, kernel, "it has no tile.produce");
        continue;
      }
      llvm::SmallDenseSet<Value> filled;
      for (ProduceOp produce : produces)
        filled.insert(produce.getRing());
      const size_t count = produces.size(); // they are erased
      Roles roles(kernel, schedule, produces, delegates);
      if (failed(roles.verify()) || failed(roles.write()))
        return signalPassFailure();
      rings += filled.size();
      taken += count;
    }
  }
};

} // namespace

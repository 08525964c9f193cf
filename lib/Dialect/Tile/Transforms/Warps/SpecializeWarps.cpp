//===- SpecializeWarps.cpp - Warps that fill, and warps that use ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   what stands in front               what stands in front
//   loop:                              if this warp is a producer:
//     a = where tile t lies              if it is warp 0:
//     k = fill keys warp 0 {a}    =>       loop: a = where tile t lies; fill keys {a}
//     v = fill values warp 1 {a}         if it is warp 1:
//     c = f(c, k, v)                       loop: a = where tile t lies; fill values {a}
//   use c                              else:
//                                        loop: k = take keys; v = take values; c = f(c, k, v)
//                                        use c
//
// Both sides count the tiles of a ring. So fills stand in loops alone, whose
// trips all warps agree on, and a ring is filled by the same warps everywhere.
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
  Roles(func::FuncOp kernel, ScheduleAttr schedule, ArrayRef<FillOp> fills)
      : kernel(kernel), schedule(schedule), fills(fills), b(kernel.getLoc(), kernel.getContext()) {}

  LogicalResult verify();
  LogicalResult write();

private:
  LogicalResult verifyFill(FillOp fill);
  LogicalResult verifyCopies(FillOp fill);
  /// The number of this warp, which the kernel may know already.
  Value warpId();
  Value isWarp(arith::CmpIPredicate predicate, int64_t number) {
    return arith::CmpIOp::create(b, predicate, warp, arith::ConstantIntOp::create(b, number, 32));
  }
  LogicalResult produce();
  LogicalResult produceTogether();
  /// Writes what one producer warp does alone.
  void produceAlone(OpBuilder &builder, int64_t number, function_ref<void(OpBuilder &)> body);
  LogicalResult verifySlice(const Slice &slice);
  void consume();

  func::FuncOp kernel;
  ScheduleAttr schedule;
  ArrayRef<FillOp> fills;
  ImplicitLocOpBuilder b;
  Operation *first = nullptr, *last = nullptr; ///< of the kernel's operations that roles share out
  Value warp;
  std::map<int64_t, Slice> slices; ///< what the fills of a producer warp need, by its number: warps wait for
                                   ///< no other ring than their own
};

LogicalResult Roles::verify() {
  if (!schedule.getProducers() || !schedule.getProducerRegisters() || !schedule.getConsumerRegisters())
    return kernel.emitError("expected a schedule that says producers, producer_registers and "
                            "consumer_registers: the kernel fills rings");
  if (kernel.getNumResults() != 0 || !kernel.getBody().hasOneBlock())
    return kernel.emitError("expected a kernel of one block that returns nothing: its warps part");
  return success(llvm::all_of(fills, [&](FillOp fill) { return succeeded(verifyFill(fill)); }));
}

LogicalResult Roles::verifyFill(FillOp fill) {
  Operation *around = fill->getParentOp();
  while (isa<scf::ForOp>(around))
    around = around->getParentOp();
  if (around != kernel)
    return fill.emitOpError("expected nothing but scf.for around a fill, got ")
           << around->getName() << ": all warps must know how often a ring is filled";
  std::optional<int64_t> number = fill.getWarp();
  if (number && (*number < 0 || *number >= schedule.getProducerWarps()))
    return fill.emitOpError("expected a warp from 0 to ")
           << schedule.getProducerWarps() - 1 << ", one of the schedule's producers, got " << *number;
  for (FillOp other : fills)
    if (other.getRing() == fill.getRing() && other.getWarp() != number) {
      InFlightDiagnostic error = fill.emitOpError("expected the same warps to make all fills of a ring");
      error.attachNote(other.getLoc()) << "another fill";
      return error;
    }
  return verifyCopies(fill);
}

LogicalResult Roles::verifyCopies(FillOp fill) {
  WalkResult copies = fill.getCopies().walk([&](Operation *op) -> WalkResult {
    auto gather = dyn_cast<GatherOp>(op);
    Scope scope = fill.getWarp() ? Scope::Warp : Scope::Producers;
    if (gather && gather.getScope() != scope)
      return gather.emitOpError("expected scope ")
             << stringifyScope(scope) << ", as the fill around says, got "
             << stringifyScope(gather.getScope());
    if (isa<FetchOp>(op) && !fill.getWarp())
      return op->emitOpError(
          "is one warp's, and the fill around is all producers': expected it to say which");
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
  first = body.findAncestorOpInBlock(*fills.front());
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
  bool gathers = llvm::any_of(fills, [](FillOp fill) {
    return fill.getCopies().walk([](GatherOp) { return WalkResult::interrupt(); }).wasInterrupted();
  });
  if (gathers) { // no thread leaves with copies under way
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
  for (FillOp fill : fills) {
    if (std::optional<int64_t> number = fill.getWarp())
      slices.try_emplace(*number, first, last).first->second.add(fill.getOperation());
    else
      all = true;
  }
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
}

/// Where all warps make some fills, they walk the loops around those together. They part where a loop has
/// none: there each makes its own.
LogicalResult Roles::produceTogether() {
  Slice together(first, last);
  for (FillOp fill : fills)
    together.add(fill.getOperation());
  if (failed(verifySlice(together)))
    return failure();
  auto part = [&](OpBuilder &builder, Operation &op, IRMapping &mapping) {
    auto isOfAll = [](FillOp fill) {
      return fill.getWarp() ? WalkResult::advance() : WalkResult::interrupt();
    };
    bool parts = isa<scf::ForOp>(op) &&
                 llvm::none_of(op.getResults(), [&](Value result) { return together.needs(result); }) &&
                 !op.walk(isOfAll).wasInterrupted();
    if (!parts)
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

/// Two roles may do the same only if it has no effect but its results, and those of computations exist in
/// consumers alone.
LogicalResult Roles::verifySlice(const Slice &slice) {
  for (FillOp fill : fills)
    if (slice.needs(fill.getTile()))
      return fill.emitOpError("has a tile that fills depend on: warps that fill cannot use tiles");
  for (Operation *op : slice.getOperations())
    if (!isa<scf::ForOp, scf::IfOp, FillOp>(op) && !wouldOpBeTriviallyDead(op))
      return op->emitOpError("may have effects, and a fill depends on it: both who fills and who uses the "
                             "tile would do it");
  return success();
}

void Roles::consume() {
  for (FillOp fill : fills) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(fill);
    Value tile = TakeOp::create(b, fill.getLoc(), fill.getTile().getType(), fill.getRing());
    if (first == fill)
      first = tile.getDefiningOp();
    if (last == fill)
      last = tile.getDefiningOp();
    fill.getTile().replaceAllUsesWith(tile);
    fill.erase();
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
      SmallVector<FillOp> fills;
      kernel.walk<WalkOrder::PreOrder>([&](FillOp fill) { fills.push_back(fill); });
      if (fills.empty()) {
        decline(DEBUG_TYPE, kernel, "it fills no ring");
        continue;
      }
      llvm::SmallDenseSet<Value> filled;
      for (FillOp fill : fills)
        filled.insert(fill.getRing());
      const size_t count = fills.size(); // they are erased
      Roles roles(kernel, schedule, fills);
      if (failed(roles.verify()) || failed(roles.write()))
        return signalPassFailure();
      rings += filled.size();
      taken += count;
    }
  }
};

} // namespace

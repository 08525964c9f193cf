//===- LookAhead.cpp - Loops carry lookups of the next tile ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   for i = a to b:              x = f(a) if a < b
//     x = ahead f(i)             for i = a to b carrying x:
//     use x               =>       next = f(i + step)
//                                  use x
//
// The reads of f are in flight while the loop waits for something else, for example a free stage. Outside
// such loops f(i) is computed in place.
//
//===----------------------------------------------------------------------===//
#include "ComputeIf.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

#define DEBUG_TYPE "tile-look-ahead"

namespace mlir::tile {
#define GEN_PASS_DEF_LOOKAHEADPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct LookAhead : tile::impl::LookAheadPassBase<LookAhead> {
  void runOnOperation() override {
    SmallVector<AheadOp> found;
    getOperation().walk([&](AheadOp ahead) { found.push_back(ahead); });
    for (AheadOp ahead : found) {
      auto loop = dyn_cast<scf::ForOp>(ahead->getParentOp());
      if (loop && ahead.getAt() == loop.getInductionVar()) {
        carry(ahead, loop);
        ++carried;
      } else {
        decline(DEBUG_TYPE, ahead, "it is not of the counter of an enclosing loop");
        ++inPlace;
        ImplicitLocOpBuilder b(ahead.getLoc(), ahead);
        ahead.getValue().replaceAllUsesWith(compute(b, ahead, ahead.getAt()));
        ahead.erase();
      }
    }
  }

  /// Computes the value; with a condition, reads nothing if it is false.
  static Value compute(ImplicitLocOpBuilder &b, AheadOp ahead, Value at, Value condition = {}) {
    Block &body = ahead.getBody().front();
    IRMapping mapping;
    mapping.map(body.getArgument(0), at);
    Value value = body.getTerminator()->getOperand(0);
    SmallVector<Operation *> operations;
    for (Operation &op : body.without_terminator())
      operations.push_back(&op);
    if (condition)
      return computeIf(b, condition, operations, value, mapping);
    for (Operation *op : operations)
      b.clone(*op, mapping);
    return mapping.lookupOrDefault(value);
  }

  /// Whether no copy is in flight while a tile is read: the next tile then comes to the L2 cache meanwhile.
  /// Those of other warpgroups that read the same tokens come at the same time, so none would find it there.
  static bool copiesNothingMeanwhile(scf::ForOp loop) {
    auto schedule = tile::scheduleAttr.get(loop->getParentOfType<func::FuncOp>());
    return schedule && schedule.sharesWeights();
  }

  /// Lets loads at these slots, which may give way to slots outside of the tensor, bring the lines at the
  /// next ones to the cache. Small boxes keep the unit that copies them busy, and copies would wait for
  /// prefetches.
  static void setNext(Value slots, Value next) {
    for (Operation *user : slots.getUsers()) {
      auto load = dyn_cast<TmaLoadOp>(user);
      if (load && load.getTarget().getType().getRows() == load.getLines())
        load.getNextMutable().assign(next);
      else if (auto fetch = dyn_cast<FetchLinesOp>(user))
        fetch.getNextMutable().assign(next);
      else if (isa<arith::SelectOp>(user))
        setNext(user->getResult(0), next);
    }
  }

  static void carry(AheadOp ahead, scf::ForOp loop) {
    ImplicitLocOpBuilder b(ahead.getLoc(), loop);
    Value some =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, loop.getLowerBound(), loop.getUpperBound());
    Value first = compute(b, ahead, loop.getLowerBound(), some);

    IRRewriter rewriter(loop.getContext());
    auto yields = [&](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) -> SmallVector<Value> {
      b.setInsertionPoint(ahead);
      Value next = compute(b, ahead, arith::AddIOp::create(b, loop.getInductionVar(), loop.getStep()));
      if (copiesNothingMeanwhile(loop))
        setNext(ahead, next);
      rewriter.replaceOp(ahead, arguments.front());
      return {next};
    };
    (void)cast<LoopLikeOpInterface>(*loop).replaceWithAdditionalYields(rewriter, ValueRange{first}, false,
                                                                       yields);
  }
};

} // namespace

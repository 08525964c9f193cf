//===- UnswitchLoops.cpp - Decisions move out of loops over tiles ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   for each tile carrying c:          if d:
//     t = consume a tile                 for each tile carrying c: t = consume a tile; c = f(c, t)
//     c = if d: f(c, t) else: c   =>   else:
//                                        for each tile: consume it
//
// A branch that is taken up to some iteration and not from there on makes two consecutive loops:
//
//   for i = a to b carrying c:         for i = a to min(b, limit) carrying c:
//     t = consume a tile                 t = consume a tile; c = f(c, t)
//     c = if i < limit: f(c, t)   =>   for i = the first loop's end to b:
//                                        consume a tile
//
// A loop that produces or consumes tiles then does the same for each of them, which barriers and overlaps
// need. Decisions inside of one tile (in a gather's map of lines, in a branch) stay in place. In loops that
// consume tiles, branches that read none of them stay, too: computations on tiles are most of a kernel's
// code, and exist once.
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

#define DEBUG_TYPE "tile-unswitch-loops"

namespace mlir::tile {
#define GEN_PASS_DEF_UNSWITCHLOOPSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

/// Whether a branch reads a tile that the enclosing loop consumes. In loops that produce tiles, all branches
/// concern them.
static bool concernsTiles(scf::IfOp branch) {
  if (branch->getBlock()->getOps<ConsumeOp>().empty())
    return true;
  auto readsTile = [](Operation *op) {
    return llvm::any_of(op->getOperands(),
                        [](Value value) { return value.getDefiningOp<ConsumeOp>() != nullptr; });
  };
  return branch
      .walk([&](Operation *op) { return readsTile(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Finds a condition, known before the loop starts, of a branch in its body or in the copies of a
/// `tile.produce` there.
static Value findCondition(scf::ForOp loop) {
  SmallVector<Block *> blocks{loop.getBody()};
  for (auto produce : loop.getBody()->getOps<ProduceOp>())
    blocks.push_back(&produce.getCopies().front());
  for (Block *block : blocks)
    for (auto branch : block->getOps<scf::IfOp>())
      if (loop.isDefinedOutsideOfLoop(branch.getCondition()) && concernsTiles(branch))
        return branch.getCondition();
  return {};
}

/// Finds a comparison of the loop's counter with a limit that is known before the loop, if it decides a
/// branch in the body.
static arith::CmpIOp findLimit(scf::ForOp loop) {
  for (auto branch : loop.getBody()->getOps<scf::IfOp>()) {
    auto below = branch.getCondition().getDefiningOp<arith::CmpIOp>();
    if (below && below.getPredicate() == arith::CmpIPredicate::slt && !loop.getUnsignedCmp() &&
        below.getLhs() == loop.getInductionVar() && loop.isDefinedOutsideOfLoop(below.getRhs()) &&
        concernsTiles(branch))
      return below;
  }
  return {};
}

/// Replaces the branch by one of its sides.
static void resolve(scf::IfOp branch, bool holds) {
  Region &taken = holds ? branch.getThenRegion() : branch.getElseRegion();
  if (!taken.empty()) {
    Operation *yield = taken.front().getTerminator();
    branch.replaceAllUsesWith(yield->getOperands());
    yield->erase();
    branch->getBlock()->getOperations().splice(Block::iterator(branch), taken.front().getOperations());
  }
  branch.erase();
}

/// Decides all branches of the loop on the condition, and replaces its other uses by the constant.
static void decide(OpBuilder &b, scf::ForOp loop, Value condition, bool holds) {
  loop->walk([&](scf::IfOp branch) {
    if (branch.getCondition() == condition)
      resolve(branch, holds);
  });
  auto isInside = [&](OpOperand &use) { return loop->isProperAncestor(use.getOwner()); };
  if (!llvm::any_of(condition.getUses(), isInside))
    return;
  condition.replaceUsesWithIf(arith::ConstantIntOp::create(b, loop.getLoc(), holds, 1), isInside);
}

/// Returns the loop without operations that neither its effects nor its results `used` need.
static Slice sliceOf(scf::ForOp loop, ArrayRef<unsigned> used) {
  Slice slice(loop, loop);
  slice.addEffects();
  for (unsigned number : used)
    slice.add(loop.getResult(number));
  return slice;
}

/// Writes a slice of the loop, which it erases; returns the results `used`.
static SmallVector<Value> write(OpBuilder &b, scf::ForOp loop, const Slice &slice, ArrayRef<unsigned> used) {
  IRMapping mapping;
  slice.cloneTo(b, mapping);
  SmallVector<Value> results;
  for (unsigned number : used)
    results.push_back(mapping.lookupOrDefault(loop.getResult(number)));
  loop.erase();
  return results;
}

/// Writes the loop for the case that `condition` holds, or does not.
static SmallVector<Value> writeWhere(OpBuilder &b, scf::ForOp loop, ArrayRef<unsigned> used, Value condition,
                                     bool holds) {
  auto whole = cast<scf::ForOp>(OpBuilder(loop).clone(*loop));
  decide(b, whole, condition, holds);
  return write(b, whole, sliceOf(whole, used), used);
}

/// Returns the end of a loop from `begin` with this upper bound: the first counter value that it does not
/// reach.
static Value firstBehind(ImplicitLocOpBuilder &b, Value begin, Value end, Value step) {
  auto type = begin.getType();
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, b.getIntegerAttr(type, value));
  };
  Value length = arith::MaxSIOp::create(b, arith::SubIOp::create(b, end, begin), number(0));
  Value rounded = arith::AddIOp::create(b, length, arith::SubIOp::create(b, step, number(1)));
  Value steps = arith::DivUIOp::create(b, rounded, step);
  return arith::AddIOp::create(b, begin, arith::MulIOp::create(b, steps, step));
}

namespace {

struct UnswitchLoops : tile::impl::UnswitchLoopsPassBase<UnswitchLoops> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found; // inner loops first: operations that leave them may move further
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = tile::scheduleAttr.get(kernel);
      if (schedule && schedule.getKind() == ScheduleKind::Wgmma)
        kernel.walk([&](scf::ForOp loop) { found.push_back(loop); });
    }
    for (scf::ForOp loop : found)
      unswitch(loop);
  }

  void unswitch(scf::ForOp loop) {
    if (llvm::none_of(*loop.getBody(), [](Operation &op) { return isa<ProduceOp, ConsumeOp>(op); })) {
      decline(DEBUG_TYPE, loop, "its body has neither a tile.produce nor a tile.consume");
      return;
    }
    SmallVector<unsigned> used;
    for (OpResult result : loop.getResults())
      if (!result.use_empty())
        used.push_back(result.getResultNumber());
    if (Value condition = findCondition(loop)) {
      ++unswitched;
      move(loop, used, condition);
    } else if (arith::CmpIOp below = findLimit(loop)) {
      ++halved;
      split(loop, used, below);
    } else {
      decline(DEBUG_TYPE, loop, "no branch on its tiles has a condition or a limit from outside");
    }
  }

  void replace(scf::ForOp loop, ArrayRef<unsigned> used, ValueRange values) {
    for (auto [number, value] : llvm::zip_equal(used, values))
      loop.getResult(number).replaceAllUsesWith(value);
    loop.erase();
  }

  void move(scf::ForOp loop, ArrayRef<unsigned> used, Value condition) {
    auto writeSide = [&](bool holds) {
      return [&, holds](OpBuilder &b, Location loc) {
        scf::YieldOp::create(b, loc, writeWhere(b, loop, used, condition, holds));
      };
    };
    OpBuilder b(loop);
    auto branch = scf::IfOp::create(b, loop.getLoc(), condition, writeSide(true), writeSide(false));
    replace(loop, used, branch.getResults());
    for (Region &region : branch->getRegions())
      for (auto written : llvm::make_early_inc_range(region.getOps<scf::ForOp>()))
        unswitch(written);
  }

  void split(scf::ForOp loop, ArrayRef<unsigned> used, arith::CmpIOp below) {
    ImplicitLocOpBuilder b(loop.getLoc(), loop);
    auto front = cast<scf::ForOp>(b.clone(*loop)), back = cast<scf::ForOp>(b.clone(*loop));
    b.setInsertionPoint(front);
    for (auto [half, holds] : {std::pair(front, true), std::pair(back, false)})
      decide(b, half, findLimit(half), holds);
    Value end = arith::MinSIOp::create(b, loop.getUpperBound(), below.getRhs());
    front.setUpperBound(end);
    back.setLowerBound(firstBehind(b, loop.getLowerBound(), end, loop.getStep()));
    Slice ofBack = sliceOf(back, used);
    SmallVector<unsigned> handed; // to the second loop, or past it
    for (BlockArgument carried : back.getRegionIterArgs()) {
      unsigned number = carried.getArgNumber() - 1;
      if (ofBack.needs(carried) || llvm::is_contained(used, number))
        handed.push_back(number);
    }
    b.setInsertionPoint(back);
    for (auto [number, value] : llvm::zip_equal(handed, write(b, front, sliceOf(front, handed), handed)))
      back.getInitArgsMutable()[number].assign(value);
    replace(loop, used, write(b, back, sliceOf(back, used), used));
  }
};

} // namespace

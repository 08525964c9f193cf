//===- OverlapMmas.cpp - A loop's second MMA beside the next first --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warpgroup's loop starts one MMA, computes on its result, and accumulates a second MMA of the computed
// values. Its tensor cores wait while it computes, and it computes nothing while they work. Rotated by half
// an iteration it does both at once (FlashAttention-3, arXiv 2407.08608):
//
//   for t = 0 ..:                        for t = 0 ..:
//     start S(t) = Q K(t)                  start S(t) = Q K(t)
//     finish it, release K(t)              start O += P(t-1) V(t-1)   if t > 0
//     P(t) = f(S(t)), O = g(O, S(t))  =>   finish S(t), release K(t)
//     start O += P(t) V(t)                 P(t) = f(S(t))          | O in flight
//     finish it, release V(t)              finish O, release V(t-1) if t > 0
//                                          O = g(O, S(t)), round P(t)
//                                        O += P(last) V(last)
//
// The loop carries P beside O. The position of V(t-1) is not carried, because registers are short: it is
// computed from the loop's counters, less one step.
//
// The code of f exists once. The first iteration, which has no P and V to start with, could be peeled;
// instead it goes through the loop like the others and branches around the start. f is most of a kernel's
// code, and the time of ptxas grows with code.
//
// A loop without iterations has no last tile, and a branch skips all of this.
//
// A late MMA may read a tile that a remaining MMA also reads and waits for, as in gradients (S = Q K and G =
// D V remain, A += dS K is late). The first iteration then starts it all the same, with zero weights, on its
// own tile. If its sum were in flight in only one of two branches, with several waits after them, ptxas would
// give up (warning C7514). The wait for G is in both branches, or it would be hoisted before the computations
// on S.
//
// A loop may run again and again inside another, for example over the ranges of tokens that a task sees. It
// then leaves its last MMA to its next run, which starts it beside its own first one. The outer loop carries
// P, and whether an MMA is pending. LoopAround.cpp finds such loops. The outer loop's last iteration leaves
// nothing. If that MMA were done after the outer loop, under the condition that one is pending, causal
// prefill of heads of 128 would take 3 to 12 % longer. No MMA is left where a branch after the run reads the
// sum, as the write of the first of two outputs does; it reads under a condition that is known before the
// run. Warpgroups in ping-pong leave none, either: with a soft cap that took 2 % longer. Nor do kernels whose
// tasks see one range (no `tile.several_ranges`): the code would be useless.
//
// Three positions are not the obvious ones:
//
//  * If g branches, as it does where O is rarely rescaled, the wait for O
//    is in both branches. Before the branch it would share a basic block
//    with f, and ptxas would hoist it to the beginning of f: nothing would
//    overlap.
//  * P is rounded after the wait for O. The registers of a left operand belong
//    to the tensor cores until its MMA is finished. P(t) is written to those of
//    P(t-1); before the wait, this would make ptxas run every wgmma of the
//    kernel one after the other (warning C7513).
//  * The fence that lets the tensor cores see a gathered V(t-1) is the one after
//    the wait for K(t). A producer gathers V(t-1) before K(t) and arrives with
//    all its gathers so far, so a warp that has waited for K(t) may read both.
//    After the loop, where no K is waited for, V(last) has its own fence.
//
//===----------------------------------------------------------------------===//
#include "LoopAround.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-overlap-mmas"

namespace mlir::tile {
#define GEN_PASS_DEF_OVERLAPMMASPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Rewrites a loop so that one of its MMAs starts an iteration later.
class Rotation {
public:
  /// `goesOn`: whether the last MMA of a run may be left to the next run of the loop.
  Rotation(LateMma mma, bool goesOn)
      : mma(std::move(mma)), goesOn(goesOn), b(this->mma.loop.getLoc(), this->mma.loop) {}
  /// Returns whether that MMA is left to the next run.
  bool rotate();

private:
  Block *body() { return mma.loop.getBody(); }
  /// Branches around the loop if it has no iterations; returns the branch.
  scf::IfOp skipIfEmpty();
  Value isBelow(Value left, Value right) {
    auto less = mma.loop.getUnsignedCmp() ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt;
    return arith::CmpIOp::create(b, less, left, right);
  }
  /// Starts the MMA before the first is finished; returns the accumulator in flight.
  Value startBesideFirst(const IRMapping &counted, Value isLater, Value lhs, Value acc);
  /// Finishes the accumulator in flight before the body's first use of the carried one, which it replaces;
  /// returns the operation after which that is done.
  Operation *finishWhereUsed(Value acc, Value inFlight);
  void finishBehindLoop();
  void eraseMoved();

  LateMma mma;
  bool goesOn;
  ImplicitLocOpBuilder b;
  MovedMma moved{mma, b};
};

scf::IfOp Rotation::skipIfEmpty() {
  scf::ForOp loop = mma.loop;
  scf::IfOp branch = mma.branchAround();
  if (branch)
    b.setInsertionPoint(branch);
  Value some = isBelow(loop.getLowerBound(), loop.getUpperBound());
  if (branch) {
    branch.getConditionMutable().assign(arith::AndIOp::create(b, some, branch.getCondition()));
    return branch;
  }
  branch = scf::IfOp::create(b, loop.getResultTypes(), some, /*withElseRegion=*/true);
  loop.replaceAllUsesWith(branch.getResults());
  loop->moveBefore(branch.thenBlock(), branch.thenBlock()->begin());
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, loop.getResults());
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, loop.getInitArgs());
  return branch;
}

Value Rotation::startBesideFirst(const IRMapping &counted, Value isLater, Value lhs, Value acc) {
  WaitMmasOp first = mma.first;
  if (mma.sharesTile) {
    b.setInsertionPoint(first);
    Value inFlight = moved.start(lhs, acc, counted, /*fences=*/false);
    first.setPending(first.getPending() + 1);
    for (WaitMmasOp other : mma.others)
      mma.finishOnBranches(other, isLater);
    return inFlight;
  }
  bool fenced = llvm::any_of(body()->getOps<FenceAsyncOp>(),
                             [&](FenceAsyncOp fence) { return fence->isBeforeInBlock(first); });
  SmallVector<Type> types(first.getResultTypes());
  types.push_back(acc.getType());
  b.setInsertionPoint(first);
  auto mmas = scf::IfOp::create(b, types, isLater, /*withElseRegion=*/true);
  auto finishFirst = [&](Block *block, int64_t pending, function_ref<Value()> beside) {
    b.setInsertionPointToEnd(block);
    SmallVector<Value> left{beside()};
    auto finished = WaitMmasOp::create(b, first.getResultTypes(), pending, first.getStarted());
    left.insert(left.begin(), finished.result_begin(), finished.result_end());
    scf::YieldOp::create(b, left);
  };
  finishFirst(mmas.thenBlock(), 1, [&] { return moved.start(lhs, acc, counted, /*fences=*/!fenced); });
  finishFirst(mmas.elseBlock(), 0, [&] { return acc; });
  first.replaceAllUsesWith(mmas.getResults().drop_back());
  first.erase();
  return mmas.getResults().back();
}

Operation *Rotation::finishWhereUsed(Value acc, Value inFlight) {
  // Returns the first of some uses in a block, or `place` if it comes earlier.
  auto firstOf = [](ArrayRef<OpOperand *> uses, Block *block, Operation *place) {
    for (OpOperand *use : uses)
      if (Operation *user = block->findAncestorOpInBlock(*use->getOwner());
          user && user->isBeforeInBlock(place))
        place = user;
    return place;
  };
  auto finishAt = [&](Operation *place, ArrayRef<OpOperand *> uses) {
    b.setInsertionPoint(place);
    Value finished = moved.finish(inFlight);
    for (OpOperand *use : uses)
      if (place->getParentRegion()->isAncestor(use->getOwner()->getParentRegion()))
        use->set(finished);
    return finished.getDefiningOp();
  };
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : acc.getUses())
    if (!inFlight.getDefiningOp()->isAncestor(use.getOwner()))
      uses.push_back(&use);
  Operation *place = firstOf(uses, body(), mma.start);
  auto branch = dyn_cast<scf::IfOp>(place);
  bool sinks = branch && branch.elseBlock() &&
               llvm::all_of(uses, [&](OpOperand *use) { return branch->isProperAncestor(use->getOwner()); });
  if (!sinks)
    return finishAt(place, uses);
  for (Block *block : {branch.thenBlock(), branch.elseBlock()})
    finishAt(firstOf(uses, block, block->getTerminator()), uses);
  return branch;
}

void Rotation::finishBehindLoop() {
  b.setInsertionPointAfter(mma.loop);
  Value acc = mma.loop.getResult(mma.carried);
  SmallVector<OpOperand *> uses(llvm::make_pointer_range(acc.getUses()));
  Value finished = moved.runAll(mma.loop.getResults().back(), acc,
                                [&](unsigned number) -> Value { return mma.loop.getResult(number); });
  for (OpOperand *use : uses)
    use->set(finished);
}

void Rotation::eraseMoved() {
  mma.finish.erase();
  mma.start.erase();
  for (Operation *op : mma.waits)
    op->erase();
  for (ArriveOp op : mma.releases)
    op.erase();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*body())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

bool Rotation::rotate() {
  scf::IfOp branch = skipIfEmpty();
  if (!goesOn)
    decline(DEBUG_TYPE, branch,
            "no MMA is left to the next run, as warpgroups take turns or tasks see one range");
  std::optional<LoopAround> around = goesOn ? LoopAround::find(mma, branch) : std::nullopt;
  b.setInsertionPoint(around ? around->getLoop() : mma.loop);
  Value none = mma.firstWeights(b);
  if (around)
    none = around->carry(none);
  IRRewriter rewriter(b.getContext());
  mma.loop = cast<scf::ForOp>(
      *mma.loop.replaceWithAdditionalYields(rewriter, none, /*replaceInitOperandUsesInLoop=*/false,
                                            [&](OpBuilder &, Location, ArrayRef<BlockArgument>) {
                                              return SmallVector<Value>{mma.start.getLhs()};
                                            }));
  Value acc = mma.loop.getRegionIterArg(mma.carried), lhs = mma.loop.getRegionIterArgs().back();

  b.setInsertionPointToStart(body());
  auto isBehindFirst = [&] {
    Value isBehind = isBelow(mma.loop.getLowerBound(), mma.loop.getInductionVar());
    return around ? arith::OrIOp::create(b, isBehind, around->isPending()) : isBehind;
  };
  Value isLater = mma.sharesTile ? isBehindFirst() : Value();
  IRMapping counted =
      moved.countBack([&](unsigned number) -> Value { return mma.loop.getRegionIterArg(number); }, isLater);
  isLater = isLater ? isLater : isBehindFirst();
  Value inFlight = startBesideFirst(counted, isLater, lhs, acc);
  b.setInsertionPointAfter(finishWhereUsed(acc, inFlight));
  moved.release(counted, isLater);
  for (Operation *op : llvm::reverse(mma.rounding))
    op->moveBefore(mma.start);
  // The accumulator that the MMA would have added to goes to the iteration that starts it.
  body()->getTerminator()->setOperand(mma.carried, mma.start.getAcc());
  if (around) {
    around->leaveToNext(moved, b);
    around->finishPending(moved, b);
  } else {
    finishBehindLoop();
  }
  eraseMoved();
  return around.has_value();
}

struct OverlapMmas : tile::impl::OverlapMmasPassBase<OverlapMmas> {
  /// Whether MMAs start in a loop and in no inner loop. A loop around such a loop may be replaced.
  static bool holdsMmas(scf::ForOp loop) {
    bool some = false;
    WalkResult all = loop.walk([&](StartMmaOp mma) {
      some = true;
      return mma->getBlock() == loop.getBody() ? WalkResult::advance() : WalkResult::interrupt();
    });
    return some && !all.wasInterrupted();
  }
  void runOnOperation() override {
    SmallVector<std::pair<scf::ForOp, bool>> found;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (auto schedule = tile::scheduleAttr.get(kernel);
          schedule && schedule.getKind() == ScheduleKind::Wgmma)
        kernel.walk([&](scf::ForOp loop) {
          if (!holdsMmas(loop))
            return;
          bool goesOn = tile::severalRangesAttr.isOn(kernel) && !schedule.getPingPong().value_or(false);
          found.push_back({loop, goesOn});
        });
    for (auto [loop, goesOn] : found) {
      FailureOr<std::optional<LateMma>> mma = LateMma::find(loop);
      if (failed(mma))
        return signalPassFailure();
      if (!*mma)
        continue;
      left += Rotation(**mma, goesOn).rotate();
      ++moved;
    }
  }
};

} // namespace

//===- OverlapMmas.cpp - A loop's second mma runs beside the next first ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warpgroup's loop that starts one mma, computes on its result, and adds a
// second mma of what it computed to what it carries, keeps the tensor cores
// waiting while it computes and computes nothing while they work. Rotated by
// half an iteration it does both at once (FlashAttention-3, arXiv 2407.08608):
//
//   for t = 0 ..:                        for t = 0 ..:
//     start S(t) = Q K(t)                  start S(t) = Q K(t)
//     finish it, hand back K(t)            start O += P(t-1) V(t-1)   if t > 0
//     P(t) = f(S(t)), O = g(O, S(t))  =>   finish S(t), hand back K(t)
//     start O += P(t) V(t)                 P(t) = f(S(t))          | O under way
//     finish it, hand back V(t)            finish O, hand back V(t-1) if t > 0
//                                          O = g(O, S(t)), round P(t)
//                                        O += P(last) V(last)
//
// The loop carries P beside O. Where V(t-1) lies is computed from what the loop
// counts, less one step, and not carried: registers are short.
//
// f stands in the code once. The first iteration, which has no P and V to start
// with, could be peeled; instead it goes through the loop with the others and
// branches around the start. f is most of a kernel's code, and code is what
// ptxas takes its time for.
//
// A loop without iterations has no last tile, and goes around all of this.
//
// Where the late mma reads a tile that an mma which stays reads and awaits, too, as gradients
// do (S = Q K and G = D V stay, A += dS K is late), the first iteration starts it all the same:
// with weights that are zeros, on the tile of its own: where its sum is in flight in one of two
// branches, and several waits follow, ptxas gives up (warning C7514). The wait for G stands in
// both branches of the question, or it would be hoisted in front of what is computed of S.
//
// A loop that runs again and again in another, as over the ranges of tokens that a task sees, leaves its
// last mma to its next run, which starts it beside its own first one: the outer loop carries P, and
// whether an mma is left to do. LoopAround.cpp finds such loops. The outer loop's last iteration leaves
// nothing. Were that mma done behind the outer loop, under the condition that one is left, causal prefill
// of heads of 128 would take 3 to 12 % longer. Nor is an mma left where a branch behind the run reads the
// sum, as what writes the first of two outputs does; it reads under a condition that is known before the
// run. Warpgroups that take turns leave nothing, either: with a soft cap that took 2 % longer. Nor do
// kernels whose tasks see one range (no `tile.several_ranges`): it would be code for nothing.
//
// Three places are not where they might be:
//
//  * Where g branches, as it does where O is rarely rescaled, the wait for O
//    stands in both branches. In front of the branch it would share a basic
//    block with f, and ptxas would hoist it to the front of f: nothing would
//    overlap.
//  * P is rounded behind the wait for O. The registers of a left operand are the
//    tensor cores' until its mma is finished; P(t) is written to those of
//    P(t-1), and were that before the wait, ptxas would run every wgmma of the
//    kernel one after the other (warning C7513).
//  * The fence that lets the tensor cores see a gathered V(t-1) is the one behind
//    the wait for K(t). A producer gathers V(t-1) before K(t) and arrives with
//    all that it has gathered so far, so who has seen K(t) arrive may read both.
//    Behind the loop, where no K is waited for, V(last) has a fence of its own.
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

/// Rewrites a loop so that one of its mmas starts an iteration later.
class Rotation {
public:
  /// `goesOn`: whether the last mma of a run may be left to the next run of the loop.
  Rotation(LateMma mma, bool goesOn)
      : mma(std::move(mma)), goesOn(goesOn), b(this->mma.loop.getLoc(), this->mma.loop) {}
  /// Returns whether that mma is left to the next run.
  bool rotate();

private:
  Block *body() { return mma.loop.getBody(); }
  /// Goes around the loop where it has no iterations; returns the branch.
  scf::IfOp skipIfEmpty();
  Value isBelow(Value left, Value right) {
    auto less = mma.loop.getUnsignedCmp() ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt;
    return arith::CmpIOp::create(b, less, left, right);
  }
  /// Starts the mma before the first is finished; returns the accumulator in flight.
  Value startBesideFirst(const IRMapping &counted, Value isLater, Value lhs, Value acc);
  /// Finishes the accumulator in flight where the body first uses the carried one, which it takes the place
  /// of; returns the operation behind which that is done.
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
  // The first of some uses in a block, or what stands there already.
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
            "no mma is left to the next run, as warpgroups take turns or tasks see one range");
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
  // What the mma would have added to goes on to the iteration that starts it.
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
  /// Whether mmas start in a loop and in none inside it. A loop around such a one may be replaced.
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

//===- StartEarly.cpp - A loop's first MMA starts an iteration early ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warpgroup's computations between the MMAs of an iteration keep its tensor cores waiting, unless they have
// an MMA that depends on no computation. If an iteration's first MMA reads nothing that the iteration
// computes, it can run at the end of the previous iteration, and be finished when that one ends. There are
// two positions.
//
// Warps that sync in a loop are in step: all of them compute between their MMAs at the same time. The MMA
// runs beside the barrier:
//
//                                        start S = K Q(0), finish it
//   for t = 0 ..:                        for t = 0 .. carrying S:
//     start S = K Q(t)                     start G = V D(t)
//     start G = V D(t)                     P = f(S)                 | G in flight
//     finish S                             start B += P D(t)
//     P = f(S)                             finish G
//     start B += P D(t)              =>    T = g(P, G), exchange T  | B in flight
//     finish G                             finish B
//     T = g(P, G), exchange T              start S = K Q(t+1)
//     sync                                 sync                     | S in flight
//     start C = T' K                       start C = T' K
//     start A += T Q(t)                    start A += T Q(t)
//     finish C                             finish S and C
//     ..                                   ..                       | A in flight
//     finish A and B                       finish A
//
// Before, f waited for S with only G after it; now S is complete when the iteration begins. B is finished
// first, because its left operand occupies the registers of S. With both in flight ptxas has too few
// registers, and runs every wgmma of the kernel one after the other (warning C7512).
//
// If warps do not sync, and two sums end together, the MMA is started between those, and ends with them.
// While one warpgroup waits for all three, another computes its f and g:
//
//     T = g(P, G)                          T = g(P, G)              | B in flight
//     start A += T Q(t)                    start S = K Q(t+1)
//     finish A and B                 =>    start A += T Q(t)
//                                          finish A, B and S
//
// Here B stays in flight, as registers suffice. (For heads of 128, B finished first made ptxas spill.)
//
// A ring of one stage has no next tile before the iteration ends: such loops are unchanged.
//
// The last iteration has no next tile. It starts the MMA once more with its own tile, and the result is
// unused. Started in one of two branches, an MMA would be in flight on one path only, and ptxas would also
// give up (warning C7514).
//
//===----------------------------------------------------------------------===//
#include "LateMma.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-start-early"

namespace mlir::tile {
#define GEN_PASS_DEF_STARTEARLYPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

/// The largest number of columns of the first MMA's result. Loops of longer tiles are unchanged: they are not
/// measured.
static constexpr int64_t mostColumns = 64;
/// The most columns beside an early MMA, whose registers they need: of sums that a loop with a barrier
/// carries, and of results that begin after the barrier.
static constexpr int64_t mostBeside = 320;

namespace {

class EarlyMma {
public:
  explicit EarlyMma(scf::ForOp loop) : place{loop}, loop(loop), b(loop.getLoc(), loop) {}
  bool match();
  void move();

private:
  Block *body() { return loop.getBody(); }
  /// Matches the loop's MMAs, all of which are in its own block.
  bool matchMmas();
  /// Matches the first MMA, and the operations before it: waits for a tile that the loop's counters
  /// determine.
  bool matchFirst();
  /// Matches the barrier, and the operation that waits for MMAs started after it.
  bool matchBarrier();
  /// Matches the last of several sums that end together, in loops without a barrier.
  bool matchSums();
  bool refuse(const Twine &why) { return decline(DEBUG_TYPE, loop, why); }
  Value less(Value x, Value y) {
    auto predicate = loop.getUnsignedCmp() ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt;
    return arith::CmpIOp::create(b, predicate, x, y);
  }
  SmallVector<Value> finish(ArrayRef<Value> started, int64_t pending) {
    return SmallVector<Value>(
        WaitMmasOp::create(b, ValueRange(started).getTypes(), pending, started).getResults());
  }
  /// Copies an operation of the loop, and the operations that compute its operands, unless they are mapped.
  Operation *copy(Operation *op, IRMapping &mapping);
  /// Waits for the tile of these counters, and starts the MMA.
  Value start(IRMapping counted);
  /// Starts and finishes the first iteration's MMA, before the loop.
  Value startInFront();
  /// Starts the next iteration's MMA, and leaves it in flight.
  Value startAhead();
  /// Finishes, before `early`, the MMAs that were started before it and finished after it.
  void finishOlder();

  LateMma place; ///< finds the loop's counters
  scf::ForOp loop;
  SmallVector<StartMmaOp> starts;
  SmallVector<WaitMmasOp> finishes;
  StartMmaOp first;
  WaitMmasOp finishFirst, with;   ///< the finish of the first MMA, and the finish that it will be joined to
  NamedBarrierSyncOp meet;        ///< the loop's barrier, if any
  SmallVector<Operation *> waits; ///< waits before the first MMA
  Operation *early = nullptr;     ///< the position of the early start: before this operation
  ImplicitLocOpBuilder b;
};

bool EarlyMma::match() {
  auto meets = body()->getOps<NamedBarrierSyncOp>();
  if (!meets.empty())
    meet = *meets.begin();
  return matchMmas() && matchFirst() && (meet ? matchBarrier() : matchSums());
}

bool EarlyMma::matchMmas() {
  bool stand = true;
  loop.walk([&](Operation *op) {
    if (auto start = dyn_cast<StartMmaOp>(op))
      starts.push_back(start);
    else if (auto finish = dyn_cast<WaitMmasOp>(op))
      finishes.push_back(finish);
    else
      return;
    stand &= op->getBlock() == body();
  });
  if (starts.empty())
    return refuse("it starts no MMAs");
  return stand || refuse("some of its MMAs are in branches or inner loops");
}

bool EarlyMma::matchFirst() {
  first = starts.front();
  auto isOutside = [&](Value value) { return !value || loop.isDefinedOutsideOfLoop(value); };
  auto isCounted = [&](Value value) { return place.canCountBack(value); };
  if (first.getAcc() || first.getColumn() || !isOutside(first.getLhs()) || !isOutside(first.getLine()) ||
      !isCounted(first.getRhs()))
    return refuse("its first MMA reads a value that an iteration computes");
  if (!first.getResult().hasOneUse())
    return refuse("its first MMA is not finished once");
  if (first.getResult().getType().getSizes()[1] > mostColumns)
    return refuse("its first MMA has more than " + Twine(mostColumns) + " columns");
  finishFirst = dyn_cast<WaitMmasOp>(*first.getResult().user_begin());
  for (Operation &op : llvm::make_range(body()->begin(), first->getIterator())) {
    if (isMemoryEffectFree(&op))
      continue;
    if (!isa<MbarrierWaitOp>(op) || !llvm::all_of(op.getOperands(), isCounted))
      return refuse("something else than a wait for its tile precedes its first MMA");
    waits.push_back(&op);
  }
  return (finishFirst && finishFirst.getStarted().size() == 1 && !waits.empty()) ||
         refuse("its first MMA is not finished alone, or waits for no tile");
}

bool EarlyMma::matchBarrier() {
  int64_t beside = 0;
  for (Value each : loop.getRegionIterArgs())
    if (auto sum = dyn_cast<FragmentType>(each.getType()); sum && sum.getRank() == 2)
      beside += sum.getSizes()[1];
  for (StartMmaOp each : starts)
    if (!each.getAcc() && meet->isBeforeInBlock(each))
      beside += each.getResult().getType().getSizes()[1];
  if (beside > mostBeside)
    return refuse("its sums have " + Twine(beside) + " columns, more than " + Twine(mostBeside));
  for (Operation *op = meet;
       op && (isa<NamedBarrierSyncOp, FenceAsyncOp, WaitTmaStoresOp>(op) || isMemoryEffectFree(op));
       op = op->getPrevNode())
    if (!isMemoryEffectFree(op))
      early = op;
  auto behind = llvm::find_if(finishes, [&](WaitMmasOp op) { return meet->isBeforeInBlock(op); });
  if (behind == finishes.end() || !finishFirst->isBeforeInBlock(early))
    return refuse("its first MMA ends after the barrier, or no other does");
  with = *behind;
  // MMAs end in the order in which they were started: pending ones are started after the barrier.
  auto isBetween = [&](StartMmaOp op) { return meet->isBeforeInBlock(op) && op->isBeforeInBlock(with); };
  return llvm::count_if(starts, isBetween) >= with.getPending() ||
         refuse("an MMA from before the barrier stays in flight after it");
}

bool EarlyMma::matchSums() {
  with = finishes.back();
  early = starts.back();
  auto isBehind = [&](WaitMmasOp op) { return early->isBeforeInBlock(op); };
  return (with.getStarted().size() > 1 && with.getPending() == 0 &&
          llvm::is_contained(with.getStarted(), starts.back().getResult()) &&
          llvm::count_if(finishes, isBehind) == 1 && finishFirst->isBeforeInBlock(early)) ||
         refuse("warps do not sync in it, and its last MMAs are not finished together");
}

Operation *EarlyMma::copy(Operation *op, IRMapping &mapping) {
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp();
        source && source->getBlock() == body() && !mapping.contains(operand))
      copy(source, mapping);
  return b.clone(*op, mapping);
}

Value EarlyMma::start(IRMapping counted) {
  for (Operation *wait : waits)
    copy(wait, counted);
  return copy(first, counted)->getResult(0);
}

Value EarlyMma::startInFront() {
  Type type = first.getResult().getType();
  b.setInsertionPoint(loop);
  auto some = scf::IfOp::create(b, TypeRange{type}, less(loop.getLowerBound(), loop.getUpperBound()),
                                /*withElseRegion=*/true);
  IRMapping counted;
  for (auto [number, step] : place.counts)
    counted.map(loop.getRegionIterArg(number), loop.getInitArgs()[number]);
  b.setInsertionPointToEnd(some.thenBlock());
  scf::YieldOp::create(b, finish(start(counted), /*pending=*/0));
  b.setInsertionPointToEnd(some.elseBlock());
  scf::YieldOp::create(b, UndefinedOp::create(b, type).getResult());
  return some.getResult(0);
}

Value EarlyMma::startAhead() {
  b.setInsertionPoint(early);
  Value next = arith::AddIOp::create(b, loop.getInductionVar(), loop.getStep());
  Value more = less(next, loop.getUpperBound());
  IRMapping counted;
  for (auto [number, step] : place.counts) {
    Value count = loop.getRegionIterArg(number);
    auto constant = [&](int64_t value) {
      return arith::ConstantOp::create(b, b.getIntegerAttr(count.getType(), value));
    };
    Value ahead = arith::SelectOp::create(b, more, constant(step), constant(0));
    counted.map(count, arith::AddIOp::create(b, count, ahead));
  }
  return start(counted);
}

void EarlyMma::finishOlder() {
  b.setInsertionPoint(early);
  auto isOlder = [&](Value started) { return started.getDefiningOp()->isBeforeInBlock(early); };
  for (WaitMmasOp &op : finishes) {
    if (op->isBeforeInBlock(early) || llvm::none_of(op.getStarted(), isOlder))
      continue;
    SmallVector<Value> older, younger;
    for (Value started : op.getStarted())
      (isOlder(started) ? older : younger).push_back(started);
    IRMapping finished;
    finished.map(older, finish(older, /*pending=*/0));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(op);
    auto rest = WaitMmasOp::create(b, ValueRange(younger).getTypes(), op.getPending(), younger);
    finished.map(younger, rest.getResults());
    for (auto [started, result] : llvm::zip_equal(op.getStarted(), op.getResults()))
      result.replaceAllUsesWith(finished.lookup(started));
    with = with == op ? rest : with;
    op.erase();
    op = rest;
  }
}

void EarlyMma::move() {
  Value inFront = startInFront();
  if (meet)
    finishOlder();
  SmallVector<Value> started(with.getStarted());
  started.push_back(startAhead());
  b.setInsertionPoint(with);
  SmallVector<Value> finished = finish(started, with.getPending());
  with.replaceAllUsesWith(ArrayRef(finished).drop_back());
  with.erase();

  IRRewriter rewriter(b.getContext());
  loop = cast<scf::ForOp>(*loop.replaceWithAdditionalYields(
      rewriter, inFront, /*replaceInitOperandUsesInLoop=*/false,
      [&](OpBuilder &, Location, ArrayRef<BlockArgument>) { return SmallVector<Value>{finished.back()}; }));
  finishFirst.getResult(0).replaceAllUsesWith(loop.getRegionIterArgs().back());
  finishFirst.erase();
  first.erase();
  for (Operation *wait : waits)
    wait->erase();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*body())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

struct StartEarly : tile::impl::StartEarlyPassBase<StartEarly> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> loops;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (auto schedule = tile::scheduleAttr.get(kernel);
          schedule && schedule.getKind() == ScheduleKind::Wgmma && schedule.getStages() > 1)
        kernel.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    for (scf::ForOp loop : loops)
      if (EarlyMma found(loop); found.match()) {
        found.move();
        ++moved;
      }
  }
};

} // namespace

//===- LateMma.cpp - An MMA that may start an iteration later -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LateMma.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-overlap-mmas"

using namespace mlir;
using namespace mlir::tile;

FailureOr<std::optional<LateMma>> LateMma::find(scf::ForOp loop) {
  LateMma found{loop};
  if (!found.matchMmas() || !found.matchTile())
    return std::optional<LateMma>();
  if (failed(found.check()))
    return failure();
  return std::optional(std::move(found));
}

bool LateMma::matchMmas() {
  SmallVector<Operation *> starts, finishes;
  loop.walk([&](Operation *op) {
    if (isa<StartMmaOp, WaitMmasOp>(op))
      (isa<StartMmaOp>(op) ? starts : finishes).push_back(op);
  });
  auto stands = [&](Operation *op) { return op->getBlock() == loop.getBody(); };
  if (starts.size() < 2 || finishes.size() < 2)
    return decline(DEBUG_TYPE, loop, "it does not start two MMAs and finish each separately");
  if (!llvm::all_of(starts, stands) || !llvm::all_of(finishes, stands))
    return decline(DEBUG_TYPE, loop, "some of its MMAs are in branches");
  first = cast<WaitMmasOp>(finishes.front()), finish = cast<WaitMmasOp>(finishes.back());
  start = cast<StartMmaOp>(starts.back());
  for (Operation *op : ArrayRef(finishes).drop_front().drop_back())
    others.push_back(cast<WaitMmasOp>(op));
  WaitMmasOp last = others.empty() ? first : others.back(); // of the remaining MMAs: none stays unfinished
  if (last.getPending() != 0 || finish.getPending() != 0 ||
      finish.getStarted() != ValueRange(start.getResult()) || start->isBeforeInBlock(last) ||
      first->isBeforeInBlock(starts[starts.size() - 2]))
    return decline(DEBUG_TYPE, loop, "its last MMA is not started after all others and finished alone");

  Value sum = finish.getResult(0);
  if (!start.getAcc() || !isa<FragmentType>(start.getLhs().getType()) || !sum.hasOneUse() ||
      *sum.user_begin() != loop.getBody()->getTerminator())
    return decline(DEBUG_TYPE, loop, "its last MMA does not add a product of registers to a carried value");
  carried = sum.use_begin()->getOperandNumber();
  BlockArgument before = loop.getRegionIterArg(carried);
  auto isEarly = [&](Operation *user) {
    return loop.getBody()->findAncestorOpInBlock(*user)->isBeforeInBlock(first);
  };
  if (!reaches(before, start.getAcc()) || !reaches(first.getResults(), start.getLhs()))
    return decline(DEBUG_TYPE, loop, "its last MMA does not add up values computed from the first");
  return llvm::none_of(before.getUsers(), isEarly) ||
         decline(DEBUG_TYPE, loop, "it uses the sum before its first MMA is finished");
}

bool LateMma::reaches(ValueRange from, Value to) {
  DenseSet<Value> reached(from.begin(), from.end());
  for (Operation &op : *loop.getBody()) {
    auto uses = [&](Operation *inner) {
      bool some = llvm::any_of(inner->getOperands(), [&](Value v) { return reached.contains(v); });
      return some ? WalkResult::interrupt() : WalkResult::advance();
    };
    if (op.walk(uses).wasInterrupted())
      reached.insert(op.result_begin(), op.result_end());
  }
  return reached.contains(to);
}

/// Whether the right operands of all MMAs are tiles of one ring of two stages. If a late MMA kept one stage,
/// and the next MMA waited for the other, no copy would be in flight meanwhile.
bool LateMma::copiesNothingMeanwhile(RingStageOp stage) {
  bool alone = stage.getRing().getType().getStages() == 2;
  loop.walk([&](StartMmaOp mma) {
    auto other = mma.getRhs().getDefiningOp<RingStageOp>();
    alone &= other && other.getRing() == stage.getRing();
  });
  return alone;
}

bool LateMma::mayShareTile() {
  auto stage = start.getRhs().getDefiningOp<RingStageOp>();
  return stage && stage.getRing().getType().getStages() > 1 && !copiesNothingMeanwhile(stage) &&
         llvm::any_of(stage->getUsers(),
                      [&](Operation *user) { return isa<StartMmaOp>(user) && user->isBeforeInBlock(first); });
}

/// Matches the late MMA's tile. If other operations use the tile too, it is waited for or released elsewhere.
/// Kept an iteration longer, it might be the stage that its producer needs for the next tile. But if a
/// remaining MMA waits for it, and its ring has stages for copies meanwhile, the late MMA releases it.
bool LateMma::matchTile() {
  size_t awaits = 0;
  for (Operation *op = start->getPrevNode();
       op && (isa<MbarrierWaitOp, FenceAsyncOp>(op) || isMemoryEffectFree(op)); op = op->getPrevNode())
    if (!isMemoryEffectFree(op)) {
      waits.insert(waits.begin(), op);
      awaits += isa<MbarrierWaitOp>(op);
    }
  for (Operation *op = finish->getNextNode();
       isa<ArriveOp>(op) || (isMemoryEffectFree(op) && !isa<scf::YieldOp>(op)); op = op->getNextNode())
    if (auto arrive = dyn_cast<ArriveOp>(op))
      releases.push_back(arrive);
  sharesTile = awaits == 0 && releases.size() == 1 && mayShareTile();
  return sharesTile || awaits == releases.size() ||
         decline(DEBUG_TYPE, loop, "the tile of its last MMA is waited for or released elsewhere");
}

LogicalResult LateMma::check() {
  for (Value lhs = start.getLhs(); Operation *op = lhs.getDefiningOp(); lhs = op->getOperand(0)) {
    if (!isa<CastOp, ConvertOp>(op) || !lhs.hasOneUse() || op->getBlock() != loop.getBody())
      break;
    rounding.push_back(op);
    if (isa<CastOp>(op))
      break;
  }
  if (rounding.empty() || !isa<CastOp>(rounding.back()))
    return start.emitOpError(
        "expected the left operand of an MMA that starts an iteration later to be a cast "
        "in the loop, for this MMA alone");
  SmallVector<Operation *> moved(waits);
  llvm::append_range(moved, releases);
  auto found = [&](Operation *op) {
    return llvm::all_of(op->getOperands(), [&](Value operand) { return canCountBack(operand); });
  };
  if (llvm::all_of(moved, found) && canCountBack(start.getRhs()))
    return success();
  return start.emitOpError(
      "expected an MMA that starts an iteration later to find its tile by values that the "
      "loop carries and adds constants to");
}

bool LateMma::canCountBack(Value value) {
  if (!loop->isAncestor(value.getParentRegion()->getParentOp()))
    return true;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned number = argument.getArgNumber() - loop.getNumInductionVars();
    if (argument != loop.getInductionVar())
      if (std::optional<int64_t> step = stepOf(number)) {
        counts.insert({number, *step});
        return true;
      }
  } else if (Operation *op = value.getDefiningOp(); isMemoryEffectFree(op) && op->getNumRegions() == 0) {
    return llvm::all_of(op->getOperands(), [&](Value v) { return canCountBack(v); });
  }
  return false;
}

std::optional<int64_t> LateMma::stepOf(unsigned number) {
  auto add = loop.getYieldedValues()[number].getDefiningOp<arith::AddIOp>();
  BlockArgument count = loop.getRegionIterArg(number);
  if (!add || (add.getLhs() != count && add.getRhs() != count))
    return {};
  return getConstantIntValue(add.getLhs() == count ? add.getRhs() : add.getLhs());
}

scf::IfOp LateMma::branchAround() {
  auto branch = dyn_cast<scf::IfOp>(loop->getParentOp());
  if (!branch || loop->getBlock() != branch.thenBlock() || !branch.elseBlock())
    return {};
  for (Value bound : {loop.getLowerBound(), loop.getUpperBound()})
    if (branch->isAncestor(bound.getParentRegion()->getParentOp()))
      return {};
  auto isNothing = [&](Operation &op) {
    auto other = dyn_cast<scf::ForOp>(op);
    return other ? other.getLowerBound() == loop.getLowerBound() &&
                       other.getUpperBound() == loop.getUpperBound() &&
                       other.getUnsignedCmp() == loop.getUnsignedCmp()
                 : isMemoryEffectFree(&op);
  };
  auto withoutIterations = [&](Value result) {
    auto other = result.getDefiningOp<scf::ForOp>();
    return other && branch->isProperAncestor(other)
               ? other.getInitArgs()[cast<OpResult>(result).getResultNumber()]
               : result;
  };
  bool isRight = llvm::all_of(branch.thenBlock()->without_terminator(), isNothing) &&
                 llvm::all_of(branch.elseBlock()->without_terminator(), isNothing) &&
                 llvm::equal(llvm::map_range(branch.thenYield().getOperands(), withoutIterations),
                             llvm::map_range(branch.elseYield().getOperands(), withoutIterations));
  return isRight ? branch : scf::IfOp();
}

void LateMma::finishOnBranches(WaitMmasOp mmas, Value isLater) {
  ImplicitLocOpBuilder b(mmas.getLoc(), mmas);
  Block *body = loop.getBody();
  // Values computed meanwhile pass through, too: their operations must not sink below the wait.
  SmallVector<Value> through(mmas.getStarted()), given(mmas.getResults());
  for (Operation &op : llvm::make_range(first->getIterator(), mmas->getIterator()))
    for (Value value : op.getResults())
      if (auto type = dyn_cast<FragmentType>(value.getType());
          type && type.getRank() == 2 && llvm::any_of(value.getUsers(), [&](Operation *user) {
            return mmas->isBeforeInBlock(body->findAncestorOpInBlock(*user));
          }))
        through.push_back(value), given.push_back(value);
  TypeRange types = ValueRange(through).getTypes();
  auto branch = scf::IfOp::create(b, types, isLater, /*withElseRegion=*/true);
  for (int64_t more : {1, 0}) {
    b.setInsertionPointToEnd(more ? branch.thenBlock() : branch.elseBlock());
    auto finished = WaitMmasOp::create(b, types, mmas.getPending() + more, through);
    scf::YieldOp::create(b, finished.getResults());
  }
  for (auto [value, left] : llvm::zip_equal(given, branch.getResults()))
    value.replaceUsesWithIf(left, [&](OpOperand &use) {
      return mmas->isBeforeInBlock(body->findAncestorOpInBlock(*use.getOwner()));
    });
  mmas.erase();
}

Value LateMma::firstWeights(ImplicitLocOpBuilder &b) {
  auto type = cast<FragmentType>(start.getLhs().getType());
  if (!sharesTile)
    return UndefinedOp::create(b, type);
  Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
  return CastOp::create(b, type, SplatOp::create(b, type.withElement(b.getF32Type()), zero));
}

//===- LoopAround.cpp - A late MMA continues in the next run --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LoopAround.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-overlap-mmas"

using namespace mlir;
using namespace mlir::tile;

std::optional<LoopAround> LoopAround::find(const LateMma &mma, scf::IfOp branch) {
  auto outer = dyn_cast<scf::ForOp>(branch->getParentOp());
  auto refuse = [&](const Twine &why) -> std::optional<LoopAround> {
    decline(DEBUG_TYPE, branch, "no MMA is left to the next run, as " + why);
    return std::nullopt;
  };
  if (!outer)
    return refuse("no loop encloses it");
  if (mma.sharesTile)
    return refuse("a remaining MMA also reads the tile");
  LoopAround found(mma, branch, outer);
  std::optional<unsigned> sum = found.numberOf(mma.carried);
  if (!sum)
    return refuse("the sum does not go from run to run");
  found.sum = *sum;
  for (auto [number, step] : mma.counts) {
    std::optional<unsigned> count = found.numberOf(number);
    if (!count)
      return refuse("the position of the tile does not go from run to run");
    found.counts[number] = *count;
  }
  // A tile may be missing in the sum: only the late MMA's loop may use it, and a branch before which none is
  // pending.
  BlockArgument before = outer.getRegionIterArg(*sum);
  auto passesOn = [&](Operation *user) { return user == mma.loop || user == branch.elseYield(); };
  Value after = outer.getYieldedValues()[*sum];
  if (!llvm::all_of(before.getUsers(), passesOn) || !found.findReader(after) ||
      branch.elseYield().getOperand(cast<OpResult>(after).getResultNumber()) != before)
    return refuse("something else reads the sum, under a condition that is not known before the run");
  auto isFound = [&](Operation *op) {
    return llvm::all_of(op->getOperands(), [&](Value v) { return found.isFoundBehind(v); });
  };
  StartMmaOp start = mma.start;
  bool areFound = found.isFoundBehind(start.getRhs()) && llvm::all_of(mma.waits, isFound) &&
                  llvm::all_of(mma.releases, [&](ArriveOp op) { return isFound(op); });
  return areFound ? std::optional(found) : refuse("its tile cannot be found after the enclosing loop");
}

std::optional<unsigned> LoopAround::numberOf(unsigned inner) {
  scf::ForOp run = mma.loop;
  auto before = dyn_cast<BlockArgument>(run.getInitArgs()[inner]);
  if (!before || before.getOwner() != loop.getBody() || before == loop.getInductionVar())
    return {};
  unsigned number = before.getArgNumber() - loop.getNumInductionVars();
  auto after = dyn_cast<OpResult>(loop.getYieldedValues()[number]);
  if (!after || after.getOwner() != branch ||
      branch.thenYield().getOperand(after.getResultNumber()) != run.getResult(inner))
    return {};
  return number;
}

bool LoopAround::findReader(Value after) {
  for (Operation *user : after.getUsers()) {
    Operation *place = loop.getBody()->findAncestorOpInBlock(*user);
    if (place == loop.getBody()->getTerminator())
      continue;
    auto question = dyn_cast<scf::IfOp>(place);
    if (!question || (reader && reader != question))
      return false;
    reader = question;
  }
  return !reader || isKnownBefore(reader.getCondition());
}

bool LoopAround::isKnownBefore(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != loop.getBody() || op->isBeforeInBlock(branch))
    return true;
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 &&
         llvm::all_of(op->getOperands(), [&](Value v) { return isKnownBefore(v); });
}

void LoopAround::moveBefore(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || op->getBlock() != loop.getBody() || op->isBeforeInBlock(branch))
    return;
  for (Value operand : op->getOperands())
    moveBefore(operand);
  op->moveBefore(branch);
}

bool LoopAround::isFoundBehind(Value value) {
  if (!loop->isAncestor(value.getParentRegion()->getParentOp()))
    return true;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    scf::ForOp run = mma.loop;
    return argument.getOwner() == run.getBody() && argument != run.getInductionVar() &&
           mma.counts.contains(argument.getArgNumber() - run.getNumInductionVars());
  }
  Operation *op = value.getDefiningOp();
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 &&
         llvm::all_of(op->getOperands(), [&](Value v) { return isFoundBehind(v); });
}

Value LoopAround::carry(Value noWeights) {
  IRRewriter rewriter(loop.getContext());
  rewriter.setInsertionPoint(loop);
  Value none = arith::ConstantOp::create(rewriter, loop.getLoc(), rewriter.getBoolAttr(false));
  rewriter.setInsertionPoint(branch);
  SmallVector<Type> types(branch.getResultTypes());
  types.append({noWeights.getType(), none.getType()});
  auto wider = scf::IfOp::create(rewriter, branch.getLoc(), types, branch.getCondition());
  for (auto [region, old] : llvm::zip_equal(wider->getRegions(), branch->getRegions())) {
    region.takeBody(old);
    region.front().getTerminator()->insertOperands(branch.getNumResults(), {noWeights, none});
  }
  rewriter.replaceOp(branch, wider.getResults().drop_back(2));
  branch = wider;
  loop = cast<scf::ForOp>(
      *loop.replaceWithAdditionalYields(rewriter, {noWeights, none}, /*replaceInitOperandUsesInLoop=*/false,
                                        [&](OpBuilder &, Location, ArrayRef<BlockArgument>) {
                                          return SmallVector<Value>(branch.getResults().take_back(2));
                                        }));
  return loop.getRegionIterArgs().drop_back().back();
}

void LoopAround::leaveToNext(MovedMma &moved, ImplicitLocOpBuilder &b) {
  if (reader)
    moveBefore(reader.getCondition());
  scf::ForOp run = mma.loop;
  Value unfinished = run.getResult(mma.carried), weights = run.getResults().back();
  b.setInsertionPoint(branch.thenYield());
  Value next = arith::AddIOp::create(b, loop.getInductionVar(), loop.getStep());
  auto less = loop.getUnsignedCmp() ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt;
  Value leaves = arith::CmpIOp::create(b, less, next, loop.getUpperBound());
  if (reader) {
    Value none = arith::ConstantOp::create(b, b.getBoolAttr(false));
    leaves = arith::SelectOp::create(b, reader.getCondition(), none, leaves);
  }
  auto left = scf::IfOp::create(b, unfinished.getType(), leaves, /*withElseRegion=*/true);
  b.setInsertionPointToEnd(left.thenBlock());
  scf::YieldOp::create(b, unfinished);
  b.setInsertionPointToEnd(left.elseBlock());
  auto inRun = [&](unsigned number) -> Value { return run.getResult(number); };
  scf::YieldOp::create(b, moved.runAll(weights, unfinished, inRun));

  scf::YieldOp yield = branch.thenYield();
  for (OpOperand &operand : yield->getOpOperands())
    if (operand.get() == unfinished)
      operand.set(left.getResult(0));
  yield->setOperands(yield->getNumOperands() - 2, 2, {weights, leaves});
}

void LoopAround::finishPending(MovedMma &moved, ImplicitLocOpBuilder &b) {
  auto carried = loop.getRegionIterArgs();
  Value before = carried[sum], weights = carried.drop_back().back();
  b.setInsertionPointToStart(branch.elseBlock());
  auto finished = scf::IfOp::create(b, before.getType(), isPending(), /*withElseRegion=*/true);
  b.setInsertionPointToEnd(finished.thenBlock());
  auto inLoop = [&](unsigned number) -> Value { return carried[counts[number]]; };
  scf::YieldOp::create(b, moved.runAll(weights, before, inLoop));
  b.setInsertionPointToEnd(finished.elseBlock());
  scf::YieldOp::create(b, before);

  for (OpOperand &operand : branch.elseYield()->getOpOperands())
    if (operand.get() == before)
      operand.set(finished.getResult(0));
}

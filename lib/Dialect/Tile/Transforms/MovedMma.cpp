//===- MovedMma.cpp - Copies of a late MMA --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MovedMma.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::tile;

IRMapping MovedMma::countBack(function_ref<Value(unsigned)> carried, Value isLater) {
  IRMapping mapping;
  for (auto [number, step] : mma.counts) {
    Value count = carried(number);
    Value back = arith::ConstantOp::create(b, b.getIntegerAttr(count.getType(), step));
    if (isLater)
      back = arith::SelectOp::create(b, isLater, back,
                                     arith::ConstantOp::create(b, b.getIntegerAttr(count.getType(), 0)));
    Value earlier = arith::SubIOp::create(b, count, back);
    scf::ForOp loop = mma.loop;
    mapping.map(loop.getRegionIterArg(number), earlier);
  }
  return mapping;
}

Operation *MovedMma::copy(Operation *op, IRMapping &mapping) {
  Region *place = b.getInsertionBlock()->getParent();
  scf::ForOp loop = mma.loop;
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp();
        source && !mapping.contains(operand) &&
        (source->getBlock() == loop.getBody() || !source->getParentRegion()->isAncestor(place)))
      copy(source, mapping);
  return b.clone(*op, mapping);
}

Value MovedMma::start(Value lhs, Value acc, const IRMapping &counted, bool fences) {
  IRMapping mapping = counted;
  for (Operation *wait : mma.waits)
    if (fences || !isa<FenceAsyncOp>(wait))
      copy(wait, mapping);
  StartMmaOp late = mma.start;
  mapping.map(late.getLhs(), lhs);
  mapping.map(late.getAcc(), acc);
  return copy(late, mapping)->getResult(0);
}

void MovedMma::release(const IRMapping &counted, Value condition) {
  IRMapping mapping = counted;
  for (ArriveOp release : mma.releases) {
    auto arrive = cast<ArriveOp>(copy(release, mapping));
    if (!condition)
      continue;
    Value own = arrive.getCondition();
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(arrive);
    arrive.getConditionMutable().assign(own ? arith::AndIOp::create(b, condition, own) : condition);
  }
}

Value MovedMma::runAll(Value lhs, Value acc, function_ref<Value(unsigned)> carried) {
  IRMapping counted = countBack(carried);
  Value finished = finish(start(lhs, acc, counted, /*fences=*/true));
  release(counted);
  return finished;
}

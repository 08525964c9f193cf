//===- MovedDot.cpp - A late dot, written where it starts -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "MovedDot.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::tile;

IRMapping MovedDot::countBack(function_ref<Value(unsigned)> carried, Value isLater) {
  IRMapping mapping;
  for (auto [number, step] : dot.counts) {
    Value count = carried(number);
    Value back = arith::ConstantOp::create(b, b.getIntegerAttr(count.getType(), step));
    if (isLater)
      back = arith::SelectOp::create(b, isLater, back,
                                     arith::ConstantOp::create(b, b.getIntegerAttr(count.getType(), 0)));
    Value earlier = arith::SubIOp::create(b, count, back);
    scf::ForOp loop = dot.loop;
    mapping.map(loop.getRegionIterArg(number), earlier);
  }
  return mapping;
}

Operation *MovedDot::copy(Operation *op, IRMapping &mapping) {
  Region *place = b.getInsertionBlock()->getParent();
  scf::ForOp loop = dot.loop;
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp();
        source && !mapping.contains(operand) &&
        (source->getBlock() == loop.getBody() || !source->getParentRegion()->isAncestor(place)))
      copy(source, mapping);
  return b.clone(*op, mapping);
}

Value MovedDot::start(Value lhs, Value acc, const IRMapping &counted, bool fences) {
  IRMapping mapping = counted;
  for (Operation *wait : dot.waits)
    if (fences || !isa<FenceAsyncOp>(wait))
      copy(wait, mapping);
  StartDotOp late = dot.start;
  mapping.map(late.getLhs(), lhs);
  mapping.map(late.getAcc(), acc);
  return copy(late, mapping)->getResult(0);
}

void MovedDot::release(const IRMapping &counted, Value condition) {
  IRMapping mapping = counted;
  for (ArriveOp release : dot.releases) {
    auto arrive = cast<ArriveOp>(copy(release, mapping));
    if (!condition)
      continue;
    Value own = arrive.getCondition();
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(arrive);
    arrive.getConditionMutable().assign(own ? arith::AndIOp::create(b, condition, own) : condition);
  }
}

Value MovedDot::runAll(Value lhs, Value acc, function_ref<Value(unsigned)> carried) {
  IRMapping counted = countBack(carried);
  Value finished = finish(start(lhs, acc, counted, /*fences=*/true));
  release(counted);
  return finished;
}

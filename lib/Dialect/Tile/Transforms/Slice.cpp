//===- Slice.cpp - Copies of a part of a program --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/Transforms/Slice.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::tile;

/// Returns the origin of a value that may only pass through loops.
static Value originOf(Value value);

/// Whether every iteration passes the loop's initial value on.
static bool isHandedOn(scf::ForOp loop, unsigned number) {
  return originOf(loop.getYieldedValues()[number]) == loop.getRegionIterArg(number);
}

static Value originOf(Value value) {
  while (auto loop = value.getDefiningOp<scf::ForOp>()) {
    unsigned number = cast<OpResult>(value).getResultNumber();
    if (!isHandedOn(loop, number))
      break;
    value = loop.getInitArgs()[number];
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Contents of a slice
//===----------------------------------------------------------------------===//

bool Slice::isOfPart(Operation *op) const {
  Operation *around = first->getBlock()->findAncestorOpInBlock(*op);
  return around && !around->isBeforeInBlock(first) && !last->isBeforeInBlock(around);
}

void Slice::add(Operation *op) {
  addOne(op);
  closeUp();
}

void Slice::add(Value value) {
  open.push_back(value);
  closeUp();
}

void Slice::closeUp() {
  while (!open.empty())
    need(open.pop_back_val());
}

void Slice::addEffects() {
  for (Operation &op : llvm::make_range(Block::iterator(first), std::next(Block::iterator(last))))
    addEffectsOf(op);
}

void Slice::addEffectsOf(Operation &op) {
  if (isa<scf::ForOp, scf::IfOp>(op)) {
    for (Region &region : op.getRegions())
      for (Operation &inner : region.getOps())
        addEffectsOf(inner);
  } else if (!op.hasTrait<OpTrait::IsTerminator>() && !wouldOpBeTriviallyDead(&op)) {
    add(&op);
  }
}

void Slice::addOne(Operation *op) {
  if (!isOfPart(op) || !operations.insert(op))
    return;
  addOne(op->getParentOp());
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return open.append({loop.getLowerBound(), loop.getUpperBound(), loop.getStep()});
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return open.push_back(branch.getCondition());
  llvm::append_range(open, op->getOperands());
  visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *use) { open.push_back(use->get()); });
}

void Slice::need(Value value) {
  if (!needed.insert(value).second)
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (loop && isOfPart(loop) && argument != loop.getInductionVar())
      needCarried(loop, argument.getArgNumber() - loop.getNumInductionVars());
    return;
  }
  Operation *op = value.getDefiningOp();
  if (!isOfPart(op))
    return;
  unsigned number = cast<OpResult>(value).getResultNumber();
  addOne(op);
  if (auto loop = dyn_cast<scf::ForOp>(op)) {
    open.push_back(loop.getRegionIterArg(number));
  } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
    open.push_back(branch.thenYield().getOperand(number));
    open.push_back(branch.elseYield().getOperand(number));
  }
}

void Slice::needCarried(scf::ForOp loop, unsigned number) {
  open.push_back(loop.getInitArgs()[number]);
  if (!isHandedOn(loop, number))
    open.push_back(loop.getYieldedValues()[number]);
}

//===----------------------------------------------------------------------===//
// Copies of a slice
//===----------------------------------------------------------------------===//

void Slice::cloneTo(OpBuilder &b, IRMapping &mapping, Instead instead) const {
  for (Operation &op : llvm::make_range(Block::iterator(first), std::next(Block::iterator(last))))
    clone(b, op, mapping, instead);
}

void Slice::clone(OpBuilder &b, Operation &op, IRMapping &mapping, Instead instead) const {
  if (!operations.contains(&op) || (instead && instead(b, op, mapping)))
    return;
  if (auto loop = dyn_cast<scf::ForOp>(op))
    cloneLoop(b, loop, mapping, instead);
  else if (auto branch = dyn_cast<scf::IfOp>(op))
    cloneBranch(b, branch, mapping, instead);
  else
    b.clone(op, mapping);
}

void Slice::cloneLoop(OpBuilder &b, scf::ForOp loop, IRMapping &mapping, Instead instead) const {
  SmallVector<unsigned> carried;
  SmallVector<Value> inits;
  for (auto [number, argument] : llvm::enumerate(loop.getRegionIterArgs())) {
    if (!needed.contains(argument))
      continue;
    Value init = mapping.lookupOrDefault(loop.getInitArgs()[number]);
    if (isHandedOn(loop, number)) {
      mapping.map(argument, init);
      mapping.map(loop.getResult(number), init);
      continue;
    }
    carried.push_back(number);
    inits.push_back(init);
  }
  auto copy = scf::ForOp::create(b, loop.getLoc(), mapping.lookupOrDefault(loop.getLowerBound()),
                                 mapping.lookupOrDefault(loop.getUpperBound()),
                                 mapping.lookupOrDefault(loop.getStep()), inits,
                                 [&](OpBuilder &inner, Location, Value iteration, ValueRange arguments) {
                                   mapping.map(loop.getInductionVar(), iteration);
                                   for (auto [number, argument] : llvm::zip_equal(carried, arguments))
                                     mapping.map(loop.getRegionIterArg(number), argument);
                                   cloneBody(inner, *loop.getBody(), carried, mapping, instead);
                                 });
  copy->setAttrs(loop->getAttrDictionary());
  for (auto [number, result] : llvm::zip_equal(carried, copy.getResults()))
    mapping.map(loop.getResult(number), result);
}

void Slice::cloneBranch(OpBuilder &b, scf::IfOp branch, IRMapping &mapping, Instead instead) const {
  SmallVector<unsigned> kept;
  for (OpResult result : branch.getResults())
    if (needed.contains(result))
      kept.push_back(result.getResultNumber());
  auto cloneRegion = [&](Region &region) {
    return [&](OpBuilder &inner, Location) { cloneBody(inner, region.front(), kept, mapping, instead); };
  };
  auto isKept = [&](Operation &op) { return operations.contains(&op); };
  bool hasElse = !kept.empty() || llvm::any_of(branch.getElseRegion().getOps(), isKept);
  auto onThen = cloneRegion(branch.getThenRegion()), onElse = cloneRegion(branch.getElseRegion());
  using Body = function_ref<void(OpBuilder &, Location)>;
  auto copy = scf::IfOp::create(b, branch.getLoc(), mapping.lookupOrDefault(branch.getCondition()), onThen,
                                hasElse ? Body(onElse) : Body());
  copy->setAttrs(branch->getAttrDictionary());
  for (auto [number, result] : llvm::zip_equal(kept, copy.getResults()))
    mapping.map(branch.getResult(number), result);
}

void Slice::cloneBody(OpBuilder &b, Block &body, ArrayRef<unsigned> kept, IRMapping &mapping,
                      Instead instead) const {
  for (Operation &op : body.without_terminator())
    clone(b, op, mapping, instead);
  Operation *yield = body.getTerminator();
  SmallVector<Value> values;
  for (unsigned number : kept)
    values.push_back(mapping.lookupOrDefault(yield->getOperand(number)));
  scf::YieldOp::create(b, yield->getLoc(), values);
}

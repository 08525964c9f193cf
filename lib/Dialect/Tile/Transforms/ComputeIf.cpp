//===- ComputeIf.cpp - Values that are computed early ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ComputeIf.h"

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::tile;

/// Whether the operation has a condition operand that stops its reads.
static bool takesCondition(Operation *op) {
  if (auto lookup = dyn_cast<LookupOp>(op))
    return !lookup.getExists();
  auto boxes = dyn_cast<LookupBoxesOp>(op);
  return boxes && !boxes.getExists();
}

Value tile::computeIf(ImplicitLocOpBuilder &b, Value condition, ArrayRef<Operation *> operations, Value value,
                      IRMapping &mapping) {
  if (llvm::all_of(operations, [](Operation *op) { return isPure(op) || takesCondition(op); })) {
    for (Operation *op : operations) {
      Operation *copy = b.clone(*op, mapping);
      if (takesCondition(copy))
        copy->insertOperands(copy->getNumOperands(), condition); // the last operand
    }
    return mapping.lookupOrDefault(value);
  }
  auto branch = scf::IfOp::create(b, TypeRange{value.getType()}, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  for (Operation *op : operations)
    b.clone(*op, mapping);
  scf::YieldOp::create(b, mapping.lookupOrDefault(value));
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, Value(arith::ConstantOp::create(b, b.getZeroAttr(value.getType()))));
  return branch.getResult(0);
}

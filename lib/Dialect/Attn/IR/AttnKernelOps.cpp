//===- AttnKernelOps.cpp - Online operations in a kernel ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace mlir::attn;

LogicalResult OneOfOp::verify() {
  SmallVector<UpdateOp> updates;
  for (Value state : getStates())
    updates.push_back(state.getDefiningOp<UpdateOp>());
  if (updates.empty() || llvm::is_contained(updates, UpdateOp()))
    return emitOpError("expected results of attn.update");
  for (UpdateOp update : updates)
    if (update.getState() != updates.front().getState() || update.getQuery() != updates.front().getQuery())
      return emitOpError("expected updates of one state by the same rows");
  return success();
}

LogicalResult WriteOp::verify() {
  if (!getRows() == !getRow())
    return emitOpError("expected either rows of a task or a row of the output");
  return success();
}

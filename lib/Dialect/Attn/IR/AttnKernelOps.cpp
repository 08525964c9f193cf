//===- AttnKernelOps.cpp - Online operations in a kernel ------------------===//
#include "attn/Dialect/Attn/IR/Attn.h"

using namespace mlir;
using namespace mlir::attn;

LogicalResult WriteOp::verify() {
  if (!getRows() == !getRow())
    return emitOpError("expected either rows of a task or a row of the output");
  return success();
}

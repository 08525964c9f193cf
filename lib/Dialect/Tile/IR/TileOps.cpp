//===- TileOps.cpp - Operations of the tile dialect -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::tile;

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"

LogicalResult tile::verifyBody(Operation *op, Region &region, TypeRange arguments, Type result) {
  Block &block = region.front();
  if (block.getArgumentTypes() != arguments) {
    InFlightDiagnostic error = op->emitOpError("expected a region of (");
    llvm::interleaveComma(arguments, error);
    error << "), got (";
    llvm::interleaveComma(block.getArgumentTypes(), error);
    return error << ")";
  }
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield)
    return op->emitOpError("expected a region that ends with tile.yield");
  if (yield.getValue().getType() != result)
    return op->emitOpError("expected the region to yield ")
           << result << ", got " << yield.getValue().getType();
  return success();
}

//===- TileOps.cpp - Operations of the tile dialect -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::tile;

/// Parses a region with its arguments first: `(%line: i32) { ... }`.
static ParseResult parseBody(OpAsmParser &parser, Region &region) {
  SmallVector<OpAsmParser::Argument> arguments;
  return failure(parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren, /*allowType=*/true) ||
                 parser.parseRegion(region, arguments));
}
static void printBody(OpAsmPrinter &printer, Operation *, Region &region) {
  printer << '(';
  llvm::interleaveComma(region.getArguments(), printer,
                        [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ") ";
  printer.printRegion(region, /*printEntryBlockArgs=*/false);
}

/// Parses the same, or nothing for a region without a block.
static ParseResult parseOptionalBody(OpAsmParser &parser, Region &region) {
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseArgumentList(arguments, OpAsmParser::Delimiter::OptionalParen, /*allowType=*/true))
    return failure();
  return arguments.empty() ? success() : parser.parseRegion(region, arguments);
}
static void printOptionalBody(OpAsmPrinter &printer, Operation *op, Region &region) {
  if (region.empty())
    return;
  printer << ' ';
  printBody(printer, op, region);
}

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"

LogicalResult tile::verifyBody(Operation *op, Region &region, TypeRange arguments, TypeRange results) {
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
  if (yield.getValues().getTypes() != results)
    return op->emitOpError("expected the region to yield ")
           << results << ", got " << yield.getValues().getTypes();
  return success();
}

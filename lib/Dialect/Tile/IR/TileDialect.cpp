//===- TileDialect.cpp - Registration of the tile dialect -----------------===//
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::tile;

#include "attn/Dialect/Tile/IR/TileDialect.cpp.inc"
#include "attn/Dialect/Tile/IR/TileEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileAttributes.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/Dialect/Tile/IR/TileAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"
      >();
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, ScheduleKind kind,
                                   int64_t rows, int64_t keys, int64_t warps, int64_t stages,
                                   int64_t blocks, bool splitKeys, bool queryInRegisters) {
  if (warps < 1 || warps > 16)
    return emitError() << "expected 1 to 16 warps, got " << warps;
  if (stages < 1 || stages > 8)
    return emitError() << "expected 1 to 8 stages, got " << stages;
  if (blocks < 1 || blocks > 8)
    return emitError() << "expected 1 to 8 blocks per multiprocessor, got " << blocks;
  int64_t warpRows = splitKeys ? rows : rows / warps;
  int64_t warpKeys = splitKeys ? keys / warps : keys;
  if (warpRows != 16 || (!splitKeys && rows % warps != 0))
    return emitError() << "expected 16 rows per warp, got " << warpRows << " (rows = " << rows
                       << ", warps = " << warps << ")";
  if (warpKeys < 16 || warpKeys % 16 != 0 || (splitKeys && keys % warps != 0))
    return emitError() << "expected the keys of a warp to be a multiple of 16, got " << warpKeys;
  if (!splitKeys && keys / warps < 4)
    return emitError() << "expected at least 4 keys per warp to copy, got " << keys / warps;
  return success();
}

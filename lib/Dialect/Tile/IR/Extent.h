//===- Extent.h - Extents of tiles and fragments ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_EXTENT_H
#define ATTN_DIALECT_TILE_IR_EXTENT_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::tile {

/// Parses an axis and the number of elements along it: `key 64`.
ParseResult parseExtent(AsmParser &parser, Axis &axis, int64_t &size);
/// Refuses sizes that no tile has.
LogicalResult verifyExtent(function_ref<InFlightDiagnostic()> emitError, Axis axis, int64_t size);

} // namespace mlir::tile

#endif

//===- Verify.h - Common parts of operation verifiers -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_VERIFY_H
#define ATTN_DIALECT_TILE_IR_VERIFY_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::tile {

/// Whether a fragment has a layout, or no layout yet.
inline bool mayHaveLayout(FragmentType type, Layout layout) {
  return type.getLayout() == Layout::Unassigned || type.getLayout() == layout;
}

/// Verifies a region of scalars: it takes `arguments`, and ends with a yield of `results`.
LogicalResult verifyBody(Operation *op, Region &region, TypeRange arguments, TypeRange results);

} // namespace mlir::tile

#endif

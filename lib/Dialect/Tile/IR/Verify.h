//===- Verify.h - What verifiers of operations share ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_VERIFY_H
#define ATTN_DIALECT_TILE_IR_VERIFY_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::tile {

/// Unassigned fragments may still become what is asked for.
inline bool mayHaveLayout(FragmentType type, Layout layout) {
  return type.getLayout() == Layout::Unassigned || type.getLayout() == layout;
}

/// A region of scalars: takes `arguments`, ends with a yield of `results`.
LogicalResult verifyBody(Operation *op, Region &region, TypeRange arguments, TypeRange results);

} // namespace mlir::tile

#endif

//===- CacheHint.h - What the L2 is told of an access -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An attribute of what reads or writes global memory, at the tile level and at the
// machine level: which of what the L2 holds it is to give up first, or last. It changes
// nothing that is computed; the host device does not look at it.
//
// A write may also discard: the line of 128 bytes that it begins has been read for the
// last time, and what the L2 holds of it need not go to memory. What is written is then
// not to be read either, so a GPU writes nothing; the host device does, and finds who
// reads it, or did not wait for those who read the line.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_CACHEHINT_H
#define ATTN_DIALECT_TILE_IR_CACHEHINT_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::tile {

/// Its values: strings, in PTX's words.
inline constexpr StringLiteral evictFirst = "evict_first", evictLast = "evict_last", discards = "discard";
/// What is discarded at once.
inline constexpr int64_t discardedBytes = 128;

inline void setCacheHint(Operation *access, StringRef hint) {
  access->setDiscardableAttr(cacheHintAttr, StringAttr::get(access->getContext(), hint));
}
inline StringAttr cacheHintOf(Operation *access) { return cacheHintAttr.get(access); }
/// Lets `access` say what the operation says that it was made from.
inline void passCacheHint(Operation *from, Operation *access) {
  if (StringAttr hint = cacheHintOf(from))
    access->setDiscardableAttr(cacheHintAttr, hint);
}

} // namespace mlir::tile

#endif

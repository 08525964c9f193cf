//===- CacheHint.h - L2 hints of an access ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An attribute of operations that read or write global memory, at the tile level and at the machine level. It
// tells the L2 which lines to evict first, or last. It changes no result; the host device ignores it.
//
// A write may also discard. The line of 128 bytes that it begins has been read for the last time, so the L2
// need not write it back to memory. The written value must not be read either, so a GPU writes nothing. The
// host device does write, and so detects later reads, and reads of the line that the write did not wait for.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_CACHEHINT_H
#define ATTN_DIALECT_TILE_IR_CACHEHINT_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::tile {

/// Values of the hint: strings, in PTX's words.
inline constexpr StringLiteral evictFirst = "evict_first", evictLast = "evict_last", discards = "discard";
/// Bytes of a discarded line.
inline constexpr int64_t discardedBytes = 128;

inline void setCacheHint(Operation *access, StringRef hint) {
  access->setDiscardableAttr(cacheHintAttr, StringAttr::get(access->getContext(), hint));
}
inline StringAttr cacheHintOf(Operation *access) { return cacheHintAttr.get(access); }
/// Copies the hint of the operation `from` to `access`, which was made from it.
inline void passCacheHint(Operation *from, Operation *access) {
  if (StringAttr hint = cacheHintOf(from))
    access->setDiscardableAttr(cacheHintAttr, hint);
}

} // namespace mlir::tile

#endif

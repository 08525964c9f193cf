//===- RowMemory.h - Where rows of keys and values lie ----------*- C++ -*-===//
//
// Of rows in their order the tensor says it, of slots their store.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWMEMORY_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWMEMORY_H

#include "Kernel.h"

namespace mlir::attn {

/// Bytes of which a lane reads or writes as many as it can at once, and in which layers are counted.
constexpr int64_t rowChunkBytes = 16;

/// The keys or the values of one argument: its rows lie behind each other.
struct RowMemory {
  std::string buffer, layer; ///< parameters: the memory, and chunks from a layer to the next
  int64_t rowBytes;

  int64_t chunks() const { return rowBytes / rowChunkBytes; }
};

/// `argument` is a tensor of rows, or a cache.
RowMemory rowMemoryOf(Value argument, RowPart part);

} // namespace mlir::attn

#endif

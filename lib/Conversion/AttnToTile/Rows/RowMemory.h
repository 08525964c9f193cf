//===- RowMemory.h - Where rows of keys and values lie ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tensor gives the address of a row in order; a cache's store gives the
// address of a slot.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWMEMORY_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWMEMORY_H

#include "AttnToTile/Kernel/Kernel.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// The bytes that a lane reads or writes at once, at most, and the chunk in which layers of rows are counted.
constexpr int64_t rowChunkBytes = 16;
/// The chunk in which layers of metadata are counted.
constexpr int64_t metaWordBytes = 4;
/// The numbers that a lane holds of a row when it computes with them: 16 bytes of f16.
constexpr int64_t rowNumbers = 8;

/// The keys or the values of one argument, or their metadata.
struct RowMemory {
  std::string buffer, layer; ///< parameters: the memory, and the distance of layers
  int64_t rowBytes = 0;

  int64_t chunks(int64_t chunk) const { return rowBytes / chunk; }
};

/// `argument` is a tensor of rows, or a cache; `meta` asks for the metadata of a cache.
RowMemory rowMemoryOf(Value argument, RowPart part, bool meta = false);

/// The scales that quantized values of a head, or of a whole cache, share.
RowMemory sharedScalesOf(Value cache, RowPart part);

/// The stored form of keys or values in a cache, or in a tensor of rows.
::attn::rt::StorePart storedPartOf(Value argument, RowPart part);

/// The numbers that share metadata computed when rows are written; a lane's own numbers if there is none.
int64_t numbersTogether(const ::attn::rt::StorePart &part);

} // namespace mlir::attn

#endif

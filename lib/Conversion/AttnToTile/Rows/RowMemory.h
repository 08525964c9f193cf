//===- RowMemory.h - Where rows of keys and values lie ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of rows in their order the tensor says it, of slots their store.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWMEMORY_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWMEMORY_H

#include "AttnToTile/Kernel/Kernel.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// Bytes of which a lane reads or writes as many as it can at once, and in which layers of rows are counted.
constexpr int64_t rowChunkBytes = 16;
/// What layers of metadata are counted in.
constexpr int64_t metaWordBytes = 4;
/// Numbers that a lane holds of a row where it computes with them: 16 bytes of f16.
constexpr int64_t rowNumbers = 8;

/// The keys or the values of one argument, or their metadata.
struct RowMemory {
  std::string buffer, layer; ///< parameters: the memory, and how far layers are apart
  int64_t rowBytes = 0;

  int64_t chunks(int64_t chunk) const { return rowBytes / chunk; }
};

/// `argument` is a tensor of rows, or a cache: then `meta` asks for the metadata of its codes.
RowMemory rowMemoryOf(Value argument, RowPart part, bool meta = false);

/// The scales that the codes of a head or of all share in a cache.
RowMemory sharedScalesOf(Value cache, RowPart part);

/// What a cache holds of keys or values, and a tensor of rows.
::attn::rt::StorePart storedPartOf(Value argument, RowPart part);

/// Numbers that share metadata which is found where they are written; a lane's own where there is none.
int64_t numbersTogether(const ::attn::rt::StorePart &part);

} // namespace mlir::attn

#endif

//===- TokenTiles.h - Tokens of a region in shared memory -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TOKENTILES_H
#define ATTN_CONVERSION_TOKENTILES_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// The tiles that tokens of a region are copied to. Metadata lies beside codes that have some by line: in as
/// many narrow tiles as a line has parts, which copies can take and lanes read at once.
struct TokenTiles {
  tile::SharedType keys, values;
  SmallVector<tile::SharedType> keyMeta, valueMeta;

  /// For `lines` tokens, whose keys and values have so many features in a tile.
  static TokenTiles of(KVType region, int64_t lines, int64_t keyDim, int64_t valueDim);
  /// In the order in which they are allocated, and stand in attn.staged.
  SmallVector<tile::SharedType> all() const;
};

/// Whether two regions' tokens have tiles alike.
bool haveSameTiles(KVType a, KVType b);
/// The first of each kind of region: those of one kind have tiles alike, and share them.
SmallVector<KVType> regionsByTiles(ArrayRef<KVType> regions);

} // namespace mlir::attn

#endif

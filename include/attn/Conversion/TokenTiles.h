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

/// A ring of tiles of a kind of region.
struct TokenRing {
  unsigned kind;
  tile::SharedType tile;
  /// The number of a ring whose place it takes; else it has one of its own. A loop over tiles ends when all
  /// have arrived and whoever copied them has left them, so rings of two kinds are never in use at once.
  /// Where warps copy for themselves, they wait for nobody else: what one warp has of a ring must be what it
  /// has of the other, so both have as many bytes.
  std::optional<unsigned> under = std::nullopt;
};
/// The rings of these kinds in the order of their allocation; `together`: whether they may take each other's
/// places.
SmallVector<TokenRing> tokenRings(ArrayRef<KVType> kinds, int64_t lines, int64_t keyDim, int64_t valueDim,
                                  bool together);

} // namespace mlir::attn

#endif

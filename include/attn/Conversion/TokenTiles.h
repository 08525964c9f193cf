//===- TokenTiles.h - Tokens of a region in shared memory -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TOKENTILES_H
#define ATTN_CONVERSION_TOKENTILES_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// The tiles that tokens of a region are copied to. Metadata per line lies beside the quantized values, in
/// several narrow tiles: a copy can take the width of one, and a lane reads it at once.
struct TokenTiles {
  tile::SharedType keys, values;
  tile::SharedType keyRest; ///< features that are not quantized beside those that are; null without
  SmallVector<tile::SharedType> keyMeta, valueMeta;

  /// The tiles of `lines` tokens whose keys and values have `keyDim` and `valueDim` features in a tile.
  static TokenTiles of(KVType region, int64_t lines, int64_t keyDim, int64_t valueDim);
  /// All tiles, in the order of their allocation, which is also their order in `attn.staged`.
  SmallVector<tile::SharedType> all() const;
};

/// Whether a kernel of this schedule converts its tile of queries to f16, in place: e4m3 becomes f16 by one
/// instruction for two elements, and bf16 by four. Queries in registers are converted there.
bool narrowsQueries(tile::ScheduleAttr schedule, ArrayRef<KVType> regions, Type element);
/// The bytes in which the warps of such a kernel keep their largest elements.
inline int64_t largestBytes(tile::ScheduleAttr schedule) { return 4 * schedule.getWarps(); }

/// Whether warps that only copy also widen tiles of tokens of these regions: wgmma reads keys and values from
/// shared memory, in the 16-bit type that it multiplies. A kernel has one region then.
bool widensTokens(tile::ScheduleAttr schedule, ArrayRef<KVType> regions);
/// Whether these warps widen tokens on their way instead: they come to registers, without a stage in shared
/// memory. The widened tiles of latents leave no room for one.
bool widensOnTheWay(tile::ScheduleAttr schedule, ArrayRef<KVType> regions);

/// A ring of a kernel whose producers widen tokens.
struct WideningRing {
  Copy name;
  bool isStored; ///< whether it holds tokens as they lie in the cache; otherwise MMAs or warps that compute
                 ///< read it
  tile::RingType type;
};
/// These rings in the order of their allocation. Widened keys, values and scales of keys have `stages` tiles.
SmallVector<WideningRing> wideningRings(KVType region, int64_t lines, int64_t keyDim, int64_t valueDim,
                                        int64_t stages);

/// Whether the tokens of two regions have the same tiles.
bool haveSameTiles(KVType a, KVType b);
/// The first region of each kind. Regions of one kind have the same tiles, and share them.
SmallVector<KVType> regionsByTiles(ArrayRef<KVType> regions);

/// A ring of tiles of a kind of region.
struct TokenRing {
  unsigned kind;
  tile::SharedType tile;
  /// The number of the ring whose memory this ring shares; without one it has memory of its own. A loop over
  /// tiles ends when all copies have arrived and the warps that made them have left the tiles. So rings of
  /// two kinds are never in use at once. Warps that copy for themselves wait for no other warp. A warp's part
  /// of one ring must therefore be its part of the other, so both have the same number of bytes.
  std::optional<unsigned> under = std::nullopt;
};
/// Whether a copy is of values alone.
inline bool areValues(Copy name) { return name == Copy::Values || name == Copy::ValuesBehind; }

/// A ring of one half of a tile of tokens that two warpgroups divide (`shared_weights`).
struct HalfRing {
  Copy name;
  tile::SharedType tile;
  bool hasValues; ///< whether lines that are no tokens must be zeros
};
/// The two rings of the first half, and those of the half behind it: of latents the features of the first
/// warpgroup's values and the other features, otherwise keys and values. `element`: of what is multiplied.
SmallVector<HalfRing> halfRings(KVType region, tile::ScheduleAttr schedule, int64_t keyDim, int64_t valueDim,
                                Type element);
/// The type in which weights that are shared are multiplied, beside queries of `element`: f16 if values are
/// quantized and warps convert them.
Type weightElement(tile::ScheduleAttr schedule, ArrayRef<KVType> regions, Type element);
/// The tile in which one warpgroup leaves the weights of its half of a tile for another, or each of two warps
/// (`shared_weights`).
tile::SharedType weightsTile(tile::ScheduleAttr schedule, Type element);
/// The tile of the sums of weights that each of these has for a row, and of the units that each has found.
tile::SharedType unitsTile(tile::ScheduleAttr schedule);
/// The rings of these kinds in the order of their allocation. `together`: whether they may share memory.
SmallVector<TokenRing> tokenRings(ArrayRef<KVType> kinds, int64_t lines, int64_t keyDim, int64_t valueDim,
                                  bool together);

} // namespace mlir::attn

#endif

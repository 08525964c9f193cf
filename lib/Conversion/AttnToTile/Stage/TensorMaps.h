//===- TensorMaps.h - Boxes that the copy engine moves ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_TENSORMAPS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_TENSORMAPS_H

#include "AttnToTile/Kernel/Kernel.h"
#include "AttnToTile/Kernel/Parts.h"

namespace mlir::attn {

/// `extent` elements times the named dimensions, `stride` bytes apart, times the dimension `times` if that is
/// named, `box` of them in a copy.
struct MapAxis {
  int64_t extent;
  SmallVector<std::string> dims;
  int64_t stride, box;
  std::string times;
};

/// Makes a tensor map for each width of the tile's panels. Its axes are features of a panel, then `inner`,
/// then slots, panels and heads. Boxes hold whole panels: all of one width where they are as long as the
/// tile. Where the tile's lines are padded, the first axis is all features that exist, so that what is behind
/// them is outside of the tensor, and there is one panel.
SmallVector<Value> tensorMaps(KernelBuilder &b, StringRef name, StringRef buffer, tile::SharedType tile,
                              int64_t lines, std::optional<MapAxis> inner, MapAxis slots, int64_t features,
                              MapAxis heads);
/// Makes the tensor maps of packed rows: their heads, then the next query row. Rows lie densely, or
/// as far apart as the launch says.
SmallVector<Value> rowMaps(KernelBuilder &b, FormAttr form, RowsPart &packed, StringRef buffer,
                           tile::SharedType tile, int64_t features, bool dense);

/// Whether a tile's lines are longer than those of the tensor it is copied from or to.
inline bool isPadded(tile::SharedType tile, int64_t features) { return tile.getCols() > features; }
/// The features that exist of a gather's sources, which it must know if one of its targets is padded.
DenseI64ArrayAttr paddedFrom(ValueRange targets, ArrayRef<int64_t> features);

} // namespace mlir::attn

#endif

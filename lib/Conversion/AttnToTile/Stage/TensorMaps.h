//===- TensorMaps.h - Boxes that the copy engine moves ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_TENSORMAPS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_TENSORMAPS_H

#include "AttnToTile/Kernel/Kernel.h"
#include "AttnToTile/Kernel/Parts.h"

namespace mlir::attn {

/// An axis of a tensor map. Its extent is `extent` times the named dimensions `dims`. Its stride is `stride`
/// bytes, times the dimension `times` if that is named. A box has `box` elements of it.
struct MapAxis {
  int64_t extent;
  SmallVector<std::string> dims;
  int64_t stride, box;
  std::string times;
};

/// Makes a tensor map for each width of the tile's panels. Its axes are features of a panel, then `inner`,
/// then slots, panels and heads. A box holds whole panels: all panels of one width if it is as long as the
/// tile. If the tile's lines are padded, the first axis has all features that exist, so that the padding is
/// outside of the tensor, and there is one panel.
SmallVector<Value> tensorMaps(KernelBuilder &b, StringRef name, StringRef buffer, tile::SharedType tile,
                              int64_t lines, std::optional<MapAxis> inner, MapAxis slots, int64_t features,
                              MapAxis heads);
/// Makes the tensor maps of packed rows: their heads, then the next query row. Rows are dense, or have the
/// strides that the launch gives.
SmallVector<Value> rowMaps(KernelBuilder &b, FormAttr form, RowsPart &packed, StringRef buffer,
                           tile::SharedType tile, int64_t features, bool dense);

/// Whether a tile's lines are longer than those of the tensor it is copied from or to.
inline bool isPadded(tile::SharedType tile, int64_t features) { return tile.getCols() > features; }
/// The number of features that exist in each of a gather's sources; null if no target is padded.
DenseI64ArrayAttr paddedFrom(ValueRange targets, ArrayRef<int64_t> features);

} // namespace mlir::attn

#endif

//===- TileCopies.h - Copies of a kernel's tiles ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_TILECOPIES_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_TILECOPIES_H

#include "AttnToTile/Kernel/TaskView.h"

namespace mlir::attn {

/// Writes copies of rows and tokens to shared memory, and of results out of it.
class TileCopies : public TaskView {
public:
  using TaskView::TaskView;

  /// Copies the task's queries to `target`.
  void gatherQueries(Value target, tile::Scope scope);
  /// Copies the rows of the tensors of these names, which lie densely: queries, and what has as many features
  /// as a value.
  void gatherRows(ArrayRef<StringRef> names, ValueRange targets, tile::Scope scope);
  /// Copies a number of each row, by one warp: its position, or its LSE or delta.
  void gatherNumbers(StringRef name, Value target);
  /// Where the tokens of the tile from `firstKey` on lie, where a table says that; else null.
  Value lookupTokens(UpdateOp update, const Segment &segment, Value firstKey, tile::Scope scope);
  /// Copies keys, values or both of that tile, whose tokens were looked up, and their metadata by line: to
  /// the targets in the order of TokenTiles.
  void gatherTokens(UpdateOp update, const Segment &segment, Value firstKey, Value slots,
                    ArrayRef<StringRef> parts, ValueRange targets, tile::Scope scope);
  /// The same as bulk copies, by one warp.
  void fetchQueries(Value target);
  /// The rows of one of the tensors that gatherRows copies.
  void fetchRows(StringRef name, Value target);
  /// Writes a warpgroup's rows of the output, from the task's `firstRow` on, by way of their box of the
  /// queries, which nobody else uses. Its warps meet at the barrier; until finish_sends the box must stay as
  /// it is.
  void sendOutput(Value output, Value queries, Value firstRow, Value barrier);
  /// Adds a tile of rows from a row on and of features, from a panel on if one is given, f32, to sums of the
  /// rows' gradients.
  void sendSums(Value tile, Value firstRow, Value panel);
  void fetchTokens(UpdateOp update, const Segment &segment, Value slot, StringRef part, Value target);
  /// A ring of so many tiles.
  Value ring(int64_t stages, tile::SharedType tile) {
    return tile::AllocOp::create(b, tile::RingType::get(b.getContext(), stages, tile), Value(), false,
                                 IntegerAttr());
  }
  /// A tile of it, with what `copies` writes into it; by one of the warps that copy, or by all.
  Value fill(Value ring, std::optional<int64_t> warp, function_ref<void(Value)> copies);
  /// Where this lane's box of the tile from `firstKey` on begins, of keys and values alike.
  Value fetchSlot(UpdateOp update, const Segment &segment, Value firstKey);

  /// The task's head among those of the operand's store.
  Value placeOf(UpdateOp update, const Segment &segment);

private:
  /// `extent` elements times the named dimensions, `stride` bytes apart, times the dimension `times` if that
  /// is named, `box` of them in a copy.
  struct MapAxis {
    int64_t extent;
    SmallVector<std::string> dims;
    int64_t stride, box;
    std::string times;
  };
  SmallVector<Value> tensorMaps(StringRef name, StringRef buffer, tile::SharedType tile, int64_t lines,
                                std::optional<MapAxis> inner, MapAxis slots, int64_t features, MapAxis heads);
  SmallVector<Value> rowMaps(StringRef buffer, tile::SharedType tile, int64_t dim);
  /// Whether a tile's lines are longer than those of the tensor it is copied from or to.
  static bool isPadded(tile::SharedType tile, int64_t features) { return tile.getCols() > features; }
  /// Lines of the boxes in which a region's keys or values come.
  int64_t linesOf(UpdateOp update, StringRef part) {
    ArrayRef<int64_t> copies = part == "k" ? schedule.getKeyCopies() : schedule.getValueCopies();
    return copies[llvm::find(chain.updates, update) - chain.updates.begin()];
  }
  /// What a gather reads, by target.
  struct Sources {
    SmallVector<Value> buffers, origins, pitches;
    SmallVector<int64_t> strides, features;
  };
  void addCodes(UpdateOp update, const Segment &segment, StringRef which, Sources &from);
  void addMeta(UpdateOp update, const Segment &segment, StringRef which, Sources &from);
  /// How many heads the store of a class has, where gathers need to know it: where lines have metadata and
  /// all heads of a slot lie behind one another.
  Value heads(UpdateOp update);
  Value slotOf(UpdateOp update, const Segment &segment, Value token, bool startsPage = false);
};

} // namespace mlir::attn

#endif

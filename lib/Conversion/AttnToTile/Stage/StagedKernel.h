//===- StagedKernel.h - What staging asks of a kernel -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEDKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEDKERNEL_H

#include "AttnToTile/Kernel/Parts.h"

#include "attn/Conversion/TokenTiles.h"

namespace mlir::attn {

/// A kernel's attributes, and the operations that take rows and tokens, in the order of the text.
struct StagedKernel {
  explicit StagedKernel(func::FuncOp kernel)
      : b(kernel), form(formAttr.get(kernel)), schedule(tile::scheduleAttr.get(kernel)) {
    kernel.walk([&](RowsOp op) { rows.push_back(op); });
    kernel.walk([&](UpdateOp op) { updates.push_back(op); });
    kernel.walk([&](InitGradientOp op) { gradient = op; });
    kernel.walk([&](InitSignificanceOp) { significance = true; });
  }

  /// The regions of the updates.
  SmallVector<KVType> regions() {
    return llvm::map_to_vector(updates, [](UpdateOp update) { return update.getKv().getType(); });
  }
  /// Whether some warps only copy.
  bool hasProducers() const { return schedule.getProducerWarps() > 0; }
  /// Whether the kernel reads finished rows and their LSEs.
  bool readsFinished() const { return gradient || significance; }
  /// Whether numbers of rows are copied to shared memory beside the rows, and not read into registers.
  bool stagesNumbers() const { return form.keepsTokens() && form.getMmas() == Mmas::Wgmma; }
  /// Whether the kernel adds up gradients of values alone, and computes no gradients of scores.
  bool addsValuesAlone() {
    return gradient && gradient.getGradient().getType().getOf() == Stationary::Values;
  }
  /// The lines of a tile of rows, and of a tile of tokens: of a block, or of one warp if warps have tiles of
  /// their own.
  int64_t rowLines() const { return form.keepsTokens() ? schedule.getKeys() : schedule.getRows(); }
  int64_t tokenLines() const {
    if (schedule.sharesWeights() && !splitsTiles())
      return schedule.getKeys();
    return form.keepsTokens() && !significance ? schedule.getRows() : form.getKeys();
  }
  /// Whether the halves of a tile of tokens are copied one by one.
  bool splitsTiles() const { return schedule.sharesWeights() && hasProducers(); }
  /// Whether the warps that copy tokens widen them, and hold them in registers meanwhile.
  bool widensOnTheWay() { return attn::widensOnTheWay(schedule, regions()); }
  /// The features of a tile of values, of which warps that share rows read slices.
  int64_t valueFeatures() const { return form.getValueTile() * schedule.getSlices(); }
  /// The type of a tile of rows, or of one number for each row. The element is the query's type unless given.
  tile::SharedType rowTile(int64_t lines, int64_t features, int64_t boxes = 0, Type element = {}) {
    return tile::SharedType::get(b.getContext(), tile::Axis::Query, lines, tile::Axis::Feature, features,
                                 element ? element : form.getElement(), /*swizzled=*/false, boxes);
  }

  KernelBuilder b;
  FormAttr form;
  tile::ScheduleAttr schedule;
  SmallVector<RowsOp> rows;
  SmallVector<UpdateOp> updates;
  InitGradientOp gradient; ///< null if no gradients are added up
  bool significance = false;
};

/// Replaces later uses of a part by the part with its copies.
inline void standIn(KernelBuilder &b, Value part, ArrayRef<Copy> names, ValueRange copies) {
  auto staged = StagedOp::create(b, part, names, copies);
  part.replaceAllUsesExcept(staged.getResult(), staged);
}

} // namespace mlir::attn

#endif

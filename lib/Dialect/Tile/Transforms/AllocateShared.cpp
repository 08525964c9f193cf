//===- AllocateShared.cpp - Offsets in the block's shared memory ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/SharedMemory.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::tile {
#define GEN_PASS_DEF_ALLOCATESHAREDPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct AllocateShared : tile::impl::AllocateSharedPassBase<AllocateShared> {
  void runOnOperation() override {
    Builder builder(&getContext());
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = tile::scheduleAttr.get(kernel);
      SharedMemory memory;
      WalkResult result =
          kernel.walk([&](AllocOp alloc) { return WalkResult(allocate(alloc, schedule, memory)); });
      if (result.wasInterrupted() || failed(verify(kernel, schedule, memory)))
        return signalPassFailure();
      tile::sharedBytesAttr.set(kernel, builder.getI64IntegerAttr(memory.getBytes()));
    }
  }

  LogicalResult allocate(AllocOp alloc, ScheduleAttr schedule, SharedMemory &memory) {
    if (alloc.getPerWarp() && !schedule)
      return alloc.emitOpError("is per warp, but the kernel has no tile.schedule with the number of warps");
    int64_t copies = alloc.getPerWarp() ? schedule.getWarps() : 1;
    Type type = alloc.getMemory().getType();
    Value base = alloc.getOverlays();
    if (!base) {
      alloc.setOffset(memory.place(type, copies));
      ++placed;
      return success();
    }
    auto under = base.getDefiningOp<AllocOp>();
    if (!under || !under.getOffset())
      return alloc.emitOpError("overlays memory that is not allocated before it");
    memory.overlay(*under.getOffset(), type, copies);
    alloc.setOffset(under.getOffset());
    ++overlaid;
    return success();
  }

  /// Verifies the prediction by which the schedule was chosen: otherwise a launch might request more memory
  /// than exists.
  static LogicalResult verify(func::FuncOp kernel, ScheduleAttr schedule, const SharedMemory &memory) {
    if (!schedule || !schedule.getSharedBytes() || *schedule.getSharedBytes() == memory.getBytes())
      return success();
    return kernel.emitError() << "internal error: takes " << memory.getBytes()
                              << " bytes of shared memory, and its schedule was chosen for "
                              << *schedule.getSharedBytes();
  }
};

} // namespace

//===- AllocateShared.cpp - Offsets in the block's shared memory ----------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/Support/MathExtras.h"

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
      int64_t next = 0, total = 0;
      auto schedule = kernel->getAttrOfType<ScheduleAttr>("tile.schedule");
      WalkResult result = kernel.walk([&](AllocOp alloc) {
        int64_t bytes = memoryBytes(alloc.getMemory().getType());
        if (alloc.getPerWarp()) {
          if (!schedule) {
            alloc.emitOpError(
                "is per warp, but the kernel has no tile.schedule that says how many there are");
            return WalkResult::interrupt();
          }
          bytes *= schedule.getWarps();
        }
        // Swizzles repeat every 1024 bytes; barriers only want their own eight.
        bool tiles = !isa<BarriersType>(alloc.getMemory().getType());
        int64_t offset = llvm::alignTo(next, tiles ? 1024 : 8);
        if (Value base = alloc.getOverlays()) {
          auto under = base.getDefiningOp<AllocOp>();
          if (!under || !under.getOffset()) {
            alloc.emitOpError("overlays memory that is not allocated before it");
            return WalkResult::interrupt();
          }
          offset = *under.getOffset();
        } else {
          next = offset + bytes;
        }
        total = std::max(total, offset + bytes);
        alloc.setOffset(offset);
        return WalkResult::advance();
      });
      if (result.wasInterrupted())
        return signalPassFailure();
      kernel->setAttr("tile.shared_bytes", builder.getI64IntegerAttr(total));
    }
  }
};

} // namespace

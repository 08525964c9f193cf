//===- SkipFullMasks.cpp - Full tiles carry no mask -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LaterReads.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#define DEBUG_TYPE "tile-skip-full-masks"

namespace mlir::tile {
#define GEN_PASS_DEF_SKIPFULLMASKSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct SkipFullMasks : tile::impl::SkipFullMasksPassBase<SkipFullMasks> {
  void runOnOperation() override {
    SmallVector<MaskOp> found;
    getOperation().walk([&](MaskOp mask) { found.push_back(mask); });
    for (MaskOp mask : found) {
      APInt flag;
      if (matchPattern(mask.getPartial(), m_ConstantInt(&flag))) {
        if (flag.isZero()) {
          mask.replaceAllUsesWith(mask.getScores());
          mask.erase();
          ++dropped;
        } else {
          decline(DEBUG_TYPE, mask, "its tile is always partial");
        }
        continue;
      }
      OpBuilder builder(mask);
      auto branch = scf::IfOp::create(builder, mask.getLoc(), mask.getType(), mask.getPartial(),
                                      /*withElseRegion=*/true);
      mask.replaceAllUsesWith(branch.getResult(0));
      builder.setInsertionPointToStart(branch.thenBlock());
      auto yield = scf::YieldOp::create(builder, mask.getLoc(), mask.getResult());
      mask->moveBefore(yield);
      // Full tiles do not read numbers that only the mask compares.
      for (Value input : mask.getInputs())
        if (auto load = input.getDefiningOp<LoadColumnsOp>();
            load && load->hasOneUse() && mayReadLater(load, branch))
          load->moveBefore(mask);
      builder.setInsertionPointToStart(branch.elseBlock());
      scf::YieldOp::create(builder, mask.getLoc(), mask.getScores());
      ++branches;
    }
  }
};

} // namespace

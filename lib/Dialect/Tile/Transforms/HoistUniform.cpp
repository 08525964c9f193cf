//===- HoistUniform.cpp - Hoisting of uniform operations ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Regions of tile operations are code for one element or one line. Operations in them that depend on neither
// move before the operation, where other code can share them.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-hoist-uniform"

namespace mlir::tile {
#define GEN_PASS_DEF_HOISTUNIFORMPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct HoistUniform : tile::impl::HoistUniformPassBase<HoistUniform> {
  void runOnOperation() override {
    getOperation().walk([&](YieldOp yield) { hoist(*yield->getBlock()); });
  }

  void hoist(Block &body) {
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator())) {
      bool isUniform = llvm::all_of(
          op.getOperands(), [&](Value v) { return !body.getParent()->isAncestor(v.getParentRegion()); });
      if (!isUniform)
        continue;
      if (op.getNumRegions() != 0 || !isPure(&op)) {
        decline(DEBUG_TYPE, &op, "it is uniform, but has a region or may have effects");
        continue;
      }
      op.moveBefore(body.getParentOp());
      ++hoisted;
    }
  }
};

} // namespace

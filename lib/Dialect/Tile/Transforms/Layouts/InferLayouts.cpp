//===- InferLayouts.cpp - Layouts of fragments, swizzles of tiles ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The layout of a fragment follows from its producer and its users (LayoutGraph.h). Then the order of
// features, if not ascending, is decided (FeatureOrders.h).
//
//===----------------------------------------------------------------------===//
#include "FeatureOrders.h"
#include "LayoutGraph.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::tile {
#define GEN_PASS_DEF_INFERLAYOUTSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct InferLayouts : tile::impl::InferLayoutsPassBase<InferLayouts> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      if (kernel.isExternal())
        continue;
      LayoutGraph graph(kernel);
      graph.build();
      graph.solve();
      if (failed(graph.materialize()))
        return signalPassFailure();
      conversions += graph.conversions;
      remade += graph.remade;
      swizzleTiles(kernel);
      orderFeatures(kernel);
    }
  }

  void swizzleTiles(func::FuncOp kernel) {
    auto visit = [&](Value value) {
      if (Type type = swizzle(value.getType()))
        value.setType(type);
    };
    kernel.walk([&](Operation *op) {
      llvm::for_each(op->getResults(), visit);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), visit);
    });
    auto inputs = kernel.getBody().front().getArgumentTypes();
    kernel.setFunctionType(FunctionType::get(kernel.getContext(), inputs, kernel.getResultTypes()));
  }

  /// Returns the swizzled form of a shared tile or ring, null if nothing changes.
  static Type swizzle(Type type) {
    if (auto ring = dyn_cast<RingType>(type)) {
      Type tile = swizzle(ring.getTile());
      return tile ? RingType::get(type.getContext(), ring.getStages(), cast<SharedType>(tile)) : Type();
    }
    auto tile = dyn_cast<SharedType>(type);
    if (!tile || tile.getSwizzled() || tile.getCols() * tile.getElement().getIntOrFloatBitWidth() % 256 != 0)
      return {};
    return SharedType::get(type.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(),
                           tile.getCols(), tile.getElement(), true, tile.getBoxes());
  }
};

} // namespace

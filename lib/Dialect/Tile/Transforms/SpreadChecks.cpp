//===- SpreadChecks.cpp - Lanes check different lines ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   c = load_columns tile
//   h = map c { f }          =>      a = any_line tile { f }
//   a = any h
//
// A column of a fragment has each number in eight lanes of a warp, and all of
// them read and check it. A warp that asks only whether any number of a tile
// passes the check reads each number once.
//
//===----------------------------------------------------------------------===//
#include "LaterReads.h"

#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/PatternMatch.h"

#define DEBUG_TYPE "tile-spread-checks"

namespace mlir::tile {
#define GEN_PASS_DEF_SPREADCHECKSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

struct SpreadChecks : tile::impl::SpreadChecksPassBase<SpreadChecks> {
  void runOnOperation() override {
    SmallVector<AnyOp> found;
    getOperation().walk([&](AnyOp any) { found.push_back(any); });
    for (AnyOp any : found)
      if (share(any))
        ++spread;
  }

  static bool share(AnyOp any) {
    auto check = any.getSource().getDefiningOp<MapOp>();
    auto load = check && check.getInputs().size() == 1 ? check.getInputs()[0].getDefiningOp<LoadColumnsOp>()
                                                       : LoadColumnsOp();
    if (!load || !check->hasOneUse())
      return decline(DEBUG_TYPE, any, "it asks for something else than a check of a tile's numbers");
    if (!AnyLineOp::mayCheck(load.getTile().getType()))
      return decline(DEBUG_TYPE, any, "lanes cannot share the lines of its tile evenly");
    if (!mayReadLater(load, any))
      return decline(DEBUG_TYPE, any, "its tile may change after the numbers are read");
    IRRewriter rewriter(any);
    auto line = AnyLineOp::create(rewriter, any.getLoc(), any.getType(), load.getTile());
    line.getCondition().takeBody(check.getBody());
    rewriter.replaceOp(any, line);
    rewriter.eraseOp(check);
    if (load->use_empty())
      rewriter.eraseOp(load);
    return true;
  }
};

} // namespace

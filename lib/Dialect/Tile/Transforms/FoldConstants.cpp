//===- FoldConstants.cpp - Constant folding, and no unused operations --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/FoldUtils.h"

namespace mlir::tile {
#define GEN_PASS_DEF_FOLDCONSTANTSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;

namespace {

struct FoldConstants : tile::impl::FoldConstantsPassBase<FoldConstants> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      OperationFolder folder(&getContext());
      kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
        if (op == kernel)
          return;
        const bool known =
            op->hasTrait<OpTrait::ConstantLike>(); // constants only move, or merge with equal ones
        if (succeeded(folder.tryToFold(op)) && !known)
          ++folded;
      });
      eraseUnused(kernel);
    }
  }

  /// Erases in reverse order, because users follow the values that they use.
  void eraseUnused(func::FuncOp kernel) {
    kernel.walk<WalkOrder::PostOrder, mlir::ReverseIterator>([&](Operation *op) {
      if (op == kernel || !isOpTriviallyDead(op))
        return;
      op->erase();
      ++erased;
    });
  }
};

} // namespace

//===- ExpandRows.cpp - Pieces of rows become loads and stores ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every operation on a piece is replaced, in place, by a lane's share of it.
//
//===----------------------------------------------------------------------===//
#include "RowExpansion.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_EXPANDROWSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

struct ExpandRows : mlir::attn::impl::ExpandRowsPassBase<ExpandRows> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      SmallVector<Operation *> pieces;
      kernel.walk([&](Operation *op) {
        if (isa<LoadRowsOp, StoreRowsOp, QuantizeRowsOp, DequantizeRowsOp, NormalizeRowsOp, RotateRowsOp>(op))
          pieces.push_back(op);
      });
      if (pieces.empty())
        continue;
      if (!tile::parametersAttr.isOn(kernel)) {
        kernel.emitError("expected a kernel that walks rows: --attn-walk-rows makes it");
        return signalPassFailure();
      }
      expand(kernel, pieces);
      expanded += pieces.size();
      eraseSourceArguments(kernel);
    }
  }

  static void expand(func::FuncOp kernel, ArrayRef<Operation *> pieces) {
    RowExpansion expansion(kernel);
    for (Operation *op : pieces) {
      if (auto take = dyn_cast<LoadRowsOp>(op))
        expansion.take(take);
      else if (auto put = dyn_cast<StoreRowsOp>(op))
        expansion.put(put);
      else if (auto quantize = dyn_cast<QuantizeRowsOp>(op))
        expansion.quantize(quantize);
      else if (auto normalize = dyn_cast<NormalizeRowsOp>(op))
        expansion.normalize(normalize);
      else if (auto rotate = dyn_cast<RotateRowsOp>(op))
        expansion.rotate(rotate);
      else
        expansion.dequantize(cast<DequantizeRowsOp>(op));
    }
    for (Operation *op : llvm::reverse(pieces))
      op->erase();
    expansion.b.describeParameters();
  }
};

} // namespace

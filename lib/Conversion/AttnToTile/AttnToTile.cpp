//===- AttnToTile.cpp - Write the kernels of a function -------------------===//
#include "Kernel.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Signature.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_ATTNTOTILEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

struct AttnToTile : attn::impl::AttnToTilePassBase<AttnToTile> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr("tile.schedules") || findRowCopy(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      if (std::optional<RowCopy> copy = findRowCopy(function)) {
        if (failed(readSignature(function)))
          return signalPassFailure();
        writeRowCopyKernel(*copy, makeModule(function), function.getName());
        function.erase();
        continue;
      }
      FailureOr<Chain> chain = findChain(function);
      if (failed(chain))
        return signalPassFailure();
      for (BlockArgument argument : function.getArguments()) {
        if (argumentName(argument).empty()) {
          function.emitError() << "argument #" << argument.getArgNumber()
                               << " has no name: expected an attribute attn.name = \"...\"";
          return signalPassFailure();
        }
      }
      gpu::GPUModuleOp module = makeModule(function);
      for (Attribute attribute : function->getAttrOfType<ArrayAttr>("tile.schedules")) {
        auto schedule = cast<tile::ScheduleAttr>(attribute);
        auto write = schedule.getKind() == tile::ScheduleKind::Wgmma ? writeWgmmaKernel : writeMmaKernel;
        write(*chain, schedule, module, (function.getName() + "_rows" + Twine(schedule.getRows())).str());
      }
      writeMergeKernel(*chain, module, (function.getName() + "_merge").str());
      function.erase();
    }
  }

  static gpu::GPUModuleOp makeModule(func::FuncOp function) {
    OpBuilder builder(function);
    return gpu::GPUModuleOp::create(builder, function.getLoc(), (function.getName() + "_kernels").str());
  }
};

} // namespace

//===- AttnToTile.cpp - Write the kernels of a chain of updates -----------===//
#include "Kernel.h"

#include "attn/Conversion/Passes.h"

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
      if (function->hasAttr("tile.schedules"))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
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
      OpBuilder builder(function);
      auto module =
          gpu::GPUModuleOp::create(builder, function.getLoc(), (function.getName() + "_kernels").str());
      for (Attribute attribute : function->getAttrOfType<ArrayAttr>("tile.schedules")) {
        auto schedule = cast<tile::ScheduleAttr>(attribute);
        auto write = schedule.getKind() == tile::ScheduleKind::Wgmma ? writeWgmmaKernel : writeMmaKernel;
        write(*chain, schedule, module, (function.getName() + "_rows" + Twine(schedule.getRows())).str());
      }
      writeMergeKernel(*chain, module, (function.getName() + "_merge").str());
      function.erase();
    }
  }
};

} // namespace

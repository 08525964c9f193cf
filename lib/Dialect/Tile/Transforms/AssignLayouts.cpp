//===- AssignLayouts.cpp - Layouts of fragments, swizzles of tiles --------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::tile {
#define GEN_PASS_DEF_ASSIGNLAYOUTSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Which axes lie along the rows of accumulators, and which along columns, in one kernel.
struct Placement {
  std::array<Operation *, 3> rows = {}, cols = {};

  LogicalResult add(Operation *dot) {
    auto type = cast<FragmentType>(dot->getResult(0).getType());
    for (auto [axis, mine, other] :
         {std::tuple(type.getAxes()[0], &rows, &cols), std::tuple(type.getAxes()[1], &cols, &rows)}) {
      if (Operation *conflict = (*other)[static_cast<int>(axis)]) {
        InFlightDiagnostic diagnostic = dot->emitOpError("axis '")
                                        << stringifyAxis(axis)
                                        << "' lies along rows here and along columns elsewhere";
        diagnostic.attachNote(conflict->getLoc()) << "the other placement";
        return diagnostic;
      }
      (*mine)[static_cast<int>(axis)] = dot;
    }
    return success();
  }
  Layout layoutOf(Axis axis) const { return cols[static_cast<int>(axis)] ? Layout::Col : Layout::Row; }
};

struct AssignLayouts : tile::impl::AssignLayoutsPassBase<AssignLayouts> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (failed(assign(kernel)))
        return signalPassFailure();
  }

  LogicalResult assign(func::FuncOp kernel) {
    Placement placement;
    WalkResult placed = kernel.walk([&](Operation *op) {
      return isa<DotOp, StartDotOp>(op) && failed(placement.add(op)) ? WalkResult::interrupt()
                                                                     : WalkResult::advance();
    });
    if (placed.wasInterrupted())
      return failure();

    auto visit = [&](Value value) -> LogicalResult {
      if (auto type = dyn_cast<FragmentType>(value.getType())) {
        if (type.getLayout() != Layout::Unassigned)
          return success();
        Layout layout = Layout::Acc;
        if (type.getRank() == 1)
          layout = placement.layoutOf(type.getAxes()[0]);
        else if (type.getElement().getIntOrFloatBitWidth() == 16) // operands of dots; accumulators are f32
          layout = Layout::Lhs;
        FragmentType assigned = type.withLayout(layout, [&] { return emitError(value.getLoc()); });
        if (!assigned)
          return failure();
        value.setType(assigned);
        ++fragments;
      } else if (Type swizzledType = swizzle(value.getType())) {
        value.setType(swizzledType);
        ++swizzled;
      }
      return success();
    };
    auto visitAll = [&](auto values) {
      return success(llvm::all_of(values, [&](Value v) { return succeeded(visit(v)); }));
    };
    WalkResult visited = kernel.walk([&](Operation *op) {
      if (failed(visitAll(op->getResults())))
        return WalkResult::interrupt();
      for (Region &region : op->getRegions())
        for (Block &block : region)
          if (failed(visitAll(block.getArguments())))
            return WalkResult::interrupt();
      return WalkResult::advance();
    });
    return failure(visited.wasInterrupted());
  }

  /// The swizzled form of a shared tile or ring, null where nothing changes.
  static Type swizzle(Type type) {
    if (auto ring = dyn_cast<RingType>(type)) {
      Type tile = swizzle(ring.getTile());
      return tile ? RingType::get(type.getContext(), ring.getSlots(), cast<SharedType>(tile)) : Type();
    }
    auto tile = dyn_cast<SharedType>(type);
    if (!tile || tile.getSwizzled() || tile.getCols() * tile.getElement().getIntOrFloatBitWidth() % 256 != 0)
      return {};
    return SharedType::get(type.getContext(), tile.getRowAxis(), tile.getRows(), tile.getColAxis(),
                           tile.getCols(), tile.getElement(), true, tile.getBoxes());
  }
};

} // namespace

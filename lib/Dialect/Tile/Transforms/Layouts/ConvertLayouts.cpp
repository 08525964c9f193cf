//===- ConvertLayouts.cpp - Conversions between layouts -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LayoutGraph.h"

#include "attn/Support/Elements.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::tile;

LogicalResult LayoutGraph::assign() {
  for (const Node &node : nodes)
    for (Value value : node.values) {
      FragmentType type =
          fragmentOf(value).withLayout(node.layout, {}, [&] { return emitError(value.getLoc()); });
      if (!type)
        return failure();
      value.setType(type);
    }
  return success();
}

/// Whether the value of an element depends on the lane that holds it. The coordinates of a lane start
/// elsewhere in every other layout.
bool LayoutGraph::isLaneRelative(Value value) {
  SmallVector<Value> work{value};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    auto type = fragmentOf(v);
    if (!seen.insert(v).second || (type && type.getRank() == 2)) // two-axis values hold plain elements
      continue;
    Operation *op = v.getDefiningOp();
    Operation *owner = op ? op : v.getParentBlock()->getParentOp();
    if (isa<LaneCoordinatesOp, LaneIdOp>(owner))
      return true;
    if (auto branch = dyn_cast<RegionBranchOpInterface>(owner)) {
      RegionBranchInverseSuccessorMapping mapping;
      branch.getSuccessorInputOperandMapping(mapping);
      for (OpOperand *operand : mapping.lookup(v))
        work.push_back(operand->get());
    } else if (op && !isa<ReduceLanesOp, FromLaneOp, AnyOp>(op)) { // uniform over the warp
      llvm::append_range(work, op->getOperands());
      llvm::SetVector<Value> captured;
      getUsedValuesDefinedAbove(op->getRegions(), captured);
      llvm::append_range(work, captured);
    }
  }
  return false;
}

/// Returns the value in another layout than its own, converted once for all users.
FailureOr<Value> LayoutGraph::inLayout(Value value, Layout layout, Operation *user) {
  Value &known = converted[{value, layout}];
  if (known)
    return known;
  auto refuse = [&](StringRef why) {
    InFlightDiagnostic diagnostic = emitError(value.getLoc())
                                    << "expected one layout for " << value.getType() << ", " << why;
    diagnostic.attachNote(user->getLoc()) << "needed in layout '" << stringifyLayout(layout) << "' here";
    return diagnostic;
  };
  FragmentType type = fragmentOf(value);
  Operation *op = value.getDefiningOp();
  bool fromMemory = type.getLayout() == Layout::Rhs || layout == Layout::Rhs;
  if (fromMemory && !isa_and_nonnull<SplatOp>(op))
    return refuse("for right operands come from memory");
  FragmentType wanted = type.withLayout(layout, {}, [&] { return emitError(user->getLoc()); });
  if (!wanted)
    return failure();
  OpBuilder b(kernel.getContext());
  b.setInsertionPointAfterValue(value);
  bool packs = isa_and_nonnull<SplatOp>(op) && (layout == Layout::Lhs || layout == Layout::Rhs) &&
               !mlir::attn::isMultiplied(type.getElement());
  if (isa_and_nonnull<SplatOp, UndefinedOp, CoordinatesOp, LoadColumnsOp>(op) && !packs) {
    Operation *copy = b.clone(*op);
    for (Value result : copy->getResults())
      result.setType(wanted);
    ++remade;
    return known = copy->getResult(cast<OpResult>(value).getResultNumber());
  }
  if (int64_t bits = type.getElement().getIntOrFloatBitWidth(); bits != 8 && bits != 16 && bits != 32)
    return refuse("for elements of 8, 16 or 32 bits move between lanes and no others");
  if (type.getPartial())
    return refuse("for a partial sum lies in the lanes that took it");
  if (type.getRank() == 1 && isLaneRelative(value))
    return refuse("for it is relative to the lane's own coordinates");
  ++conversions;
  return known = ConvertOp::create(b, value.getLoc(), wanted, value).getResult();
}

LogicalResult LayoutGraph::convertUses() {
  auto convert = [&](OpOperand *use, Layout layout) -> LogicalResult {
    if (fragmentOf(use->get()).getLayout() == layout)
      return success();
    FailureOr<Value> value = inLayout(use->get(), layout, use->getOwner());
    if (succeeded(value))
      use->set(*value);
    return value;
  };
  for (const Need &need : needs)
    if (failed(convert(need.use, need.layout)))
      return failure();
  for (const Flow &flow : flows)
    if (failed(convert(flow.use, fragmentOf(flow.to).getLayout())))
      return failure();
  // A conversion of the program may turn out to be the identity.
  kernel.walk([&](ConvertOp op) {
    if (op.getSource().getType() != op.getResult().getType())
      return;
    op.replaceAllUsesWith(op.getSource());
    op.erase();
  });
  return success();
}

LogicalResult LayoutGraph::materialize() { return success(succeeded(assign()) && succeeded(convertUses())); }

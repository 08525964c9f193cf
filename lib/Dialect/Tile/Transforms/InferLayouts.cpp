//===- InferLayouts.cpp - Layouts of fragments, swizzles of tiles ---------===//
//
// Values are the nodes of a graph. Operations say three things of them:
//
//   define  the value has this layout                  (a dot's result, a reduction)
//   need    this operand is read in this layout        (a dot's left operand)
//   flow    this operand is read in the layout of that value
//           (what a loop carries or a branch yields, maps over one axis)
//
// Layouts first travel with the data, along flows. Where nothing arrives, they
// travel against it, from those who read to what they read. At last a need or a
// flow between two layouts becomes a conversion. In which order fragments have their
// features, where it is not as they come, is decided then (FeatureOrders.cpp).
//
//===----------------------------------------------------------------------===//
#include "FeatureOrders.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"
#include "attn/Support/Elements.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::tile {
#define GEN_PASS_DEF_INFERLAYOUTSPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

FragmentType fragmentOf(Value value) { return dyn_cast<FragmentType>(value.getType()); }

/// The layout of a one-axis fragment beside a two-axis one: along its rows or its columns.
Layout layoutBeside(FragmentType oneAxis, FragmentType twoAxes) {
  return oneAxis.getAxes()[0] == twoAxes.getAxes()[0] ? Layout::Row : Layout::Col;
}

/// The values of one kernel and what is known about their layouts.
class LayoutGraph {
public:
  explicit LayoutGraph(func::FuncOp kernel) : kernel(kernel) {}
  void build();
  void solve();
  /// Gives all values their types and inserts conversions; returns how many.
  LogicalResult materialize();

private:
  /// Values that must have one type: what a loop's iterations take is what it returns.
  struct Node {
    SmallVector<Value, 1> values;
    Layout layout = Layout::Unassigned;
  };
  struct Need {
    OpOperand *use;
    Layout layout;
  };
  struct Flow {
    OpOperand *use;
    Value to;
    bool enters; ///< from outside into what a loop carries
  };

  // What operations say.
  void define(Value value, Layout layout);
  void need(OpOperand &use, Layout layout);
  void need(Operation *op, Layout layout);
  void flow(Operation *op, Value to);
  void visit(Operation *op);
  void visitElementwise(Operation *op);
  void visitBranch(RegionBranchOpInterface op);

  Node &nodeOf(Value value) { return nodes[index.find(value)->second]; }
  void add(Value value);
  void unite(Value a, Value b);

  bool forward(bool enterLoops);
  bool backward();
  bool fallBack();

  LogicalResult assign();
  FailureOr<Value> inLayout(Value value, Layout layout, Operation *user);
  LogicalResult convertUses();
  static bool isLaneRelative(Value value);

  func::FuncOp kernel;
  SmallVector<Node> nodes;
  size_t settled = 0; ///< nodes that surely have a layout, the first ones
  DenseMap<Value, size_t> index;
  SmallVector<Need> needs;
  SmallVector<Flow> flows;
  DenseMap<std::pair<Value, Layout>, Value> converted;
};

void LayoutGraph::add(Value value) {
  auto type = fragmentOf(value);
  if (!type || !index.insert({value, nodes.size()}).second)
    return;
  nodes.push_back({{value}, type.getLayout()});
}

void LayoutGraph::unite(Value a, Value b) {
  size_t kept = index.find(a)->second, gone = index.find(b)->second;
  if (kept == gone)
    return;
  for (Value value : nodes[gone].values)
    index.find(value)->second = kept;
  nodes[kept].values.append(nodes[gone].values);
  if (nodes[kept].layout == Layout::Unassigned)
    nodes[kept].layout = nodes[gone].layout;
  nodes[gone].values.clear();
}

/// A layout that the text gives comes first; operations' verifiers have compared it with what they take.
void LayoutGraph::define(Value value, Layout layout) {
  Node &node = nodeOf(value);
  if (node.layout == Layout::Unassigned)
    node.layout = layout;
}

void LayoutGraph::need(OpOperand &use, Layout layout) {
  if (fragmentOf(use.get()))
    needs.push_back({&use, layout});
}

void LayoutGraph::need(Operation *op, Layout layout) {
  for (OpOperand &use : op->getOpOperands())
    need(use, layout);
}

void LayoutGraph::flow(Operation *op, Value to) {
  for (OpOperand &use : op->getOpOperands())
    if (fragmentOf(use.get()))
      flows.push_back({&use, to, false});
}

/// Scalars of operands meet by coordinate. Operands of `lhs` have none.
void LayoutGraph::visitElementwise(Operation *op) {
  FragmentType result = fragmentOf(op->getResult(0));
  if (result.getRank() == 1)
    return flow(op, op->getResult(0));
  define(op->getResult(0), Layout::Acc);
  for (OpOperand &use : op->getOpOperands())
    if (auto type = fragmentOf(use.get()))
      need(use, type.getRank() == 2 ? Layout::Acc : layoutBeside(type, result));
}

void LayoutGraph::visitBranch(RegionBranchOpInterface op) {
  auto carries = [](auto values) { return llvm::any_of(values, [](Value v) { return fragmentOf(v); }); };
  if (!carries(op->getResults()) &&
      llvm::none_of(op->getRegions(), [&](Region &region) { return carries(region.getArguments()); }))
    return; // most branches are over scalars, and the mapping takes time
  RegionBranchSuccessorMapping mapping;
  op.getSuccessorOperandInputMapping(mapping);
  auto addFlows = [&](Operation *from, bool enters) {
    for (OpOperand &use : from->getOpOperands()) {
      auto it = fragmentOf(use.get()) ? mapping.find(&use) : mapping.end();
      if (it == mapping.end())
        continue;
      for (Value input : it->second)
        unite(it->second.front(), input);
      flows.push_back({&use, it->second.front(), enters});
    }
  };
  addFlows(op, true);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (block.mightHaveTerminator())
        addFlows(block.getTerminator(), false);
}

void LayoutGraph::visit(Operation *op) {
  auto defineAll = [&](Layout layout) {
    for (Value result : op->getResults())
      define(result, layout);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<DotOp, StartDotOp>([&](auto dot) {
        if (fragmentOf(dot.getLhs()))
          need(op->getOpOperand(0), Layout::Lhs);
        for (OpOperand &use : op->getOpOperands().drop_front())
          need(use, use.get() == dot.getRhs() ? Layout::Rhs : Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case([&](FinishDotsOp) {
        need(op, Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case([&](LoadOp) { defineAll(Layout::Lhs); })
      .Case([&](LoadColumnsOp load) {
        for (Value column : load.getColumns())
          unite(load.getColumns().front(), column);
      })
      .Case([&](LoadRhsOp) { defineAll(Layout::Rhs); })
      .Case([&](WidenOp) {
        for (OpOperand &use : op->getOpOperands())
          need(use, fragmentOf(use.get()).getRank() == 2 ? Layout::Rhs : Layout::Col);
        defineAll(Layout::Rhs);
      })
      .Case([&](PartOp part) { flow(op, part.getResult()); })
      .Case([&](NarrowOp) {
        need(op, Layout::Lhs);
        define(op->getResult(0), Layout::Lhs);
      })
      .Case([&](BiasesOp) { defineAll(Layout::Rhs); })
      .Case([&](CastOp) {
        need(op, Layout::Acc);
        defineAll(Layout::Lhs);
      })
      .Case([&](ReduceOp reduce) {
        need(op, Layout::Acc);
        defineAll(layoutBeside(reduce.getResult().getType(), reduce.getSource().getType()));
      })
      .Case<MapOp, MaskOp>([&](auto) { visitElementwise(op); })
      .Case([&](CompleteOp complete) { flow(op, complete.getResult()); })
      .Case([&](SplatOp splat) {
        if (splat.getFragment().getType().getRank() == 2) // scalars have no place in `lhs`
          defineAll(Layout::Acc);
      })
      .Case([&](MergeWarpsOp merge) {
        for (OpOperand &use : op->getOpOperands())
          if (auto type = fragmentOf(use.get()))
            need(use, type.getRank() == 2 ? Layout::Acc : Layout::Row);
        for (Value result : op->getResults())
          define(result, fragmentOf(result).getRank() == 2 ? Layout::Acc : Layout::Row);
      })
      .Case([&](StageOp) { need(op, Layout::Acc); })
      .Case([&](StoreOp store) {
        if (store.getFragment().getType().getRank() == 2)
          need(op->getOpOperand(0), Layout::Acc);
      })
      .Case([&](RegionBranchOpInterface branch) { visitBranch(branch); });
}

void LayoutGraph::build() {
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Value result : op->getResults())
      add(result);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Value argument : block.getArguments())
          add(argument);
  });
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { visit(op); });
}

/// Moves layouts along flows. What a loop makes in an iteration comes before what enters it, for it is read
/// more often.
bool LayoutGraph::forward(bool enterLoops) {
  bool changed = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Flow &flow : flows) {
      Layout from = nodeOf(flow.use->get()).layout;
      Node &to = nodeOf(flow.to);
      if ((flow.enters && !enterLoops) || from == Layout::Unassigned || to.layout != Layout::Unassigned)
        continue;
      to.layout = from;
      moved = changed = true;
    }
  }
  return changed;
}

/// Moves layouts one step against the data, from the last readers on. Operations that read in a layout of
/// their own come before those that would hand it on.
bool LayoutGraph::backward() {
  bool changed = false;
  auto ask = [&](Value value, Layout layout) {
    Node &node = nodeOf(value);
    if (node.layout != Layout::Unassigned || layout == Layout::Unassigned)
      return;
    node.layout = layout;
    changed = true;
  };
  for (const Need &need : needs)
    ask(need.use->get(), need.layout);
  if (changed)
    return true;
  for (const Flow &flow : llvm::reverse(flows))
    ask(flow.use->get(), nodeOf(flow.to).layout);
  return changed;
}

/// Nobody minds the layout of the first value that has none yet.
bool LayoutGraph::fallBack() {
  for (; settled < nodes.size(); ++settled) {
    Node &node = nodes[settled];
    if (node.values.empty() || node.layout != Layout::Unassigned)
      continue;
    FragmentType type = fragmentOf(node.values.front());
    node.layout = type.getRank() == 2                 ? Layout::Acc
                  : type.getSizes().front() % 16 == 0 ? Layout::Row
                                                      : Layout::Col;
    return true;
  }
  return false;
}

void LayoutGraph::solve() {
  do
    while (forward(/*enterLoops=*/false) || forward(/*enterLoops=*/true) || backward()) {
    }
  while (fallBack());
}

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

/// Does the value of an element depend on the lane that holds it? Where a lane's coordinates start is in no
/// other layout what it is in this one.
bool LayoutGraph::isLaneRelative(Value value) {
  SmallVector<Value> work{value};
  llvm::DenseSet<Value> seen;
  while (!work.empty()) {
    Value v = work.pop_back_val();
    auto type = fragmentOf(v);
    if (!seen.insert(v).second || (type && type.getRank() == 2)) // by then elements are what they are
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

/// The value in another layout than its own: once for all who need it.
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
    return known = copy->getResult(cast<OpResult>(value).getResultNumber());
  }
  if (int64_t bits = type.getElement().getIntOrFloatBitWidth(); bits != 8 && bits != 16 && bits != 32)
    return refuse("for elements of 8, 16 or 32 bits move between lanes and no others");
  if (type.getPartial())
    return refuse("for a partial sum lies in the lanes that took it");
  if (type.getRank() == 1 && isLaneRelative(value))
    return refuse("for it is relative to the lane's own coordinates");
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
  // A conversion that the program asked for may turn out to be none.
  kernel.walk([&](ConvertOp op) {
    if (op.getSource().getType() != op.getResult().getType())
      return;
    op.replaceAllUsesWith(op.getSource());
    op.erase();
  });
  return success();
}

LogicalResult LayoutGraph::materialize() { return success(succeeded(assign()) && succeeded(convertUses())); }

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

//===- FeatureOrders.cpp - Features in runs -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantized elements are read from shared memory in runs of neighbours (see !tile.fragment), so features are
// not in ascending order. If they are contracted, the left operand must have the same order: its loads are
// repeated in that order. If they are kept, all accumulators that flow into one another must have it: those
// that an MMA adds to, that loops carry, that maps compute. If one of these cannot have it (another MMA adds
// a tile of 16-bit elements, whose features are in ascending order), none has.
//
// If accumulators only move, from memory to a sum or from a constant to memory, a lane's features are as many
// neighbours as it loads or stores at once.
//
//===----------------------------------------------------------------------===//
#include "FeatureOrders.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"

#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "tile-infer-layouts"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Accumulators keep features of several stores: runs no longer than those of 8-bit elements.
constexpr int64_t mostKept = 128;
/// Queries have 64 features in the 128 bytes that lanes read of a line without bank conflicts.
constexpr int64_t mostContracted = 64;
/// Four features of a run are stored at once when warps exchange them.
constexpr int64_t leastKept = 32;
/// A lane has a quarter of a run: 16 bytes of elements of 16 bits that are loaded, and of f32 that are
/// stored.
constexpr int64_t loadedRuns = 32, storedRuns = 16;

FragmentType fragmentOf(Value value) { return dyn_cast<FragmentType>(value.getType()); }

class FeatureOrders {
public:
  explicit FeatureOrders(func::FuncOp kernel) : kernel(kernel) {}
  void run();

private:
  static FeatureOrder candidate(LoadRhsOp load, bool contracted);
  static bool allows(Value value, FeatureOrder order);
  static void setOrder(Value value, FeatureOrder order);

  // Contracted features:
  void orderContracted(LoadRhsOp load);
  bool followMmas(Value right, SmallVectorImpl<Value> &values, SmallVectorImpl<MmaOp> &mmas);
  static bool isRepeatable(Value left);
  static bool cutsSpans(Value left, FeatureOrder order);
  Value leftInOrder(Value left, FeatureOrder order);
  void orderConstants();
  void eraseUnused();

  // Kept features:
  static bool isAccumulator(Value value);
  void visit(Operation *op);
  void visitMma(MmaOp mma);
  void visitBranch(Operation *from, RegionBranchSuccessorMapping &mapping);
  void orderKept();
  void orderMoved();

  func::FuncOp kernel;
  llvm::MapVector<std::pair<Value, int64_t>, Value> ordered; ///< left operands, by order
  llvm::SetVector<Operation *> repeated;
  llvm::EquivalenceClasses<void *> same;
  SmallVector<std::pair<Value, LoadRhsOp>>
      seeds;                  ///< accumulators and the right operands multiplied into them
  SmallVector<Value> blocked; ///< accumulators whose features must be in ascending order
};

/// Returns the order that the tile's lines and groups allow; none if runs would be too short.
FeatureOrder FeatureOrders::candidate(LoadRhsOp load, bool contracted) {
  SharedType tile = load.getTile().getType();
  int64_t bits = tile.getElement().getIntOrFloatBitWidth();
  int64_t runs = std::min<int64_t>(tile.getPanels()[0].width * 8 / bits, load.getGroup().value_or(1024));
  if (!llvm::isPowerOf2_64(runs) || (!tile.getSwizzled() && tile.getLineBytes() != 16))
    return {};
  if (!contracted)
    return runs < leastKept ? FeatureOrder() : FeatureOrder{std::min(runs, mostKept), 1};
  return {std::min(runs, mostContracted), bits == 4 ? 4 : bits == 2 ? 8 : 1};
}

bool FeatureOrders::allows(Value value, FeatureOrder order) {
  FragmentType type = fragmentOf(value);
  // An inactive diagnostic would count as success.
  ScopedDiagnosticHandler silent(value.getContext(), [](Diagnostic &) { return success(); });
  return order && type.withLayout(type.getLayout(), order, [&] { return emitError(value.getLoc()); });
}

void FeatureOrders::setOrder(Value value, FeatureOrder order) {
  FragmentType type = fragmentOf(value);
  value.setType(type.withLayout(type.getLayout(), order, [&] { return emitError(value.getLoc()); }));
}

//===----------------------------------------------------------------------===//
// Contracted features
//===----------------------------------------------------------------------===//

/// Collects the values derived from the right operand up to its MMAs; returns false for any other use.
bool FeatureOrders::followMmas(Value right, SmallVectorImpl<Value> &values, SmallVectorImpl<MmaOp> &mmas) {
  values.push_back(right);
  for (OpOperand &use : right.getUses()) {
    if (isa<WidenOp, PartOp>(use.getOwner())) {
      if (!followMmas(use.getOwner()->getResult(0), values, mmas))
        return false;
    } else if (auto mma = dyn_cast<MmaOp>(use.getOwner()); mma && mma.getStoredOperand().get() == right) {
      Value queries = mma.getQueryOperand().get();
      if (fragmentOf(queries) && !isRepeatable(queries))
        return false;
      mmas.push_back(mma);
    } else {
      return false;
    }
  }
  return true;
}

bool FeatureOrders::isRepeatable(Value left) {
  Operation *op = left.getDefiningOp();
  if (isa_and_nonnull<LoadOp, LoadLhsOp>(op))
    return true;
  return isa_and_nonnull<NarrowOp, BalanceOp, PartOp>(op) && isRepeatable(op->getOperand(0));
}

/// Whether the left operand is a part that begins or ends inside of a span: in that order it has other
/// features.
bool FeatureOrders::cutsSpans(Value left, FeatureOrder order) {
  auto part = left.getDefiningOp<PartOp>();
  return part &&
         (part.getResult().getType().getSizes()[1] % order.runs != 0 || part.getFirst() % order.runs != 0);
}

Value FeatureOrders::leftInOrder(Value left, FeatureOrder order) {
  Value &known = ordered[{left, order.runs * 16 + order.step}];
  if (known)
    return known;
  Operation *op = left.getDefiningOp();
  Value source = isa<LoadOp, LoadLhsOp>(op) ? Value() : leftInOrder(op->getOperand(0), order);
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  Operation *copy = b.clone(*op);
  if (source)
    copy->setOperand(0, source);
  setOrder(copy->getResult(0), order);
  repeated.insert(op);
  return ordered[{left, order.runs * 16 + order.step}] = copy->getResult(0);
}

void FeatureOrders::orderContracted(LoadRhsOp load) {
  FeatureOrder order = candidate(load, /*contracted=*/true);
  SmallVector<Value> values;
  SmallVector<MmaOp> mmas;
  auto lacks = [&](Value value) { return !allows(value, order); };
  auto queriesLack = [&](MmaOp mma) {
    Value queries = mma.getQueryOperand().get();
    return fragmentOf(queries) && lacks(queries);
  };
  if (!followMmas(load.getFragment(), values, mmas)) {
    decline(DEBUG_TYPE, load, "it has other uses than MMAs whose queries can be loaded again");
    return;
  }
  if (llvm::any_of(values, lacks) || llvm::any_of(mmas, queriesLack)) {
    decline(DEBUG_TYPE, load, "not all operands that it is multiplied with can have features in runs");
    return;
  }
  for (Value value : values)
    setOrder(value, order);
  for (MmaOp mma : mmas)
    if (OpOperand &queries = mma.getQueryOperand(); fragmentOf(queries.get()))
      queries.set(leftInOrder(queries.get(), order));
}

/// Gives splat right operands the order of the other right operands of the same left operand, which then
/// needs one order only.
void FeatureOrders::orderConstants() {
  SmallVector<MmaOp> mmas;
  kernel.walk([&](MmaOp mma) {
    Value stored = mma.getStoredOperand().get(), queries = mma.getQueryOperand().get();
    if (isa_and_nonnull<SplatOp>(stored.getDefiningOp()) && fragmentOf(queries) &&
        fragmentOf(stored).getFeatureAxis() == 1 && isRepeatable(queries))
      mmas.push_back(mma);
  });
  FeatureOrder order;
  kernel.walk([&](WidenOp widen) {
    FragmentType codes = widen.getSource().getType();
    if (codes.getFeatureAxis() == 1)
      order = codes.getOrder();
  });
  for (MmaOp mma : mmas) {
    OpOperand &stored = mma.getStoredOperand(), &queries = mma.getQueryOperand();
    Operation *op = stored.get().getDefiningOp();
    if (!allows(stored.get(), order) || !allows(queries.get(), order) || cutsSpans(queries.get(), order))
      continue;
    OpBuilder b(op);
    Operation *copy = b.clone(*op);
    setOrder(copy->getResult(0), order);
    stored.set(copy->getResult(0));
    queries.set(leftInOrder(queries.get(), order));
    if (op->use_empty())
      op->erase();
  }
}

/// Erases originals without an MMA; the factor of a narrowed operand is equal for all its copies.
void FeatureOrders::eraseUnused() {
  for (Operation *op : llvm::reverse(repeated)) {
    if (!op->getResult(0).use_empty())
      continue;
    if (auto narrow = dyn_cast<NarrowOp>(op))
      for (auto &[key, copy] : ordered)
        if (key.first == narrow.getResult())
          narrow.getFactor().replaceAllUsesWith(copy.getDefiningOp<NarrowOp>().getFactor());
    if (op->use_empty())
      op->erase();
  }
}

//===----------------------------------------------------------------------===//
// Kept features
//===----------------------------------------------------------------------===//

bool FeatureOrders::isAccumulator(Value value) {
  FragmentType type = fragmentOf(value);
  return type && type.getLayout() == Layout::Acc && type.getFeatureAxis() >= 0;
}

void FeatureOrders::visitMma(MmaOp mma) {
  same.unionSets(mma.getAcc().getAsOpaquePointer(), mma.getResult().getAsOpaquePointer());
  Value right = mma.getStoredOperand().get();
  if (auto tokens = right.getDefiningOp<PartOp>(); tokens && fragmentOf(right).getFeatureAxis() == 0)
    right = tokens.getSource();
  while (auto widen = right.getDefiningOp<WidenOp>())
    right = widen.getSource();
  if (auto load = right.getDefiningOp<LoadRhsOp>(); load && load.getFragment().hasOneUse())
    seeds.emplace_back(mma.getResult(), load);
  else
    blocked.push_back(mma.getResult());
}

void FeatureOrders::visitBranch(Operation *from, RegionBranchSuccessorMapping &mapping) {
  for (OpOperand &use : from->getOpOperands())
    if (auto it = mapping.find(&use); isAccumulator(use.get()) && it != mapping.end())
      for (Value input : it->second)
        same.unionSets(use.get().getAsOpaquePointer(), input.getAsOpaquePointer());
}

void FeatureOrders::visit(Operation *op) {
  if (auto branch = dyn_cast<RegionBranchOpInterface>(op)) {
    RegionBranchSuccessorMapping mapping;
    branch.getSuccessorOperandInputMapping(mapping);
    visitBranch(op, mapping);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (block.mightHaveTerminator())
          visitBranch(block.getTerminator(), mapping);
    return;
  }
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  llvm::erase_if(values, [](Value value) { return !isAccumulator(value); });
  if (values.empty() ||
      isa<RegionBranchTerminatorOpInterface, SplatOp, UndefinedOp, MergeWarpsOp, StoreOp, LoadFeaturesOp>(op))
    return;
  auto isColumn = [](Value value) {
    FragmentType type = fragmentOf(value);
    return type && type.getRank() == 1 && type.getFeatureAxis() == 0;
  };
  bool columns = llvm::any_of(op->getOperands(), isColumn) || llvm::any_of(op->getResults(), isColumn);
  if (auto mma = dyn_cast<MmaOp>(op); mma && isAccumulator(mma.getResult()))
    visitMma(mma);
  else if (isa<MapOp, MaskOp, RestoreOp, PartOp, JoinOp>(op) && !columns)
    for (Value value : values)
      same.unionSets(values.front().getAsOpaquePointer(), value.getAsOpaquePointer());
  else if (!isa<ReduceOp>(op) || columns)
    llvm::append_range(blocked, values);
}

void FeatureOrders::orderKept() {
  kernel.walk([&](Operation *op) { visit(op); });
  DenseMap<void *, FeatureOrder> orders;
  for (auto [acc, load] : seeds) {
    void *leader = same.getLeaderValue(acc.getAsOpaquePointer());
    FeatureOrder order = candidate(load, /*contracted=*/false);
    auto [it, isNew] = orders.insert({leader, order});
    if (!isNew)
      it->second = std::min(it->second.runs, order.runs)
                       ? FeatureOrder{std::min(it->second.runs, order.runs), 1}
                       : FeatureOrder();
  }
  for (Value value : blocked)
    if (same.findLeader(value.getAsOpaquePointer()) != same.member_end())
      orders[same.getLeaderValue(value.getAsOpaquePointer())] = {};
  for (auto [acc, load] : seeds) {
    FeatureOrder &order = orders[same.getLeaderValue(acc.getAsOpaquePointer())];
    if (!allows(load.getFragment(), order))
      order = {};
  }
  for (auto [acc, load] : seeds) {
    auto leader = same.findLeader(acc.getAsOpaquePointer());
    FeatureOrder order = orders[*leader];
    if (!order)
      continue;
    for (; leader != same.member_end(); ++leader)
      setOrder(Value::getFromOpaquePointer(*leader), order);
    setOrder(load.getFragment(), order);
    for (Operation *user : load.getFragment().getUsers())
      if (isa<WidenOp>(user)) {
        setOrder(user->getResult(0), order);
        for (Operation *part : user->getUsers())
          if (isa<PartOp>(part))
            setOrder(part->getResult(0), order);
      }
  }
}

/// Orders accumulators that only move: those that maps make of lines of memory and that are added up, and
/// constants that are stored in f32.
void FeatureOrders::orderMoved() {
  DenseSet<void *> fixed;
  auto leaderOf = [&](Value value) { return same.getOrInsertLeaderValue(value.getAsOpaquePointer()); };
  for (Value value : blocked)
    fixed.insert(leaderOf(value));
  for (auto [acc, load] : seeds)
    fixed.insert(leaderOf(acc));
  auto order = [&](Value first, int64_t runs, function_ref<bool(Operation *)> mayUse) {
    void *leader = leaderOf(first);
    SmallVector<Value> members;
    for (auto member = same.findLeader(leader); member != same.member_end(); ++member)
      members.push_back(Value::getFromOpaquePointer(*member));
    auto lacks = [&](Value value) {
      return !isa_and_nonnull<LoadFeaturesOp, MapOp, SplatOp>(value.getDefiningOp()) ||
             !isAccumulator(value) || !allows(value, {runs, 1}) || !llvm::all_of(value.getUsers(), mayUse);
    };
    if (fixed.contains(leader) || llvm::any_of(members, lacks))
      return;
    for (Value member : members)
      setOrder(member, {runs, 1});
  };
  kernel.walk([&](LoadFeaturesOp load) {
    order(load.getFragment(), loadedRuns, [](Operation *user) { return isa<MapOp, ReduceOp>(user); });
  });
  kernel.walk([&](SplatOp splat) {
    order(splat.getResult(), storedRuns, [](Operation *user) {
      auto store = dyn_cast<StoreOp>(user);
      return store && store.getBuffer().getType().getElement().isF32();
    });
  });
}

void FeatureOrders::run() {
  SmallVector<LoadRhsOp> loads;
  kernel.walk([&](LoadRhsOp load) {
    if (!fragmentOf(load.getFragment()).getOrder())
      loads.push_back(load);
  });
  for (LoadRhsOp load : loads)
    if (fragmentOf(load.getFragment()).getFeatureAxis() == 1)
      orderContracted(load);
  orderConstants();
  eraseUnused();
  orderKept();
  orderMoved();
}

} // namespace

void tile::orderFeatures(func::FuncOp kernel) { FeatureOrders(kernel).run(); }

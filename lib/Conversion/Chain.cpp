//===- Chain.cpp - The chain of updates that becomes a kernel -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/Chain.h"

#include "attn/Conversion/OnlineOpInterface.h"
#include "attn/Dialect/Attn/IR/Score.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;

/// Checks what the operations of one kernel must agree on. `attn.attend` guarantees it; hand-written IR at
/// the online level does not.
static LogicalResult verifyChain(Chain &chain) {
  if (chain.updates.empty())
    return chain.finish.emitOpError("expected a region of which something is visible");
  for (InitOp init : chain.inits) {
    if (argumentName(init.getQuery()).empty())
      return init.emitOpError("expected the query to be an argument of the function, with an attn.name");
    if (init.getQuery() != chain.query())
      return init.emitOpError("expected the query of the first attn.init: one kernel has one query");
    if (Value sinks = init.getSinks(); sinks && argumentName(sinks).empty())
      return init.emitOpError(
          "expected the sink logits to be an argument of the function, with an attn.name");
  }
  if (FinishOp first = chain.first) {
    if (chain.updates.size() < 2 || first.getState() != chain.updates.front().getResult() ||
        chain.inits.size() != 1 || !chain.changes.empty() || findBranch(chain.function))
      return first.emitOpError(
          "expected a single chain of two updates and more, and the state after the first: "
          "a kernel finishes no other state early");
    if (first.getOutput().getType() != chain.finish.getOutput().getType() || !first.getLse() ||
        !chain.finish.getLse())
      return first.emitOpError("expected the output type of the last attn.finish, and an LSE of both");
    UpdateOp update = chain.updates.front();
    if (chain.countsSinks() || chain.finish.getGate() || first.getGate() || chain.finish.getOutputScale() ||
        chain.finish.getOutputScales() || update.getHeadClassesAttr() || !update.getScore().empty())
      return first.emitOpError(
          "expected neither sink logits nor a gate nor an output scale nor head classes nor a score region: "
          "what is finished early has none");
  }
  if (Value gate = chain.finish.getGate(); gate && argumentName(gate).empty())
    return chain.finish.emitOpError("expected the gate to be an argument of the function, with an attn.name");
  Value outputScale = chain.finish.getOutputScale();
  if (outputScale && argumentName(outputScale).empty())
    return chain.finish.emitOpError(
        "expected the output scale to be an argument of the function, with an attn.name");
  if (Value gate = chain.finish.getGate(); gate && getElementTypeOrSelf(gate) != chain.element())
    return chain.finish.emitOpError("expected a gate of the query's type, ")
           << chain.element() << ", got " << gate.getType();
  if (!outputScale && !chain.finish.getOutputScales() &&
      cast<RankedTensorType>(chain.finish.getOutput().getType()).getElementType() != chain.element())
    return chain.finish.emitOpError("expected output elements of the query's type, ")
           << chain.element() << ", got " << chain.finish.getOutput().getType();
  UpdateOp first = chain.updates.front();
  if (Value classes = first.getClasses(); classes && argumentName(classes).empty())
    return first.emitOpError(
        "expected the head classes to be assigned by an argument of the function, with an attn.name");
  for (UpdateOp update : chain.updates) {
    if (argumentName(update.getKv()).empty())
      return update.emitOpError("expected the region to be an argument of the function, with an attn.name");
    StringRef what = update.getQuery() != chain.query()              ? "the query of its attn.init"
                     : update.getKVHeads() != chain.kvHeads()        ? "the KV heads of the first region"
                     : update.getScaleAttr() != first.getScaleAttr() ? "the scale of the first update"
                     : update.getClasses() != first.getClasses() ||
                             update.getHeadClassesAttr() != first.getHeadClassesAttr()
                         ? "the head classes of the first update"
                     : update.getScore().empty() != first.getScore().empty()
                         ? "a score region like the first update"
                         : "";
    if (!what.empty()) {
      InFlightDiagnostic diagnostic = update.emitOpError("expected ") << what << ": one kernel has one state";
      diagnostic.attachNote(first.getLoc()) << "the first update";
      return diagnostic;
    }
  }
  return success();
}

bool mlir::attn::isQuantized(KVType type) {
  const rt::Store store = storeOf(type);
  return !store.keys.format.isPlain() || !store.values.format.isPlain();
}

bool Chain::hasOneRegion() {
  return llvm::all_of(updates, [&](UpdateOp update) {
    return argumentName(update.getKv()) == argumentName(updates.front().getKv());
  });
}

static SmallVector<Value> statesOf(Operation *op) {
  return llvm::to_vector(llvm::make_filter_range(
      op->getOperands(), [](Value operand) { return isa<StateType>(operand.getType()); }));
}

/// Whether the operation makes a state from states without seeing tokens.
static bool isChange(Operation *op) {
  if (isa<MergeOp>(op))
    return true;
  auto online = dyn_cast<OnlineOpInterface>(op);
  return online && !isa<UpdateOp>(op) && op->getNumResults() == 1 &&
         isa<StateType>(op->getResult(0).getType()) && !statesOf(op).empty();
}

/// Checks that --attn-walk-plan can move a change after the loops.
static LogicalResult verifyChange(Operation *op) {
  if (isa<MergeOp>(op))
    return success();
  if (!cast<OnlineOpInterface>(op).commutesWithMerge())
    return op->emitOpError(
        "expected an operation that commutes with attn.merge: each part of a split task does it, "
        "and the kernel that merges parts does not");
  for (Value operand : op->getOperands()) {
    if (isa<StateType>(operand.getType())
            ? operand.getType() != op->getResult(0).getType()
            : !operand.getDefiningOp() || !operand.getDefiningOp()->hasTrait<OpTrait::ConstantLike>())
      return op->emitOpError("expected constants and states of its result's type as operands, got ")
             << operand.getType();
  }
  return success();
}

static void addToChain(Chain &chain, Operation *op) {
  if (auto init = dyn_cast<InitOp>(op))
    chain.inits.push_back(init);
  else if (auto update = dyn_cast<UpdateOp>(op))
    chain.updates.push_back(update);
  else if (auto finish = dyn_cast<FinishOp>(op))
    (firstAttr.isOn(finish) ? chain.first : chain.finish) = finish;
  else if (auto gradient = dyn_cast<InitGradientOp>(op))
    chain.gradient = gradient;
  else if (auto significance = dyn_cast<InitSignificanceOp>(op))
    chain.significance = significance;
  else if (isChange(op))
    chain.changes.push_back(op);
}

FailureOr<Chain> mlir::attn::findChain(func::FuncOp function) {
  Chain chain;
  chain.function = function;
  for (auto finish : function.getOps<FinishOp>()) {
    FinishOp &known = firstAttr.isOn(finish) ? chain.first : chain.finish;
    if (known)
      return finish.emitOpError("expected one attention per function, found a second");
    known = finish;
  }
  if (!chain.finish)
    return function.emitOpError("has no attention at the online level");
  // Find the operations that the finished state is made of, then add them in the order of the text.
  SetVector<Operation *> found;
  SmallVector<Value> states{chain.finish.getState()};
  while (!states.empty()) {
    Value state = states.pop_back_val();
    Operation *op = state.getDefiningOp();
    if (!isa_and_nonnull<InitOp, UpdateOp>(op) && !(op && isChange(op))) {
      InFlightDiagnostic diagnostic = chain.finish.emitOpError(
          "expected a state that is made by attn.init, attn.update and attn.merge, or by "
          "operations with OnlineOpInterface that take states and give one");
      if (op)
        diagnostic.attachNote(op->getLoc()) << "this operation is none of these";
      return diagnostic;
    }
    if (isChange(op) && failed(verifyChange(op)))
      return failure();
    if (found.insert(op))
      llvm::append_range(states, statesOf(op));
  }
  for (Operation &op : function.getFunctionBody().front())
    if (found.contains(&op))
      addToChain(chain, &op);
  chain.init = chain.inits.front();
  if (failed(verifyChain(chain)))
    return failure();
  return chain;
}

Chain mlir::attn::findChainInKernel(func::FuncOp kernel) {
  Chain chain;
  chain.function = kernel;
  kernel.walk([&](Operation *op) { addToChain(chain, op); });
  if (!chain.inits.empty())
    chain.init = chain.inits.front();
  return chain;
}

/// Whether the user continues with the state. A finish after the first update does not.
static bool goesOn(Operation *user) { return !isa<FinishOp>(user) || !firstAttr.isOn(user); }

bool mlir::attn::goesOnOnce(Value state) { return llvm::count_if(state.getUsers(), goesOn) == 1; }

Operation *mlir::attn::findBranch(func::FuncOp function) {
  for (auto finish : function.getOps<FinishOp>()) {
    bool updated = false; // whether an update follows
    for (Operation *op = finish.getState().getDefiningOp(); op;) {
      SmallVector<Value> states = statesOf(op);
      if (states.size() > 1 || llvm::count_if(op->getUsers(), goesOn) > 1 ||
          (updated && !isa<InitOp, UpdateOp>(op)))
        return op;
      updated |= isa<UpdateOp>(op);
      op = states.empty() ? nullptr : states.front().getDefiningOp();
    }
  }
  return nullptr;
}

int64_t mlir::attn::tmaLoadLines(KVType type, int64_t keys) { return storeOf(type).boxLines(keys); }

static int64_t endsOf(VisibilityAttr visibility) {
  SmallVector<int64_t> ends;
  visibility.collectEnds(ends);
  return ends.size();
}

static bool isUnion(VisibilityAttr visibility) {
  return visibility &&
         (visibility.getKind() == VisibilityKind::Or || llvm::any_of(visibility.getOperands(), isUnion));
}

bool Chain::seesSeveralRanges() {
  bool some = updates.size() > 1 ||
              llvm::any_of(updates, [](UpdateOp update) { return isUnion(update.getVisibility()); });
  for (unsigned headClass = 0; headClass < classCount(); ++headClass)
    some |= isUnion(classVisibility(headClass));
  return some;
}

int64_t Chain::firstEnd(unsigned operand) {
  auto first = firstEndAttr.get(function);
  int64_t end = first ? first.getInt() : 0;
  for (UpdateOp before : ArrayRef(updates).take_front(operand))
    end += endsOf(before.getVisibility());
  return end;
}

int64_t Chain::firstEndOfClass(unsigned headClass) {
  int64_t end = firstEnd(updates.size());
  for (unsigned before = 0; before < headClass; ++before)
    end += endsOf(classVisibility(before));
  return end;
}

SmallVector<TableRead> mlir::attn::tableReads(UpdateOp update, ArrayAttr tables) {
  SmallVector<TableRead> reads;
  if (!tables || update.getScore().empty())
    return reads;
  llvm::StringMap<unsigned> counts;
  for (auto read : update.getScore().getOps<ReadOp>()) {
    StringRef name = argumentName(read.getTensor());
    if (!llvm::is_contained(tables, StringAttr::get(read.getContext(), name)))
      continue;
    std::string number = std::to_string(counts[name]++);
    StringRef of = indexedBy(read) == IndexedBy::Head ? ".heads" : ".rows";
    reads.push_back({read, (name + of + number).str(), (name + ".places" + number).str()});
  }
  return reads;
}

StringRef mlir::attn::argumentName(Value argument) {
  while (Operation *part = argument.getDefiningOp()) {
    if (!isa<RowsOp, TokensOp, StagedOp>(part))
      return {};
    argument = part->getOperand(0);
  }
  auto block = dyn_cast<BlockArgument>(argument);
  if (!block)
    return {};
  auto function = dyn_cast<func::FuncOp>(block.getOwner()->getParentOp());
  auto name =
      function ? function.getArgAttrOfType<StringAttr>(block.getArgNumber(), "attn.name") : StringAttr();
  return name ? name.getValue() : StringRef();
}

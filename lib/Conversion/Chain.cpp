//===- Chain.cpp - The chain of updates that becomes a kernel -------------===//
#include "attn/Conversion/Chain.h"

#include <numeric>

using namespace mlir;
using namespace mlir::attn;

/// What one kernel needs its updates to agree on. `attn.attend` guarantees it; IR at the online level may be
/// anything.
static LogicalResult verifyChain(Chain &chain) {
  if (chain.updates.empty())
    return chain.finish.emitOpError("expected a region of which something is visible");
  if (argumentName(chain.query()).empty())
    return chain.init.emitOpError("expected the query to be an argument of the function, with an attn.name");
  if (Value sinks = chain.init.getSinks(); sinks && argumentName(sinks).empty())
    return chain.init.emitOpError(
        "expected the sink logits to be an argument of the function, with an attn.name");
  if (cast<RankedTensorType>(chain.finish.getOutput().getType()).getElementType() != chain.element())
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

FailureOr<Chain> attn::findChain(func::FuncOp function) {
  Chain chain;
  chain.function = function;
  for (auto finish : function.getOps<FinishOp>()) {
    if (chain.finish)
      return finish.emitOpError("expected one attention per function, found a second");
    chain.finish = finish;
  }
  if (!chain.finish)
    return function.emitOpError("has no attention at the online level");
  Value state = chain.finish.getState();
  while (auto update = state.getDefiningOp<UpdateOp>()) {
    chain.updates.insert(chain.updates.begin(), update);
    state = update.getState();
  }
  chain.init = state.getDefiningOp<InitOp>();
  if (!chain.init) {
    InFlightDiagnostic diagnostic =
        chain.finish.emitOpError("expected a chain of updates from one attn.init");
    if (Operation *op = state.getDefiningOp())
      diagnostic.attachNote(op->getLoc()) << "the chain ends here; --canonicalize turns merges into chains";
    return diagnostic;
  }
  if (failed(verifyChain(chain)))
    return failure();
  return chain;
}

int64_t attn::fetchLines(KVType type, int64_t keys) {
  if (type.isOfClass())
    return 0;
  int64_t lines = type.getStore() == Store::Paged ? std::gcd(type.getPage(), keys) : keys;
  // Swizzles repeat after eight lines; the lanes of a warp issue one box each.
  return lines % 8 == 0 && keys / lines <= 32 ? lines : 0;
}

bool attn::mayFetch(Chain &chain, int64_t keys) {
  return llvm::all_of(chain.updates,
                      [&](UpdateOp update) { return fetchLines(update.getKv().getType(), keys) > 0; });
}

static int64_t endsOf(VisibilityAttr visibility) {
  SmallVector<int64_t> ends;
  visibility.collectEnds(ends);
  return ends.size();
}

int64_t Chain::firstEnd(unsigned operand) {
  int64_t end = 0;
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

StringRef attn::argumentName(Value argument) {
  auto block = dyn_cast<BlockArgument>(argument);
  if (!block)
    return {};
  auto function = dyn_cast<func::FuncOp>(block.getOwner()->getParentOp());
  auto name =
      function ? function.getArgAttrOfType<StringAttr>(block.getArgNumber(), "attn.name") : StringAttr();
  return name ? name.getValue() : StringRef();
}

//===- Chain.cpp - The chain of updates that becomes a kernel -------------===//
#include "attn/Conversion/Chain.h"

using namespace mlir;
using namespace mlir::attn;

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
    InFlightDiagnostic diagnostic = chain.finish.emitOpError("expected a chain of updates from one attn.init");
    if (Operation *op = state.getDefiningOp())
      diagnostic.attachNote(op->getLoc()) << "the chain ends here; --canonicalize turns merges into chains";
    return diagnostic;
  }
  return chain;
}

StringRef attn::argumentName(Value argument) {
  auto block = dyn_cast<BlockArgument>(argument);
  if (!block)
    return {};
  auto function = dyn_cast<func::FuncOp>(block.getOwner()->getParentOp());
  auto name = function ? function.getArgAttrOfType<StringAttr>(block.getArgNumber(), "attn.name") : StringAttr();
  return name ? name.getValue() : StringRef();
}

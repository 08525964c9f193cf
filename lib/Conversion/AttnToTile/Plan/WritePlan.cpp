//===- WritePlan.cpp - The kernel that makes plans on the device ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanKernel.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_WRITEPLANPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

struct WritePlan : mlir::attn::impl::WritePlanPassBase<WritePlan> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (plansAttr.isOn(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      FailureOr<Chain> chain = findChain(function);
      if (failed(chain) || failed(verify(*chain)))
        return signalPassFailure();
      OpBuilder builder(function);
      auto kernel = func::FuncOp::create(builder, function.getLoc(), function.getName(),
                                         builder.getFunctionType({}, {}));
      kernel.addEntryBlock();
      PlanKernel(*chain, kernel).run();
      function.erase();
      ++kernels;
    }
  }

  /// Rejects functions that only the planner on the host can plan.
  static LogicalResult verify(Chain &chain) {
    if (chain.headClasses())
      return chain.function.emitError("cannot be planned on the device: its heads have classes");
    for (UpdateOp update : chain.updates) {
      KVType type = update.getKv().getType();
      if (type.isOfClass())
        return update.emitOpError("cannot be planned on the device: its store is of one class of heads");
      bool stores = storesScoresAttr.isOn(chain.function);
      if (stores && !seesAll(update.getVisibility()))
        return update.emitOpError("cannot be planned on the device: expected rows that see all of their "
                                  "tokens: their significance comes from stored scores");
      if (stores && storeOf(type).kind == ::attn::rt::StoreKind::Packed)
        return update.emitOpError("cannot be planned on the device: expected a paged or dense region, whose "
                                  "capacity does not depend on lengths, to have significance");
      if (int64_t ranges = PlanKernel::intervalBound(update.getVisibility()); ranges > 2)
        return update.emitOpError("cannot be planned on the device: expected a visibility of at most two "
                                  "intervals, got ")
               << ranges;
    }
    return success();
  }

  /// Whether the last row of a sequence sees all tokens, however long the sequence gets.
  static bool seesAll(VisibilityAttr visibility) {
    return visibility.getKind() == VisibilityKind::All || visibility.getKind() == VisibilityKind::Causal;
  }
};

} // namespace

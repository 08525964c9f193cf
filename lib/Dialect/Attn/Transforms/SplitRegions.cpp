//===- SplitRegions.cpp - Attention as merges of partial softmax ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "HeldTokens.h"

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {
#define GEN_PASS_DEF_SPLITREGIONSPASS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {
struct SplitRegionsPass : mlir::attn::impl::SplitRegionsPassBase<SplitRegionsPass> {
  using SplitRegionsPassBase::SplitRegionsPassBase;

  void runOnOperation() override {
    Attribute backward = backwardAttr.get(getOperation());
    const bool weighs = significanceAttr.isOn(getOperation()) || significanceRowsAttr.isOn(getOperation());
    func::FuncOp function = getOperation();
    if (Attribute ordered = orderedAttr.get(function);
        ordered && (!backward || !(isa<UnitAttr, BoolAttr>(ordered) ||
                                   ordered == StringAttr::get(function.getContext(), orderedApart)))) {
      function.emitError("expected ")
          << orderedAttr << ", true, false or \"" << orderedApart << "\", beside " << backwardAttr;
      return signalPassFailure();
    }
    if (SmallVector<AttendOp> attends(function.getOps<AttendOp>()); attends.size() == 2) {
      if (backward || weighs) {
        function.emitError("expected one attention beside attn.backward or attn.significance, got two");
        return signalPassFailure();
      }
      FailureOr<Attends> two = findAttends(function);
      if (failed(two))
        return signalPassFailure();
      if (two->last->isBeforeInBlock(two->first))
        two->first->moveBefore(two->last);
      split(two->last, split(two->first));
      return;
    }
    getOperation().walk([&](AttendOp attend) {
      if (backward && failed(verifyDifferentiable(attend, backward)))
        return signalPassFailure();
      if (weighs && failed(verifyWeighs(getOperation(), attend)))
        return signalPassFailure();
      split(attend);
    });
  }

  /// Returns the finished state. `first`: the state of the first region, which is also finished separately.
  Value split(AttendOp attend, Value first = {}) {
    OpBuilder builder(attend);
    Location loc = attend.getLoc();
    auto stateType = StateType::get(&getContext(), attend.getQueryHeads(), attend.getValueDim());
    Value merged = first;
    ++attentions;
    for (auto [i, region] : llvm::enumerate(attend.getRegions())) {
      if (first && i == 0) {
        firstAttr.mark(*first.getUsers().begin());
        continue;
      }
      Value sinks = i == 0 ? attend.getSinks() : Value();
      Value state = InitOp::create(builder, loc, stateType, attend.getQuery(), sinks);
      auto update =
          UpdateOp::create(builder, loc, stateType, state, attend.getQuery(), region,
                           attend.getRegionVisibility(i), attend.getRegionClass(i), attend.getClasses(),
                           attend.getHeadClassesAttr(), attend.getScaleOrDefault());
      ++states;
      IRMapping mapping;
      attend.getScore().cloneInto(&update.getScore(), mapping);
      merged = merged ? Value(MergeOp::create(builder, loc, stateType, merged, update)) : Value(update);
    }
    auto typeOf = [](Value result) { return result ? result.getType() : Type(); };
    auto finish =
        FinishOp::create(builder, loc, attend.getOutput().getType(), typeOf(attend.getLse()),
                         typeOf(attend.getOutputScales()), merged, attend.getGate(), attend.getOutputScale());
    attend.replaceAllUsesWith(finish->getResults());
    attend.erase();
    return merged;
  }
};
} // namespace

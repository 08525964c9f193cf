//===- AttnOnlineOps.cpp - The online level -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::attn;

static bool isIdentity(Value state) {
  auto init = state.getDefiningOp<InitOp>();
  return init && init.isIdentity();
}

LogicalResult InitOp::verify() {
  if (failed(detail::verifyQuery(*this, "query", getQuery().getType())))
    return failure();
  int64_t heads = cast<RankedTensorType>(getQuery().getType()).getDimSize(1);
  if (getState().getType().getHeads() != heads)
    return emitOpError("expected a state of the query's ")
           << heads << " heads, got " << getState().getType().getHeads();
  if (getSinks())
    return detail::verifySinks(*this, getSinks().getType(), heads);
  return success();
}

LogicalResult UpdateOp::verify() {
  if (failed(detail::verifyQuery(*this, "query", getQuery().getType())))
    return failure();
  auto query = cast<RankedTensorType>(getQuery().getType());
  KVType region = getKv().getType();
  if (failed(detail::verifyRegionClass(*this, region, getRegionClassAttr(), getHeadClassesAttr())))
    return failure();
  int64_t heads = getKVHeads();
  if (failed(detail::verifyClasses(*this, getClasses(), getHeadClassesAttr(), heads)) ||
      failed(detail::verifyRegion(*this, query, region, heads)))
    return failure();
  Type state = getState().getType();
  if (auto significance = dyn_cast<SignificanceType>(state)) {
    if (significance.getHeads() != query.getDimSize(1))
      return emitOpError("expected a significance of ")
             << query.getDimSize(1) << " heads, got " << significance.getHeads();
    return detail::verifyScale(*this, getScale());
  }
  auto gradient = dyn_cast<GradientType>(state);
  if (gradient ? gradient.getHeads() != query.getDimSize(1) || gradient.getKeyDim() != region.getKeyDim() ||
                     gradient.getValueDim() != region.getValueDim()
               : cast<StateType>(state).getHeads() != query.getDimSize(1) ||
                     cast<StateType>(state).getValueDim() != region.getValueDim())
    return emitOpError("expected a state of ")
           << query.getDimSize(1) << " heads and value dim " << region.getValueDim() << ", got " << state;
  return detail::verifyScale(*this, getScale());
}

int64_t UpdateOp::getKVHeads() { return detail::kvHeadsOf(getKv().getType(), getClasses()); }

std::optional<unsigned> UpdateOp::getClassOfRegion() {
  if (!getRegionClassAttr())
    return std::nullopt;
  return llvm::find(getHeadClassesAttr().getNames(), getRegionClassAttr()) -
         getHeadClassesAttr().getNames().begin();
}

LogicalResult UpdateOp::verifyRegions() { return detail::verifyScore(*this, getScore()); }

OpFoldResult UpdateOp::fold(FoldAdaptor) {
  // Nothing is visible: the region contributes the identity.
  HeadClassesAttr classes = getHeadClassesAttr();
  bool empty = getVisibility().isStaticallyEmpty() || (classes && classes.isStaticallyEmpty());
  if (std::optional<unsigned> only = getClassOfRegion())
    empty |= classes.getVisibility()[*only].isStaticallyEmpty();
  return empty ? getState() : OpFoldResult();
}

OpFoldResult MergeOp::fold(FoldAdaptor) {
  if (isIdentity(getRhs()))
    return getLhs();
  if (isIdentity(getLhs()))
    return getRhs();
  return {};
}

namespace {
/// merge(a, update(...update(init, R1)..., Rn)) -> update(...update(a, R1)..., Rn), by associativity: the
/// chain on either side starts from the other state instead of the identity.
struct ContinueChain : OpRewritePattern<MergeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(MergeOp merge, PatternRewriter &rewriter) const override {
    for (auto [state, chain] :
         {std::pair(merge.getLhs(), merge.getRhs()), std::pair(merge.getRhs(), merge.getLhs())}) {
      SmallVector<UpdateOp> updates = chainFromIdentity(chain);
      if (updates.empty())
        continue;
      rewriter.setInsertionPoint(merge);
      Value result = state;
      for (UpdateOp update : llvm::reverse(updates)) {
        IRMapping mapping;
        mapping.map(update.getState(), result);
        result = rewriter.clone(*update, mapping)->getResult(0);
      }
      rewriter.replaceOp(merge, result);
      for (UpdateOp update : updates)
        rewriter.eraseOp(update);
      return success();
    }
    return rewriter.notifyMatchFailure(
        merge, "neither state is a chain that starts at the identity and is used once");
  }

  /// Returns the updates of a chain, last first; empty unless it starts at the identity and has no other use.
  static SmallVector<UpdateOp> chainFromIdentity(Value state) {
    SmallVector<UpdateOp> updates;
    while (auto update = state.getDefiningOp<UpdateOp>()) {
      if (!update->hasOneUse())
        return {};
      updates.push_back(update);
      state = update.getState();
    }
    if (!isIdentity(state))
      return {};
    return updates;
  }
};
} // namespace

void MergeOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<ContinueChain>(context);
}

void FinishOp::build(OpBuilder &builder, OperationState &state, Type output, Type lse, Type outputScales,
                     Value finished, Value gate, Value outputScale) {
  build(builder, state, output, lse, outputScales, finished, Value(), Value(), gate, outputScale);
}

LogicalResult FinishOp::verify() {
  StateType state = getState().getType();
  if (failed(detail::verifyOutput(*this, getOutput().getType(), state.getHeads(), state.getValueDim())))
    return failure();
  if ((getOutputScale() || getOutputScales()) && // in kernels the write has the scale
      failed(detail::verifyOutputScale(*this, getOutputScale(), getOutput().getType(),
                                       getOutputScales() != nullptr)))
    return failure();
  if (getOutputScales() && failed(detail::verifyOutputScales(*this, getOutputScales().getType(),
                                                             state.getHeads(), state.getValueDim())))
    return failure();
  if (getGate() && failed(detail::verifyGate(*this, getGate().getType(), getOutput().getType())))
    return failure();
  if (getLse())
    return detail::verifyLse(*this, getLse().getType(), state.getHeads());
  return success();
}

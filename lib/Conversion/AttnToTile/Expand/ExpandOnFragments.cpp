//===- ExpandOnFragments.cpp - Online operations on sixteen rows ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "Expansion.h"
#include "OnlineModels.h"

#include "attn/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Parts expand to nothing; operations that take them read their operands.
template <typename Op> struct PartModel : OnlineOpInterface::ExternalModel<PartModel<Op>, Op> {
  LogicalResult expandOnFragments(Operation *, FragmentExpansion &) const { return success(); }
};

/// Merges a tile of rows and tokens into a state.
void expandState(const OneUpdate &one, Value result, FragmentExpansion &e) {
  UpdateOp update = one.front();
  KernelBuilder &b = e.b;
  Type f32 = b.getF32Type();
  State state = e.stateOf(update.getState());
  if (e.schedule.sharesWeights())
    return e.setState(result, e.mergeHalves(one, state));
  Value firstKey = one.tokens().getFirst();
  // The lift of the unit does not depend on scores: lanes compute it while the MMAs of the scores run. Under
  // a numerics contract each pair has a lift, which would take registers for that long.
  FragmentExpansion::TokenMeta meta = e.weighedMeta(update);
  const bool liftsPairs = meta.scale && numericsAttr.isOn(b.kernel);
  FragmentExpansion::Room room;
  if (!meta.scale)
    room = e.roomBesideScales(update, state.unit);
  else if (!liftsPairs)
    room.lift = LiftOp::create(b, e.rowsOf(f32), meta.scale, state.unit, e.pairs());
  Value scores = e.applyScoreRegion(update, e.rowsMmaTokens(update), firstKey);
  scores = e.maskScores(one, scores, copyOf(update.getQuery(), Copy::Position), firstKey);
  if (one.rows(b, e.form).op.getScores())
    e.storeScores(update, scores, state.unit);
  if (liftsPairs)
    room.lift = LiftOp::create(b, e.pairs(), meta.scale, state.unit, e.pairs());
  bool fixed = e.form.has(FormTraits::FixedUnit);
  auto step = SoftmaxStepOp::create(b, state.max.getType(), state.sum.getType(), scores.getType(),
                                    fixed ? Type() : state.max.getType(),
                                    fixed ? Type() : Type(b.getI1Type()), scores, state.max, state.sum,
                                    state.unit, room.lift, /*largest=*/Value(), fixed, room.slack);
  Value acc = state.acc, weights = step.getWeights(), zeros;
  if (!fixed)
    acc = RescaleOp::create(b, acc.getType(), acc, step.getDecay(), step.getMoved());
  if (meta.zero)
    zeros = e.addZeros(state.zeros, step.getDecay(), weights, meta.zero);
  if (!meta.groups.empty()) {
    acc = e.accumulateGroups(update, meta.groups, weights, acc);
    return e.setState(result, {step.getNewMax(), step.getNewSum(), acc, zeros, state.unit});
  }
  if (meta.scale)
    weights = ScaleWeightsOp::create(b, weights.getType(), weights, meta.scale);
  Value values = e.valuesOf(update, meta); // a fragment has the features of this warp alone
  Value first = isa<SharedType>(values.getType()) ? e.firstFeature() : Value();
  acc = AccumulateOp::create(b, acc.getType(), e.form.getMmas(), weights, values, first, acc);
  e.setState(result, {step.getNewMax(), step.getNewSum(), acc, zeros, state.unit});
}

LogicalResult expandOne(const OneUpdate &one, Value result, FragmentExpansion &e) {
  UpdateOp update = one.front();
  bool isFinished = !isa<StateType>(result.getType());
  if (!copyOf(update.getQuery(), Copy::Query) || !copyOf(update.getKv(), Copy::Keys) || !one.tokens() ||
      (isFinished && !copyOf(update.getQuery(), Copy::Lse)))
    return update.emitOpError("expected rows and tokens that are staged: --attn-stage-operands does it");
  if (isa<GradientType>(result.getType()))
    expandGradient(one, result, e);
  else if (isa<SignificanceType>(result.getType()))
    expandSignificance(one, result, e);
  else
    expandState(one, result, e);
  return success();
}

struct UpdateModel : OnlineOpInterface::ExternalModel<UpdateModel, UpdateOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto update = cast<UpdateOp>(op);
    if (llvm::any_of(update->getUsers(), llvm::IsaPred<OneOfOp>))
      return success(); // attn.one_of expands it
    return expandOne({update, Value()}, update.getResult(), e);
  }
};

struct OneOfModel : OnlineOpInterface::ExternalModel<OneOfModel, OneOfOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto one = cast<OneOfOp>(op);
    SmallVector<UpdateOp> updates;
    for (Value state : one.getStates())
      updates.push_back(state.getDefiningOp<UpdateOp>());
    return expandOne({updates, one.getOperand()}, one.getResult(), e);
  }
};

struct WarpsModel : OnlineOpInterface::ExternalModel<WarpsModel, WarpsOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto warps = cast<WarpsOp>(op);
    e.setState(warps.getState(), e.mergeWarps(e.settled(e.stateOf(warps.getPart()))));
    return success();
  }
};

struct InitModel : OnlineOpInterface::ExternalModel<InitModel, InitOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto init = cast<InitOp>(op);
    e.setState(init.getState(), e.initialState(init.getQuery()));
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<InitOp>(op), e);
  }
};

struct MergeModel : OnlineOpInterface::ExternalModel<MergeModel, MergeOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto merge = cast<MergeOp>(op);
    e.setState(merge.getResult(), e.mergeStates(e.stateOf(merge.getLhs()), e.stateOf(merge.getRhs())));
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<MergeOp>(op), e);
  }
};

struct FinishModel : OnlineOpInterface::ExternalModel<FinishModel, FinishOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto finish = cast<FinishOp>(op);
    if (!finish.getRows())
      return finish.emitOpError("expected the rows of its results: --attn-walk-plan adds them");
    FragmentExpansion::Results results = e.finishState(finish);
    // The LSE belongs to a state that is stored, whether or not it is a result.
    become(e.b, finish.getOutput(), {results.output, results.lse});
    if (finish.getLse())
      become(e.b, finish.getLse(), results.lse);
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<FinishOp>(op), e);
  }
};

struct NoPartsModel : OnlineOpInterface::ExternalModel<NoPartsModel, NoPartsOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    KernelBuilder &b = e.b;
    Value zeros = b.splat(b.f32(0), e.accType());
    Value none = b.splat(b.f32(-infinity), e.rowsOf(b.getF32Type()));
    become(b, cast<NoPartsOp>(op).getOutput(), {zeros, none});
    return success();
  }
};

struct FoldModel : OnlineOpInterface::ExternalModel<FoldModel, FoldOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto fold = cast<FoldOp>(op);
    FragmentExpansion::Results results = fold.getPart() ? e.foldParts(fold) : e.foldSinks(fold);
    become(e.b, fold.getResult(), {results.output, results.lse});
    if (fold.getLse())
      become(e.b, fold.getLse(), results.lse);
    return success();
  }
};

struct KeepModel : OnlineOpInterface::ExternalModel<KeepModel, KeepOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    e.keepParts(cast<KeepOp>(op));
    return success();
  }
};

struct WriteModel : OnlineOpInterface::ExternalModel<WriteModel, mlir::attn::WriteOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<mlir::attn::WriteOp>(op);
    if (failed(verifyScales(write, e.schedule.getSlices())))
      return failure();
    firstAttr.isOn(write) ? e.writeFirst(write) : e.writeResults(write);
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    auto write = cast<mlir::attn::WriteOp>(op);
    return succeeded(verifyScales(write, e.slices)) ? mlir::attn::expandOnLanes(write, e) : failure();
  }

private:
  /// `slices`: the warps that share a row, of which none knows the largest output.
  static LogicalResult verifyScales(mlir::attn::WriteOp write, int64_t slices) {
    if (!write.getOutputScales() || slices == 1)
      return success();
    return write.emitOpError("expected rows that no warps share beside output_scales, got ")
           << slices << " warps or warpgroups for each";
  }
};

struct StoredModel : OnlineOpInterface::ExternalModel<StoredModel, StoredOp> {
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<StoredOp>(op), e);
  }
};

} // namespace

void mlir::attn::registerOnlineModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    RowsOp::attachInterface<PartModel<RowsOp>>(*context);
    TokensOp::attachInterface<PartModel<TokensOp>>(*context);
    StagedOp::attachInterface<PartModel<StagedOp>>(*context);
    InitOp::attachInterface<InitModel>(*context);
    UpdateOp::attachInterface<UpdateModel>(*context);
    OneOfOp::attachInterface<OneOfModel>(*context);
    MergeOp::attachInterface<MergeModel>(*context);
    WarpsOp::attachInterface<WarpsModel>(*context);
    FinishOp::attachInterface<FinishModel>(*context);
    NoPartsOp::attachInterface<NoPartsModel>(*context);
    FoldOp::attachInterface<FoldModel>(*context);
    KeepOp::attachInterface<KeepModel>(*context);
    mlir::attn::WriteOp::attachInterface<WriteModel>(*context);
    StoredOp::attachInterface<StoredModel>(*context);
    registerGradientModels(*context);
    registerSignificanceModels(*context);
  });
}

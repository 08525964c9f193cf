//===- ExpandOnFragments.cpp - Online operations on sixteen rows ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"
#include "OnlineModels.h"

#include "attn/Conversion/Passes.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void FragmentExpansion::setRows(Value rows) {
  if (auto staged = rows.getDefiningOp<StagedOp>())
    rows = staged.getPart();
  TaskView::setRows(rows.getDefiningOp<RowsOp>());
  ArrayRef<Value> values = pieces.of(rows);
  queryPosition = values[0], queryHead = values[1];
}

Value FragmentExpansion::scores(Value ofRows, Value ofTokens, Value scale, Value tokenScales) {
  Value left = tokensFirst() ? ofTokens : ofRows, line;
  // Of tokens that are held each warp has a tile of its own, and warps have the same rows: from the first
  // line on.
  if (isa<SharedType>(ofRows.getType()))
    line = dots() == Dots::Mma ? warpRow : groupRow;
  return ScoresOp::create(b, scoresType(), dots(), ofRows, ofTokens,
                          isa<SharedType>(left.getType()) ? line : Value(),
                          /*begin=*/Value(), scale, tokenScales);
}

namespace {

struct RowsModel : OnlineOpInterface::ExternalModel<RowsModel, RowsOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto rows = cast<RowsOp>(op);
    e.readRows(rows);
    bool summed = e.chain.gradient && e.chain.gradient.getSummed();
    if (e.chain.readsFinished() && !summed && !e.stagesNumbers())
      e.readFinished();
    if (e.foldsScales())
      e.readScales();
    e.pieces.set(rows, {e.queryPosition, e.queryHead});
    return success();
  }
};

struct TokensModel : OnlineOpInterface::ExternalModel<TokensModel, TokensOp> {
  LogicalResult expandOnFragments(Operation *, FragmentExpansion &) const {
    return success(); // it is its operands
  }
};

struct StagedModel : OnlineOpInterface::ExternalModel<StagedModel, StagedOp> {
  LogicalResult expandOnFragments(Operation *, FragmentExpansion &) const { return success(); }
};

/// Expands the update by a tile of one region, or that by a tile of one of several, of which `segment` says
/// which.
LogicalResult expandUpdate(UpdateOp update, std::optional<unsigned> operand, Value which, Value result,
                           FragmentExpansion &e) {
  if (isa<GradientType>(update.getState().getType()))
    return expandGradient(update, operand, which, result, e);
  if (isa<SignificanceType>(update.getState().getType()))
    return expandSignificance(update, result, e);
  auto staged = update.getKv().getDefiningOp<StagedOp>();
  auto tokens = staged ? staged.getPart().getDefiningOp<TokensOp>() : TokensOp();
  if (!tokens || staged.getCopies().size() < 2 || !update.getQuery().getDefiningOp<StagedOp>())
    return update.emitOpError("expected rows and tokens that are staged: --attn-stage-operands does it");
  e.setRows(update.getQuery());
  State state = e.stateOf(update.getState());
  Segment segment = TaskView::segmentOf(tokens);
  segment.operand = which;
  // What the unit must be raised by is known before the scores: lanes find it while these are multiplied.
  FragmentExpansion::TokenMeta meta = e.weighedMeta(update, staged, segment);
  KernelBuilder &b = e.b;
  Value lift =
      meta.scale
          ? LiftOp::create(b, e.rowsOf(b.getF32Type()), meta.scale, e.toLog2, e.scoresType()).getResult()
          : e.liftBesideScales(update);
  Value scores = e.rowsDotTokens(update, staged, segment);
  scores = e.applyScoreRegion(update, scores, segment, tokens.getFirst());
  scores = e.maskScores(scores, operand, segment, tokens.getFirst());
  if (e.scoresStay)
    e.storeScores(scores, update, tokens);
  auto step = SoftmaxStepOp::create(b, state.max.getType(), state.sum.getType(), scores.getType(),
                                    e.fixedUnit ? Type() : state.max.getType(),
                                    e.fixedUnit ? Type() : Type(b.getI1Type()), scores, state.max, state.sum,
                                    e.toLog2, lift, e.fixedUnit);
  Value acc = state.acc, weights = step.getWeights(), zeros;
  if (!e.fixedUnit)
    acc = RescaleOp::create(b, acc.getType(), acc, step.getDecay(), step.getMoved());
  if (meta.zero)
    zeros = e.addZeros(state.zeros, step.getDecay(), weights, meta.zero);
  if (meta.scale)
    weights = ScaleWeightsOp::create(b, weights.getType(), weights, meta.scale);
  acc = AccumulateOp::create(b, acc.getType(), e.dots(), weights, e.valuesOf(update, staged), acc);
  e.pieces.set(result, State{step.getNewMax(), step.getNewSum(), acc, zeros}.values());
  return success();
}

struct UpdateModel : OnlineOpInterface::ExternalModel<UpdateModel, UpdateOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto update = cast<UpdateOp>(op);
    if (llvm::any_of(update->getUsers(), llvm::IsaPred<OneOfOp>))
      return success(); // that one does
    unsigned operand = llvm::find(e.chain.updates, update) - e.chain.updates.begin();
    return expandUpdate(update, operand, Value(), update.getResult(), e);
  }
};

struct OneOfModel : OnlineOpInterface::ExternalModel<OneOfModel, OneOfOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto one = cast<OneOfOp>(op);
    if (one.getStates().size() != e.chain.updates.size())
      return one.emitOpError("expected all updates of the kernel");
    return expandUpdate(e.chain.updates.front(), std::nullopt, one.getOperand(), one.getResult(), e);
  }
};

struct WarpsModel : OnlineOpInterface::ExternalModel<WarpsModel, WarpsOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto warps = cast<WarpsOp>(op);
    KernelBuilder &b = e.b;
    int64_t count = e.schedule.getWarps();
    State state = e.settled(e.stateOf(warps.getPart()));
    Type f32 = b.getF32Type();
    Value warp = WarpIdOp::create(b, b.getI32Type());
    Value sum = CompleteOp::create(b, e.rowsOf(f32), state.sum);
    int64_t share = e.schedule.getColumnShare(e.chain.paddedValueDim());
    int64_t rows = std::max<int64_t>(e.rows, 16); // what is merged is stored, few rows like any
    FragmentType rowType = b.fragment({Axis::Query}, {rows}, f32);
    FragmentType shareType = b.fragment({Axis::Query, Axis::Feature}, {rows, share}, f32);
    SyncOp::create(b, Scope::Block); // the rings are free for the exchange
    auto merge = MergeWarpsOp::create(b, rowType, rowType, shareType, state.max, sum, state.acc,
                                      e.exchangeMemory(), e.toLog2, warp, b.getI64IntegerAttr(count));
    e.pieces.set(warps.getState(), {merge.getMergedMax(), merge.getMergedSum(), merge.getMergedAcc(),
                                    b.mul(warp, b.i32(share))});
    return success();
  }
};

struct InitModel : OnlineOpInterface::ExternalModel<InitModel, InitOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto init = cast<InitOp>(op);
    e.setRows(init.getQuery());
    e.pieces.set(init.getState(), e.initialState().values());
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<InitOp>(op), e);
  }
};

struct MergeModel : OnlineOpInterface::ExternalModel<MergeModel, MergeOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto merge = cast<MergeOp>(op);
    State state = e.mergeStates(e.stateOf(merge.getLhs()), e.stateOf(merge.getRhs()));
    e.pieces.set(merge.getResult(), state.values());
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<MergeOp>(op), e);
  }
};

struct FinishModel : OnlineOpInterface::ExternalModel<FinishModel, FinishOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto finish = cast<FinishOp>(op);
    ArrayRef<Value> pieces = e.pieces.of(finish.getState());
    State state{pieces[0], pieces[1], pieces[2], {}};
    if (cast<FragmentType>(state.sum.getType()).getPartial())
      state.sum = CompleteOp::create(e.b, e.rowsOf(e.b.getF32Type()), state.sum);
    FragmentExpansion::Results results = e.finishState(state.max, state.sum, state.acc, e.chain.sinks());
    SmallVector<Value> output{results.output};
    llvm::append_range(output, e.pieces.of(finish.getState()).drop_front(3));
    // The LSE is a part of a state that is stored, whether or not it is a result.
    output.push_back(results.lse);
    e.pieces.set(finish.getOutput(), output);
    if (finish.getLse())
      e.pieces.set(finish.getLse(), {results.lse});
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<FinishOp>(op), e);
  }
};

struct WriteModel : OnlineOpInterface::ExternalModel<WriteModel, mlir::attn::WriteOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<mlir::attn::WriteOp>(op);
    KernelBuilder &b = e.b;
    e.setRows(write.getRows());
    ArrayRef<Value> output = e.pieces.of(write.getOutput());
    if (firstAttr.isOn(write)) {
      e.writeFirst({output.front(), output.back()});
      return success();
    }
    Value column = output.size() == 3 ? output[1] : Value();
    int64_t features = cast<FragmentType>(output[0].getType()).getSizes()[1];
    Value lines = b.sub(e.packedCount, e.warpRow);
    IntegerAttr columns;
    if (features * (column ? e.schedule.getWarps() : 1) != e.chain.valueDim())
      columns = b.getI64IntegerAttr(e.chain.valueDim());
    if (column) { // all warps have these rows
      Value warp = WarpIdOp::create(b, b.getI32Type());
      lines = b.select(b.compare(arith::CmpIPredicate::eq, warp, b.i32(0)), lines, b.i32(0));
    }
    // Where the copy engine takes the results, warpgroups meet at barriers behind those of their turns.
    auto send = [&](Value fragment) {
      Value barrier = b.add(b.i32(1 + e.schedule.getConsumers()), b.div(e.groupRow, ScheduleAttr::groupRows));
      e.sendOutput(fragment, FragmentExpansion::copyOf(write.getRows(), 0), e.groupRow, barrier);
    };
    e.writeResults({output.front(), output.back()}, write.getPart(), column, columns, lines,
                   e.schedule.sendsResults() ? function_ref<void(Value)>(send) : nullptr);
    return success();
  }
  LogicalResult expandOnLanes(Operation *op, LaneExpansion &e) const {
    return mlir::attn::expandOnLanes(cast<mlir::attn::WriteOp>(op), e);
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
    RowsOp::attachInterface<RowsModel>(*context);
    TokensOp::attachInterface<TokensModel>(*context);
    StagedOp::attachInterface<StagedModel>(*context);
    InitOp::attachInterface<InitModel>(*context);
    UpdateOp::attachInterface<UpdateModel>(*context);
    OneOfOp::attachInterface<OneOfModel>(*context);
    MergeOp::attachInterface<MergeModel>(*context);
    WarpsOp::attachInterface<WarpsModel>(*context);
    FinishOp::attachInterface<FinishModel>(*context);
    mlir::attn::WriteOp::attachInterface<WriteModel>(*context);
    StoredOp::attachInterface<StoredModel>(*context);
    registerGradientModels(*context);
    registerSignificanceModels(*context);
  });
}

//===- AsyncPatterns.cpp - Waits, mbarriers, register budgets ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

template <typename OpT> Value barrierAddress(Emitter &e, OpT op, typename OpT::Adaptor adaptor) {
  return e.sharedAt(adaptor.getBarriers(), e.mul(adaptor.getIndex(), 8));
}

/// Whether this is the thread that sets up mbarriers.
Value isFirstThread(Emitter &e) {
  Value thread = e.add(e.mul(e.lanes.warp, 32), e.lanes.lane);
  return e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, thread, e.i32(0));
}

struct InitBarriersPattern : TilePattern<InitBarriersOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(InitBarriersOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    e.doIf(isFirstThread(e), [&](Emitter &one) {
      for (auto [barriers, type, count] :
           llvm::zip_equal(adaptor.getBarriers(), op.getBarriers().getTypes(), op.getCounts()))
        for (int64_t i = 0; i < cast<BarriersType>(type).getCount(); ++i)
          NVVM::MBarrierInitOp::create(one.b, one.loc, one.sharedAt(barriers, i * 8), one.i32(count),
                                       Value());
    });
    rewriter.eraseOp(op);
    return success();
  }
};

struct PublishBarriersPattern : TilePattern<PublishBarriersOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PublishBarriersOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    e.doIf(isFirstThread(e), [](Emitter &one) { NVVM::FenceMbarrierInitOp::create(one.b, one.loc); });
    rewriter.eraseOp(op);
    return success();
  }
};

struct ArrivePattern : TilePattern<ArriveOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ArriveOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value barrier = barrierAddress(e, op, adaptor);
    Value first = e.isFirstLane();
    if (Value condition = adaptor.getCondition())
      first = e.both(first, condition);
    e.doIf(first, [&](Emitter &one) {
      NVVM::MBarrierArriveOp::create(one.b, one.loc, one.b.getI64Type(), barrier);
    });
    rewriter.eraseOp(op);
    return success();
  }
};

struct ClearPattern : TilePattern<ClearOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ClearOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    // Swizzles permute the chunks of a line inside its panel, so it does not matter which chunk a lane
    // clears.
    SharedType tile = op.getTile().getType();
    int64_t lines = tile.getBoxLines();
    for (const SharedType::Panel &panel : tile.getPanels()) {
      int64_t chunks = panel.width / 16;
      Value begin = e.add(e.mul(adaptor.getLine(), chunks), e.lanes.lane);
      scf::ForOp::create(rewriter, op.getLoc(), begin, e.i32(tile.getRows() * chunks), e.i32(32),
                         ValueRange(), [&](OpBuilder &builder, Location loc, Value chunk, ValueRange) {
                           Emitter at(builder, loc, e.lanes);
                           Value offset = at.mul(chunk, 16);
                           if (lines < tile.getRows()) {
                             Value box =
                                 at.b.createOrFold<arith::DivUIOp>(loc, chunk, at.i32(lines * chunks));
                             offset =
                                 at.add(offset, at.mul(box, lines * (tile.getLineBytes() - panel.width)));
                           }
                           auto type = VectorType::get(4, builder.getI32Type());
                           Value zero = LLVM::ZeroOp::create(builder, loc, type);
                           Value to = at.sharedAt(at.sharedAt(adaptor.getTile(), offset), panel.offset);
                           LLVM::StoreOp::create(builder, loc, zero, to, 16);
                           scf::YieldOp::create(builder, loc);
                         });
    }
    rewriter.eraseOp(op);
    return success();
  }
};

struct ArriveOnCopiesPattern : TilePattern<ArriveOnCopiesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ArriveOnCopiesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    NVVM::CpAsyncMBarrierArriveOp::create(rewriter, op.getLoc(), barrierAddress(e, op, adaptor),
                                          /*noinc=*/true);
    rewriter.eraseOp(op);
    return success();
  }
};

struct MbarrierWaitPattern : TilePattern<MbarrierWaitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MbarrierWaitOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value parity = op.getBefore() ? e.sub(e.i32(1), adaptor.getParity()) : adaptor.getParity();
    // The hint, in nanoseconds, limits how long the hardware may suspend the thread before it tests again.
    NVVM::MBarrierTryWaitParityOp::create(rewriter, op.getLoc(), barrierAddress(e, op, adaptor), parity,
                                          e.i32(10'000'000));
    rewriter.eraseOp(op);
    return success();
  }
};

struct FenceAsyncPattern : TilePattern<FenceAsyncOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(FenceAsyncOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::FenceProxyOp>(
        op, NVVM::ProxyKindAttr::get(getContext(), NVVM::ProxyKind::async_shared),
        NVVM::SharedSpaceAttr::get(getContext(), NVVM::SharedSpace::shared_cta));
    return success();
  }
};

struct NamedBarrierSyncPattern : TilePattern<NamedBarrierSyncOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NamedBarrierSyncOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    NVVM::BarrierOp::create(rewriter, op.getLoc(), TypeRange(), adaptor.getBarrier(), e.i32(op.getThreads()),
                            NVVM::BarrierReductionAttr(), Value());
    rewriter.eraseOp(op);
    return success();
  }
};

struct NamedBarrierArrivePattern : TilePattern<NamedBarrierArriveOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NamedBarrierArriveOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    NVVM::BarrierArriveOp::create(rewriter, op.getLoc(), adaptor.getBarrier(), e.i32(op.getThreads()));
    rewriter.eraseOp(op);
    return success();
  }
};

struct SetRegistersPattern : TilePattern<SetRegistersOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SetRegistersOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::SetMaxRegisterOp>(
        op, op.getCount(),
        op.getIncrease() ? NVVM::SetMaxRegisterAction::increase : NVVM::SetMaxRegisterAction::decrease);
    return success();
  }
};

struct CommitPattern : TilePattern<CommitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(CommitOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::CpAsyncCommitGroupOp>(op);
    return success();
  }
};

struct WaitPattern : TilePattern<WaitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WaitOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::CpAsyncWaitGroupOp>(op, op.getPending());
    return success();
  }
};

struct SyncPattern : TilePattern<SyncOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SyncOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    // Ping-pong and TMA stores of results take named barriers from the first on.
    constexpr int64_t producersBarrier = 15;
    Emitter e = emitter(op, rewriter);
    switch (op.getScope()) {
    case Scope::Warp:
      rewriter.replaceOpWithNewOp<NVVM::SyncWarpOp>(op, e.i32(-1));
      break;
    case Scope::Block:
      rewriter.replaceOpWithNewOp<NVVM::Barrier0Op>(op);
      break;
    case Scope::Producers: {
      auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
      if (!schedule || schedule.getProducerWarps() == 0)
        return op.emitOpError("is for producer warps, and the kernel's tile.schedule has none");
      NVVM::BarrierOp::create(rewriter, op.getLoc(), TypeRange(), e.i32(producersBarrier),
                              e.i32(schedule.getProducerWarps() * 32), NVVM::BarrierReductionAttr(), Value());
      rewriter.eraseOp(op);
    }
    }
    return success();
  }
};
} // namespace

void tile::populateAsyncPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                 const LaneMap &lanes) {
  patterns.add<CommitPattern, WaitPattern, SyncPattern, InitBarriersPattern, PublishBarriersPattern,
               ArrivePattern, ClearPattern, ArriveOnCopiesPattern, MbarrierWaitPattern, FenceAsyncPattern,
               NamedBarrierSyncPattern, NamedBarrierArrivePattern, SetRegistersPattern>(
      converter, patterns.getContext(), lanes);
}

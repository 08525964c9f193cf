//===- LanePatterns.cpp - Identifiers and scalars of a lane -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

struct WarpIdPattern : TilePattern<WarpIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WarpIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, emitter(op, rewriter).lanes.warp);
    return success();
  }
};

struct LaneIdPattern : TilePattern<LaneIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LaneIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, emitter(op, rewriter).lanes.lane);
    return success();
  }
};

struct BlockIdPattern : TilePattern<BlockIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BlockIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::BlockIdXOp>(op, rewriter.getI32Type());
    return success();
  }
};

struct BlockCountPattern : TilePattern<BlockCountOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BlockCountOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::GridDimXOp>(op, rewriter.getI32Type());
    return success();
  }
};
struct ReduceLanesPattern : TilePattern<ReduceLanesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReduceLanesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value value = adaptor.getValue();
    for (int64_t distance : {16, 8, 4, 2, 1}) {
      Value other = e.shuffle(NVVM::ShflKind::bfly, value, e.i32(distance));
      value = op.getKind() == Combine::Add ? e.fadd(value, other) : e.fmax(value, other);
    }
    rewriter.replaceOp(op, value);
    return success();
  }
};

/// Sums within each warp go by shuffles, and sums of warps through shared memory.
struct ScanPattern : TilePattern<ScanOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ScanOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    int64_t warps = op.getWarps();
    Value scratch = adaptor.getScratch();
    SmallVector<Value> upToMe = sumUpTo(e, adaptor.getValues(), 32), ofWarp, there, before, totals;
    for (Value sum : upToMe)
      ofWarp.push_back(e.shuffle(NVVM::ShflKind::idx, sum, e.i32(31)));
    e.doIf(e.isFirstLane(), [&](Emitter &one) {
      Value place = one.sharedAt(scratch, one.mul(e.lanes.warp, 4));
      for (auto [i, sum] : llvm::enumerate(ofWarp))
        LLVM::StoreOp::create(one.b, one.loc, sum, one.sharedAt(place, i * warps * 4), 4);
    });
    NVVM::Barrier0Op::create(rewriter, e.loc);
    Value index = e.mul(e.min(e.lanes.lane, e.i32(warps - 1)), 4);
    Value isWarp = e.less(e.lanes.lane, e.i32(warps));
    for (size_t i = 0; i < upToMe.size(); ++i) {
      Value place = e.sharedAt(e.sharedAt(scratch, index), i * warps * 4);
      Value sum = LLVM::LoadOp::create(rewriter, e.loc, rewriter.getI32Type(), place, 4);
      there.push_back(e.select(isWarp, sum, e.i32(0)));
    }
    SmallVector<Value> upToWarp = sumUpTo(e, there, warps);
    for (size_t i = 0; i < upToMe.size(); ++i) {
      totals.push_back(e.shuffle(NVVM::ShflKind::idx, upToWarp[i], e.i32(warps - 1)));
      Value beforeWarp = e.sub(e.shuffle(NVVM::ShflKind::idx, upToWarp[i], e.lanes.warp), ofWarp[i]);
      before.push_back(e.add(beforeWarp, e.sub(upToMe[i], adaptor.getValues()[i])));
    }
    NVVM::Barrier0Op::create(rewriter, e.loc);
    llvm::append_range(before, totals);
    rewriter.replaceOp(op, before);
    return success();
  }

  /// Sums each value over the lanes up to this one; only lanes before `count` have values other than 0. The
  /// values are summed side by side: a shuffle takes long, and that of the next value need not wait for it.
  static SmallVector<Value> sumUpTo(Emitter &e, ValueRange values, int64_t count) {
    SmallVector<Value> sums(values);
    for (int64_t distance = 1; distance < count; distance *= 2) {
      Value from = e.sub(e.lanes.lane, e.i32(distance));
      Value isBefore = e.less(from, e.i32(0)), source = e.select(isBefore, e.lanes.lane, from);
      SmallVector<Value> others;
      for (Value sum : sums)
        others.push_back(e.shuffle(NVVM::ShflKind::idx, sum, source));
      for (auto [sum, other] : llvm::zip_equal(sums, others))
        sum = e.select(isBefore, sum, e.add(sum, other));
    }
    return sums;
  }
};

struct FromLanePattern : TilePattern<FromLaneOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(FromLaneOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, e.shuffle(NVVM::ShflKind::idx, adaptor.getValue(), adaptor.getLane()));
    return success();
  }
};
struct PackPattern : TilePattern<PackOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PackOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    ValueRange x = adaptor.getValues();
    rewriter.replaceOp(op, x.size() == 4 ? e.packE4M3(x[0], x[1], x[2], x[3])
                                         : e.pack(x[0], x[1], op.getElement()));
    return success();
  }
};
struct ReciprocalPattern : TilePattern<ReciprocalOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReciprocalOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, e.intrinsic("llvm.nvvm.rcp.approx.ftz.f", rewriter.getF32Type(), adaptor.getX()));
    return success();
  }
};

/// Counts the bits of a mask of flags, which a lane reads at once.
struct CountBitsPattern : TilePattern<math::CtPopOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(math::CtPopOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::CtPopOp>(op, op.getType(), adaptor.getOperand());
    return success();
  }
};

/// Finds the lowest bit; without bits it is the one after the last.
struct LowestBitPattern : TilePattern<math::CountTrailingZerosOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(math::CountTrailingZerosOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::CountTrailingZerosOp>(op, op.getType(), adaptor.getOperand(),
                                                            /*is_zero_poison=*/false);
    return success();
  }
};

} // namespace

void tile::populateLanePatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns
      .add<WarpIdPattern, LaneIdPattern, BlockIdPattern, BlockCountPattern, ReduceLanesPattern, ScanPattern,
           FromLanePattern, PackPattern, ReciprocalPattern, CountBitsPattern, LowestBitPattern>(
          converter, patterns.getContext(), lanes);
}

//===- LanePatterns.cpp - Identifiers and scalars of a lane -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

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

struct FromLanePattern : TilePattern<FromLaneOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(FromLaneOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, e.shuffle(NVVM::ShflKind::idx, adaptor.getValue(), adaptor.getLane()));
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
} // namespace

void tile::populateLanePatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns.add<WarpIdPattern, LaneIdPattern, BlockIdPattern, BlockCountPattern, ReduceLanesPattern,
               FromLanePattern, ReciprocalPattern>(converter, patterns.getContext(), lanes);
}

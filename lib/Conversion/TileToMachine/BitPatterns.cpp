//===- BitPatterns.cpp - Bits of masks, counted and found -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Masks of flags that a lane reads at once: each of these is an instruction or two.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

struct CountBitsPattern : TilePattern<math::CtPopOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(math::CtPopOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::CtPopOp>(op, op.getType(), adaptor.getOperand());
    return success();
  }
};

/// Of no bits the lowest one is behind the last.
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

void tile::populateBitPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<CountBitsPattern, LowestBitPattern>(converter, patterns.getContext(), lanes);
}

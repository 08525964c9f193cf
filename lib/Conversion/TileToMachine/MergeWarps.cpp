//===- MergeWarps.cpp - One softmax state from the block's warps ----------===//
//
// The warps' accumulators have the same layout, so they are exchanged register
// by register: lane l of warp w stores its four registers of 8-column block n
// as 16 bytes at [w][n][l], which no two lanes of a phase share a bank for, and
// warp v sums blocks v*k, v*k + 1, … of all warps, each weighted by how far its
// maximum is from the common one. Max and sum travel beside, one pair per row.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

struct MergeWarpsPattern : TilePattern<MergeWarpsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MergeWarpsOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Location loc = op.getLoc();
    Type f32 = rewriter.getF32Type(), quadType = VectorType::get(4, f32), pairType = VectorType::get(2, f32);
    FragmentType accType = op.getAcc().getType(), sliceType = op.getMergedAcc().getType();
    if (accType.getSizes()[0] != 16)
      return rewriter.notifyMatchFailure(op, "only 16 rows are merged over warps");
    int64_t warps = op.getWarps(), blocks = accType.getSizes()[1] / 8,
            sliceBlocks = sliceType.getSizes()[1] / 8;
    int64_t accBytes = blocks * 32 * 16, stateOffset = accBytes * warps;
    Value scratch = adaptor.getScratch().front(), warp = adaptor.getWarp().front();
    Value unit = adaptor.getUnit().front();

    auto vectorOf = [&](ValueRange values, Type type) {
      Value vector = LLVM::PoisonOp::create(rewriter, loc, type);
      for (auto [i, value] : llvm::enumerate(values))
        vector = LLVM::InsertElementOp::create(rewriter, loc, vector, value, e.i32(i));
      return vector;
    };
    auto element = [&](Value vector, int64_t i) -> Value {
      return LLVM::ExtractElementOp::create(rewriter, loc, vector, e.i32(i));
    };

    // Publish.
    Value own = e.sharedAt(scratch, e.add(e.mul(warp, accBytes), e.mul(e.lanes.lane, 16)));
    for (int64_t n = 0; n < blocks; ++n)
      LLVM::StoreOp::create(rewriter, loc, vectorOf(adaptor.getAcc().slice(n * 4, 4), quadType),
                            e.sharedAt(own, n * 512), 16);
    Value states = e.sharedAt(scratch, stateOffset);
    Value firstLane =
        rewriter.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, e.lanes.quad, e.i32(0));
    scf::IfOp::create(rewriter, loc, firstLane, [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      Value row = inner.sharedAt(states, inner.add(inner.mul(warp, 128), inner.mul(e.lanes.group, 8)));
      for (int64_t half = 0; half < 2; ++half) {
        Value vector = LLVM::PoisonOp::create(builder, loc, pairType);
        vector = LLVM::InsertElementOp::create(builder, loc, vector, adaptor.getMax()[half], inner.i32(0));
        vector = LLVM::InsertElementOp::create(builder, loc, vector, adaptor.getSum()[half], inner.i32(1));
        LLVM::StoreOp::create(builder, loc, vector, inner.sharedAt(row, half * 64), 8);
      }
      scf::YieldOp::create(builder, loc);
    });
    NVVM::Barrier0Op::create(rewriter, loc);

    // Everybody computes the common max and sum of its two rows, and each warp's weight.
    SmallVector<Value> mergedMax(2), mergedSum(2);
    SmallVector<SmallVector<Value>> weights(2);
    Value minusInfinity = e.f32(-std::numeric_limits<double>::infinity()), zero = e.f32(0);
    for (int64_t half = 0; half < 2; ++half) {
      SmallVector<Value> maxima, sums;
      Value row = e.sharedAt(states, e.add(e.mul(e.lanes.group, 8), half * 64));
      for (int64_t w = 0; w < warps; ++w) {
        Value pair = LLVM::LoadOp::create(rewriter, loc, pairType, e.sharedAt(row, w * 128), 8);
        maxima.push_back(element(pair, 0));
        sums.push_back(element(pair, 1));
      }
      Value max = maxima[0];
      for (Value other : ArrayRef<Value>(maxima).drop_front())
        max = e.fmax(max, other);
      // A row that nobody sees has max = -inf everywhere; -inf - -inf must not become NaN.
      Value nothing = arith::CmpFOp::create(rewriter, loc, arith::CmpFPredicate::OEQ, max, minusInfinity);
      Value base = e.select(nothing, zero, max);
      Value sum;
      for (int64_t w = 0; w < warps; ++w) {
        weights[half].push_back(e.exp2(e.fmul(e.fsub(maxima[w], base), unit)));
        Value weighted = e.fmul(sums[w], weights[half][w]);
        sum = sum ? e.fadd(sum, weighted) : weighted;
      }
      mergedMax[half] = max;
      mergedSum[half] = sum;
    }

    // This warp's share of the columns.
    SmallVector<Value> slice;
    for (int64_t k = 0; k < sliceBlocks; ++k) {
      Value block = e.add(e.mul(warp, sliceBlocks), k);
      // Columns past the end: read the last block, the store drops them.
      block = e.min(block, e.i32(blocks - 1));
      Value from = e.sharedAt(scratch, e.add(e.mul(block, 512), e.mul(e.lanes.lane, 16)));
      SmallVector<Value> acc(4);
      for (int64_t w = 0; w < warps; ++w) {
        Value loaded = LLVM::LoadOp::create(rewriter, loc, quadType, e.sharedAt(from, w * accBytes), 16);
        for (int64_t i = 0; i < 4; ++i) {
          Value weighted = e.fmul(element(loaded, i), weights[i / 2][w]);
          acc[i] = acc[i] ? e.fadd(acc[i], weighted) : weighted;
        }
      }
      llvm::append_range(slice, acc);
    }
    NVVM::Barrier0Op::create(rewriter, loc);
    rewriter.replaceOpWithMultiple(op, {mergedMax, mergedSum, slice});
    return success();
  }
};

} // namespace

void tile::populateMergeWarpsPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                     const LaneMap &lanes) {
  patterns.add<MergeWarpsPattern>(converter, patterns.getContext(), lanes);
}

//===- MergeWarps.cpp - One softmax state from the block's warps ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The warps' accumulators have the same layout, so they are exchanged register
// by register. Lane l of warp w stores its four registers of 8-column block n
// as 16 bytes at [w][n][l], where no two lanes of a phase share a bank. Warp v
// sums blocks v*k, v*k + 1, … of all warps, each weighted by the distance of
// its maximum to the common one. Max and sum travel beside, one pair per row.
//
// If the accumulator has its features in runs, a lane's columns are neighbours:
// they are stored as rows of features, and read as blocks of columns. Chunk m
// of 16 bytes of row r lies at m ^ x(m / 8, r) for the same reason.
//
// An accumulator of eight columns has features as rows, always in runs: lanes
// that share a feature's run have two rows of queries each. The merged result
// then has rows of queries like any other, of which the last eight are empty.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Writes the exchange of one tile.merge_warps.
class Exchange {
public:
  Exchange(Emitter &e, MergeWarpsOp op, MergeWarpsOp::GenericAdaptor<ArrayRef<ValueRange>> adaptor)
      : e(e), adaptor(adaptor), scratch(adaptor.getScratch().front()), warp(adaptor.getWarp().front()),
        warps(op.getWarps()), type(op.getAcc().getType()),
        turned(type.getSizes()[1] == ScheduleAttr::fewRows && type.getFeatureAxis() == 0),
        rows(type.getSizes()[turned]), blocks(type.getSizes()[!turned] / 8),
        shareBlocks(op.getMergedAcc().getType().getSizes()[1] / 8), accBytes(blocks * 32 * rows) {}

  void publish();
  void mergeRows();
  SmallVector<Value> mergeShare();

  SmallVector<Value> max, sum; ///< of the lane's two rows, over all warps

private:
  Type vectorType(int64_t size) { return VectorType::get(size, e.b.getF32Type()); }
  Value element(Value vector, int64_t i) {
    return LLVM::ExtractElementOp::create(e.b, e.loc, vector, e.i32(i));
  }
  static Value vectorOf(Emitter &at, ValueRange values) {
    Value vector = LLVM::PoisonOp::create(
        at.b, at.loc, VectorType::get(static_cast<int64_t>(values.size()), at.b.getF32Type()));
    for (auto [i, value] : llvm::enumerate(values))
      vector = LLVM::InsertElementOp::create(at.b, at.loc, vector, value, at.i32(i));
    return vector;
  }
  void mergeRow(int64_t half);
  void publishBlocks();
  void publishRuns();
  void publishTransposed();
  Value rowOfRuns(Value row) { return e.sharedAt(scratch, e.mul(row, blocks * 32)); }
  Value rowOfRuns(int64_t half) { return rowOfRuns(e.add(e.lanes.group, half * 8)); }
  Value placeInRow(Value chunk);
  Value placeTransposed(Value row, Value chunk);
  void publishStates();
  /// A warp's registers of a block of columns.
  SmallVector<Value, 4> loadBlock(Value from);
  SmallVector<Value, 4> loadBlockOfRuns(Value block, int64_t w);

  Emitter &e;
  MergeWarpsOp::GenericAdaptor<ArrayRef<ValueRange>> adaptor;
  Value scratch, warp;
  int64_t warps;
  FragmentType type;
  bool turned; ///< features are rows
  int64_t rows, blocks, shareBlocks, accBytes;
  Value states;                  ///< the address of the pairs of max and sum
  SmallVector<Value> weights[2]; ///< of each warp, for each of the lane's rows
};

void Exchange::publishBlocks() {
  Value own = e.sharedAt(scratch, e.add(e.mul(warp, accBytes), e.mul(e.lanes.lane, 16)));
  for (int64_t n = 0; n < blocks; ++n)
    LLVM::StoreOp::create(e.b, e.loc, vectorOf(e, adaptor.getAcc().slice(n * 4, 4)), e.sharedAt(own, n * 512),
                          16);
}

/// The offset of a chunk in its row. Lanes of a quad store chunks of one row whose numbers differ by twos,
/// fours or eights, by the length of spans. Two quads store chunks of neighbouring rows. When rows are read,
/// four quads would conflict.
Value Exchange::placeInRow(Value chunk) {
  Value row = e.lanes.group;
  Value move = e.bxor(e.band(e.shr(chunk, 3), 7), e.bxor(e.mul(e.band(row, 1), 7), e.band(row, 2)));
  return e.mul(e.bxor(chunk, move), 16);
}

void Exchange::publishRuns() {
  Value own = e.mul(warp, accBytes);
  for (FragmentType::Span span : type.getSpans())
    for (int64_t column : {0, 1})
      for (int64_t part = 0; part < span.size / 8; part += 4) {
        Value run = e.mul(e.add(e.mul(e.lanes.quad, 2), column), span.size / 8);
        Value place = placeInRow(e.shr(e.add(run, span.first + part), 2));
        for (int64_t half : {0, 1}) {
          SmallVector<Value> four;
          for (int64_t i = 0; i < 4; ++i)
            four.push_back(adaptor.getAcc()[(span.first / 8 + part + i) * 4 + half * 2 + column]);
          Value to = e.sharedAt(e.sharedAt(rowOfRuns(half), own), place);
          LLVM::StoreOp::create(e.b, e.loc, vectorOf(e, four), to, 16);
        }
      }
}

/// The offset of a chunk in a row of features. Lanes of a quad store chunks of every second row, two quads
/// chunks that are fours apart, or twos in shorter runs. When they are read, four quads read two chunks of
/// neighbouring rows.
Value Exchange::placeTransposed(Value row, Value chunk) {
  bool fours = type.getOrder().runs >= 128;
  Value first = e.mul(e.band(row, 1), fours ? 4 : 2), second = e.mul(e.band(e.shr(row, 1), 1), fours ? 2 : 4);
  Value move = e.bxor(e.bxor(first, second), e.shr(row, 2));
  return e.mul(e.bxor(chunk, move), 16);
}

void Exchange::publishTransposed() {
  Value own = e.mul(warp, accBytes);
  for (FragmentType::Span span : type.getSpans())
    for (int64_t column : {0, 1})
      for (int64_t part = 0; part < span.size / 8; part += 4) {
        Value row = e.add(e.mul(e.lanes.quad, 2), column), run = e.mul(e.lanes.group, span.size / 8);
        Value place = placeTransposed(row, e.shr(e.add(run, span.first + part), 2));
        SmallVector<Value> four;
        for (int64_t i = span.first / 8 + part, end = i + 4; i < end; ++i) // rows of eight features
          four.push_back(adaptor.getAcc()[i / 2 * 4 + i % 2 * 2 + column]);
        Value to = e.sharedAt(e.sharedAt(rowOfRuns(row), own), place);
        LLVM::StoreOp::create(e.b, e.loc, vectorOf(e, four), to, 16);
      }
}

/// Stores max and sum of each row, by one of the lanes that have them.
void Exchange::publishStates() {
  states = e.sharedAt(scratch, accBytes * warps);
  Value same = turned ? e.lanes.group : e.lanes.quad;
  Value firstLane = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, same, e.i32(0));
  e.doIf(firstLane, [&](Emitter &inner) {
    Value ofWarp = inner.mul(warp, rows * 8);
    Value own = turned ? inner.mul(e.lanes.quad, 16) : inner.mul(e.lanes.group, 8);
    Value row = inner.sharedAt(states, inner.add(ofWarp, own));
    for (int64_t i : {0, 1}) {
      Value pair = vectorOf(inner, {adaptor.getMax()[i], adaptor.getSum()[i]});
      LLVM::StoreOp::create(inner.b, inner.loc, pair, inner.sharedAt(row, i * (turned ? 8 : 64)), 8);
    }
  });
}

void Exchange::publish() {
  if (turned)
    publishTransposed();
  else if (type.getOrder())
    publishRuns();
  else
    publishBlocks();
  publishStates();
  NVVM::Barrier0Op::create(e.b, e.loc);
}

/// Every lane computes the common max and sum of its two rows, and each warp's weight.
void Exchange::mergeRows() {
  for (int64_t half = 0; half < rows / 8; ++half)
    mergeRow(half);
  if (turned) {
    max.push_back(e.f32(-std::numeric_limits<double>::infinity()));
    sum.push_back(e.f32(0));
  }
}

void Exchange::mergeRow(int64_t half) {
  SmallVector<Value> maxima, sums;
  Value row = e.sharedAt(states, e.add(e.mul(e.lanes.group, 8), half * 64));
  for (int64_t w = 0; w < warps; ++w) {
    Value pair = LLVM::LoadOp::create(e.b, e.loc, vectorType(2), e.sharedAt(row, w * rows * 8), 8);
    maxima.push_back(element(pair, 0));
    sums.push_back(element(pair, 1));
  }
  Value largest = maxima[0];
  for (Value other : ArrayRef<Value>(maxima).drop_front())
    largest = e.fmax(largest, other);
  // A row that sees nothing has max = -inf everywhere; -inf - -inf must not become NaN.
  Value minusInfinity = e.f32(-std::numeric_limits<double>::infinity());
  Value nothing = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OEQ, largest, minusInfinity);
  Value base = e.select(nothing, e.f32(0), largest);
  Value all;
  for (int64_t w = 0; w < warps; ++w) {
    weights[half].push_back(e.exp2(e.fmul(e.fsub(maxima[w], base), adaptor.getUnit().front())));
    Value weighted = e.fmul(sums[w], weights[half][w]);
    all = all ? e.fadd(all, weighted) : weighted;
  }
  max.push_back(largest);
  sum.push_back(all);
}

SmallVector<Value, 4> Exchange::loadBlock(Value from) {
  Value loaded = LLVM::LoadOp::create(e.b, e.loc, vectorType(4), from, 16);
  SmallVector<Value, 4> registers;
  for (int64_t i = 0; i < 4; ++i)
    registers.push_back(element(loaded, i));
  return registers;
}

SmallVector<Value, 4> Exchange::loadBlockOfRuns(Value block, int64_t w) {
  Value column = e.add(e.mul(block, 8), e.mul(e.lanes.quad, 2));
  Value chunk = e.shr(column, 2);
  Value place = turned ? placeTransposed(e.lanes.group, chunk) : placeInRow(chunk);
  place = e.add(place, e.mul(e.band(e.lanes.quad, 1), 8));
  SmallVector<Value, 4> registers;
  for (int64_t half = 0; half < rows / 8; ++half) {
    Value from = e.sharedAt(e.sharedAt(rowOfRuns(half), place), w * accBytes);
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, vectorType(2), from, 8);
    for (int64_t i : {0, 1})
      registers.push_back(element(loaded, i));
  }
  return registers;
}

/// Merges this warp's share of the columns.
SmallVector<Value> Exchange::mergeShare() {
  SmallVector<Value> share;
  for (int64_t k = 0; k < shareBlocks; ++k) {
    Value block = e.add(e.mul(warp, shareBlocks), k);
    // Columns past the end read the last block; the store drops them.
    block = e.min(block, e.i32(blocks - 1));
    SmallVector<Value> acc(4);
    Value from =
        type.getOrder() ? Value() : e.sharedAt(scratch, e.add(e.mul(block, 512), e.mul(e.lanes.lane, 16)));
    for (int64_t w = 0; w < warps; ++w) {
      SmallVector<Value, 4> loaded =
          from ? loadBlock(e.sharedAt(from, w * accBytes)) : loadBlockOfRuns(block, w);
      for (auto [i, number] : llvm::enumerate(loaded)) {
        Value weighted = e.fmul(number, weights[i / 2][w]);
        acc[i] = acc[i] ? e.fadd(acc[i], weighted) : weighted;
      }
    }
    if (turned)
      acc[2] = acc[3] = e.f32(0);
    llvm::append_range(share, acc);
  }
  NVVM::Barrier0Op::create(e.b, e.loc);
  return share;
}

struct MergeWarpsPattern : TilePattern<MergeWarpsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MergeWarpsOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType type = op.getAcc().getType();
    if (type.getSizes()[0] != 16 && !type.getOrder())
      return op.emitOpError("expected features in runs, as quantized values have them, got ") << type;
    Emitter e = emitter(op, rewriter);
    Exchange exchange(e, op, adaptor);
    exchange.publish();
    exchange.mergeRows();
    SmallVector<Value> share = exchange.mergeShare();
    rewriter.replaceOpWithMultiple(op, {exchange.max, exchange.sum, share});
    return success();
  }
};

/// Lanes of a quad have the same two rows, and the first of each stores them.
struct ReduceWarpsPattern : TilePattern<ReduceWarpsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReduceWarpsOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t rowBytes = 4, warpBytes = 16 * rowBytes, halfBytes = 8 * rowBytes;
    Emitter e = emitter(op, rewriter);
    Type f32 = rewriter.getF32Type();
    Value row = e.sharedAt(adaptor.getScratch().front(), e.mul(e.lanes.group, rowBytes));
    Value isFirst =
        rewriter.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, e.lanes.quad, e.i32(0));
    e.doIf(isFirst, [&](Emitter &inner) {
      Value own = inner.sharedAt(row, inner.mul(adaptor.getWarp().front(), warpBytes));
      for (auto [half, number] : llvm::enumerate(adaptor.getSource()))
        LLVM::StoreOp::create(inner.b, inner.loc, number, inner.sharedAt(own, half * halfBytes), rowBytes);
    });
    NVVM::Barrier0Op::create(rewriter, e.loc);
    SmallVector<Value> results;
    for (int64_t half : {0, 1}) {
      Value result;
      for (int64_t w = 0; w < static_cast<int64_t>(op.getWarps()); ++w) {
        Value from = e.sharedAt(row, w * warpBytes + half * halfBytes);
        Value number = LLVM::LoadOp::create(rewriter, e.loc, f32, from, rowBytes);
        result = !result                        ? number
                 : op.getKind() == Combine::Add ? e.fadd(result, number)
                                                : e.fmax(result, number);
      }
      results.push_back(result);
    }
    NVVM::Barrier0Op::create(rewriter, e.loc);
    rewriter.replaceOpWithMultiple(op, {results});
    return success();
  }
};

} // namespace

void tile::populateMergeWarpsPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                     const LaneMap &lanes) {
  patterns.add<MergeWarpsPattern, ReduceWarpsPattern>(converter, patterns.getContext(), lanes);
}

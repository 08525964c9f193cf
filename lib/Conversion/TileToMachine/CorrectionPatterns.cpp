//===- CorrectionPatterns.cpp - Results of converted operands are put right ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantized values are multiplied as floats that are cheap to make: smaller
// than the values by a known power of two. It is taken out of the result of an
// MMA, or out of the other operand.
//
//===----------------------------------------------------------------------===//
#include "LaneCodes.h"
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The smallest f16 is 2^-24; a quantized value at a higher bit of its half is larger by that many bits.
struct RestorePattern : TilePattern<RestoreOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RestoreOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t least = 24;
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getResult().getType();
    Type codes = op.getCodes();
    int64_t columnBlocks = type.getSizes()[1] / 8;
    if (!type.getOrder())
      return op.emitOpError("expected features in runs, as tiny quantized values have them, got ") << type;
    SmallVector<Value> registers(adaptor.getSource());
    for (FragmentType::Span span : type.getSpans())
      for (int64_t i = 0; i < span.size / 8; ++i) { // rows of eight
        int64_t row = span.first / 8 + i;
        Value factor = e.f32(std::ldexp(1.0, static_cast<int>(least - bitOf(codes, i))));
        for (int64_t block = 0; block < columnBlocks; ++block)
          for (int64_t column : {0, 1}) {
            Value &number = registers[(row / 2 * columnBlocks + block) * 4 + row % 2 * 2 + column];
            number = e.fmul(number, factor);
          }
      }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// In runs, a register's two features are neighbours in their words, as its quantized values are, and the
/// registers of a line follow one another; those of a left operand two lines at a time. Without runs each
/// quantized value has a byte of its own.
struct BalancePattern : TilePattern<BalanceOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BalanceOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getResult().getType();
    auto pair = VectorType::get(2, e.b.getF16Type());
    const int64_t depth = type.getSizes()[1] / 16;
    SmallVector<Value> registers;
    for (auto [i, two] : llvm::enumerate(adaptor.getSource())) {
      const int64_t number = static_cast<int64_t>(i);
      const int64_t inLine =
          type.getLayout() == Layout::Lhs ? number / 4 % depth * 2 + number % 4 / 2 : number % (2 * depth);
      const int64_t up = type.getOrder() ? bitOf(op.getCodes(), inLine) : 0;
      if (up == 0) {
        registers.push_back(two);
        continue;
      }
      bool lossy;
      APFloat power(std::ldexp(1.0, static_cast<int>(-up)));
      power.convert(APFloat::IEEEhalf(), APFloat::rmNearestTiesToEven, &lossy);
      Value factor = LLVM::ConstantOp::create(e.b, e.loc, pair, DenseElementsAttr::get(pair, power));
      Value halves = e.bitcast(pair, two);
      Value product = LLVM::FMulOp::create(e.b, e.loc, halves, factor);
      registers.push_back(e.bitcast(e.b.getI32Type(), product));
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// The two numbers of a register as f32. A bf16 is the upper half of an f32.
std::pair<Value, Value> asTwoFloats(Emitter &e, Type element, Value two) {
  Type f32 = e.b.getF32Type();
  if (isF16(element)) {
    Value halves = e.bitcast(VectorType::get(2, element), two);
    auto wide = [&](int64_t i) -> Value {
      Value half = LLVM::ExtractElementOp::create(e.b, e.loc, halves, e.i32(i));
      return arith::ExtFOp::create(e.b, e.loc, f32, half);
    };
    return {wide(0), wide(1)};
  }
  auto asFloat = [&](Value bits) -> Value { return e.bitcast(f32, bits); };
  return {asFloat(e.b.createOrFold<arith::ShLIOp>(e.loc, two, e.i32(16))),
          asFloat(e.band(two, int32_t(0xffff0000)))};
}

/// The larger of a magnitude and that of a number, if it is finite: an infinity stays one in its own row.
Value largerFinite(Emitter &e, Value largest, Value number) {
  Value magnitude = LLVM::FAbsOp::create(e.b, e.loc, number);
  Value infinity = e.f32(std::numeric_limits<double>::infinity());
  Value finite = arith::CmpFOp::create(e.b, e.loc, arith::CmpFPredicate::OLT, magnitude, infinity);
  return e.fmax(largest, e.select(finite, magnitude, e.f32(0)));
}

/// The largest magnitude of a warp's lanes.
Value largestOfWarp(Emitter &e, Value largest) {
  for (int64_t lanes = 16; lanes > 0; lanes /= 2)
    largest = e.fmax(largest, e.shuffle(NVVM::ShflKind::bfly, largest, e.i32(lanes)));
  return largest;
}

/// The power of two that brings the exponent of the largest number to that of 2^13, and its inverse.
std::pair<Value, Value> powersFor(Emitter &e, Value largest) {
  constexpr int64_t bias = 127, target = bias + 13;
  Value bits = e.bitcast(e.b.getI32Type(), largest);
  Value exponent = e.min(e.sub(e.i32(target + bias), e.shr(bits, 23)), e.i32(2 * bias - 1));
  auto power = [&](Value field) -> Value {
    return e.bitcast(e.b.getF32Type(), e.b.createOrFold<arith::ShLIOp>(e.loc, field, e.i32(23)));
  };
  return {power(exponent), power(e.sub(e.i32(2 * bias), exponent))};
}

struct NarrowPattern : TilePattern<NarrowOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NarrowOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value largest = e.f32(0);
    SmallVector<std::pair<Value, Value>> numbers;
    for (Value two : adaptor.getSource()) {
      auto [low, high] = numbers.emplace_back(asTwoFloats(e, op.getSource().getType().getElement(), two));
      for (Value number : {low, high})
        largest = largerFinite(e, largest, number);
    }
    auto [scale, factor] = powersFor(e, largestOfWarp(e, largest));
    SmallVector<Value> registers;
    for (auto [low, high] : numbers)
      registers.push_back(e.pack(e.fmul(low, scale), e.fmul(high, scale), e.b.getF16Type()));
    rewriter.replaceOpWithMultiple(op, SmallVector<ValueRange>{registers, ValueRange(factor)});
    return success();
  }
};

/// A panel of 16 rows is as many bytes as the blocks of columns that it becomes, so a warp converts a panel
/// at a time. A lane takes 16 bytes of rows g and g + 8: they are 16 bytes of some lane's registers in each
/// of two blocks.
class NarrowTilePattern : public TilePattern<NarrowTileOp> {
public:
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NarrowTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
    if (!schedule)
      return op.emitOpError("is shared by warps, and the kernel has no tile.schedule that says how many");
    const int64_t warps = schedule.getWarps();
    e.doIf(adaptor.getFirst(), [&](Emitter &in) {
      SharedType tile = op.getTile().getType();
      Value largest = largestOfWarp(in, largestOfThread(in, tile, adaptor.getTile(), warps));
      Value own = in.sharedAt(adaptor.getLargest(), in.mul(in.lanes.warp, 4));
      in.doIf(in.isFirstLane(), [&](Emitter &at) { LLVM::StoreOp::create(at.b, at.loc, largest, own, 4); });
      NVVM::Barrier0Op::create(in.b, in.loc);
      Value scale = powersFor(in, largestOfBlock(in, adaptor.getLargest(), warps)).first;
      convertPanels(in, tile, adaptor.getTile(), scale, warps);
    });
    NVVM::Barrier0Op::create(rewriter, op.getLoc());
    Value factor = powersFor(e, largestOfBlock(e, adaptor.getLargest(), warps)).second;
    rewriter.replaceOp(op, {adaptor.getTile(), factor});
    return success();
  }

private:
  static constexpr int64_t lines = 8, chunk = 16, words = chunk / 4, blockBytes = 512, lanes = 32;
  using Numbers = SmallVector<std::pair<Value, Value>>;

  static Numbers load(Emitter &e, Type element, Value from) {
    Numbers numbers;
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, VectorType::get(words, e.b.getI32Type()), from, chunk);
    for (int64_t i = 0; i < words; ++i)
      numbers.push_back(
          asTwoFloats(e, element, LLVM::ExtractElementOp::create(e.b, e.loc, loaded, e.i32(i))));
    return numbers;
  }

  static Value largestOfThread(Emitter &e, SharedType tile, Value memory, int64_t warps) {
    const int64_t step = chunk * lanes;
    return scf::ForOp::create(e.b, e.loc, e.mul(e.lanes.warp, step), e.i32(tile.getBytes()),
                              e.i32(step * warps), ValueRange{e.f32(0)},
                              [&](OpBuilder &builder, Location loc, Value offset, ValueRange carried) {
                                Emitter at(builder, loc, e.lanes);
                                Value largest = carried[0];
                                Value from =
                                    at.sharedAt(memory, at.add(offset, at.mul(at.lanes.lane, chunk)));
                                for (auto [low, high] : load(at, tile.getElement(), from))
                                  for (Value number : {low, high})
                                    largest = largerFinite(at, largest, number);
                                scf::YieldOp::create(builder, loc, largest);
                              })
        .getResult(0);
  }

  static Value largestOfBlock(Emitter &e, Value memory, int64_t warps) {
    Value largest;
    for (int64_t warp = 0; warp < warps; ++warp) {
      Value next = LLVM::LoadOp::create(e.b, e.loc, e.b.getF32Type(), e.sharedAt(memory, 4 * warp), 4);
      largest = largest ? e.fmax(largest, next) : next;
    }
    return largest;
  }

  /// Panels of 64 features, and one of 32 if there is a rest.
  static void convertPanels(Emitter &e, SharedType tile, Value memory, Value scale, int64_t warps) {
    const int64_t whole = tile.getLineBytes() / 128, bytes = 128 * tile.getRows();
    if (whole)
      scf::ForOp::create(e.b, e.loc, e.mul(e.lanes.warp, bytes), e.i32(whole * bytes), e.i32(warps * bytes),
                         ValueRange(), [&](OpBuilder &builder, Location loc, Value panel, ValueRange) {
                           Emitter at(builder, loc, e.lanes);
                           convertPanel(at, tile, 128, at.sharedAt(memory, panel), scale);
                           scf::YieldOp::create(builder, loc);
                         });
    if (tile.getLineBytes() % 128 == 0)
      return;
    Value isMine = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, e.lanes.warp,
                                                   e.i32(static_cast<int32_t>(whole % warps)));
    e.doIf(isMine,
           [&](Emitter &at) { convertPanel(at, tile, 64, at.sharedAt(memory, whole * bytes), scale); });
  }

  static void convertPanel(Emitter &e, SharedType tile, int64_t width, Value memory, Value scale) {
    const int64_t chunks = width / chunk, apart = lanes / lines; // chunks of a line; of a line at once
    Value line = e.band(e.lanes.lane, lines - 1), near = e.shr(e.lanes.lane, 3);
    struct Unit {
      Value place;
      Numbers rows[2];
    };
    SmallVector<Unit> units;
    for (int64_t first = 0; first < chunks; first += apart) {
      Unit &unit = units.emplace_back();
      Value column = e.add(near, first), from = e.placeOf(tile, width, line, column);
      for (int64_t row : {0, 1})
        unit.rows[row] =
            load(e, tile.getElement(), e.sharedAt(e.sharedAt(memory, from), row * lines * width));
      // A lane's run has two chunks, of four blocks in all, or one of a panel of half the features.
      const bool isWhole = width == 128;
      Value quad = isWhole ? e.shr(column, 1) : column;
      unit.place = e.mul(e.add(e.mul(line, 4), quad), chunk);
      if (isWhole)
        unit.place = e.add(unit.place, e.mul(e.band(column, 1), 2 * blockBytes));
    }
    NVVM::SyncWarpOp::create(e.b, e.loc, e.i32(-1));
    for (const Unit &unit : units)
      for (int64_t block : {0, 1}) {
        Value registers = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(words, e.b.getI32Type()));
        for (int64_t i = 0; i < words; ++i) { // rows g and g + 8, and again for the upper columns
          auto [low, high] = unit.rows[i % 2][2 * block + i / 2];
          Value two = e.pack(e.fmul(low, scale), e.fmul(high, scale), e.b.getF16Type());
          registers = LLVM::InsertElementOp::create(e.b, e.loc, registers, two, e.i32(i));
        }
        LLVM::StoreOp::create(e.b, e.loc, registers,
                              e.sharedAt(e.sharedAt(memory, unit.place), block * blockBytes), chunk);
      }
  }
};

struct LoadLhsPattern : TilePattern<LoadLhsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadLhsOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t chunk = 16, blockBytes = 512, run = 64;
    FragmentType type = op.getFragment().getType();
    if (type.getOrder() != FeatureOrder{std::min(run, type.getSizes()[1]), 1})
      return op.emitOpError("expected features in runs of 64, as quantized keys have them, got ") << type;
    Emitter e = emitter(op, rewriter);
    Value own = e.sharedAt(adaptor.getQueries(), e.mul(e.lanes.lane, chunk));
    SmallVector<Value> registers;
    for (int64_t block = 0; block < type.getSizes()[1] / 16; ++block) {
      Value from = e.sharedAt(own, (static_cast<int64_t>(op.getFirst()) / 16 + block) * blockBytes);
      Value loaded = LLVM::LoadOp::create(e.b, e.loc, VectorType::get(4, e.b.getI32Type()), from, chunk);
      for (int64_t i = 0; i < 4; ++i)
        registers.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, loaded, e.i32(i)));
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

} // namespace

void tile::populateCorrectionPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<RestorePattern, BalancePattern, NarrowPattern, NarrowTilePattern, LoadLhsPattern>(
      converter, patterns.getContext(), lanes);
}

//===- WidenPatterns.cpp - Quantized values become floats for MMAs --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two quantized values are converted at a time, because a register of an MMA's
// operand holds two floats. An integer of 8 bits and less, put into the
// mantissa of a large enough power of two, makes a float that is too large by
// that power; a subtraction makes it exact. One mask puts values of less than 8
// bits there, several bits up in the mantissa, where they stand for a smaller
// power.
//
//===----------------------------------------------------------------------===//
#include "LaneCodes.h"
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>
#include <map>
#include <optional>

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Two floats of f16 as two of f16 or bf16, which hold every e4m3 and e5m2.
static Value pairOf(Emitter &e, Value halves, Type element) {
  if (isF16(element))
    return halves;
  auto wide = [&](int64_t i) -> Value {
    Value half = LLVM::ExtractElementOp::create(e.b, e.loc, halves, e.i32(i));
    return arith::ExtFOp::create(e.b, e.loc, e.b.getF32Type(), half);
  };
  Value low = wide(0), high = wide(1);
  return e.bitcast(VectorType::get(2, element), e.pack(low, high, element));
}

/// Writes the conversion of one fragment.
class Widening {
public:
  Widening(Emitter &e, WidenOp op)
      : e(e), type(op.getSource().getType()), source(type.getElement()),
        element(op.getResult().getType().getElement()), bits(source.getIntOrFloatBitWidth()),
        depth(type.getSizes()[1] / 16), tiny(op.getTiny()), pair(VectorType::get(2, element)),
        registers(type.getSizes()[0] / 8 * depth * 2) {}

  /// Sets factors and terms of columns, for each group of rows.
  void setGroups(ArrayRef<ValueRange> factors, ArrayRef<ValueRange> terms) {
    for (ValueRange columns : factors)
      groups.push_back({pairs(columns), {}});
    for (auto [group, columns] : llvm::zip(groups, terms))
      group.terms = pairs(columns);
  }
  void setBlocks(BlocksAttr of, ArrayRef<ValueRange> words, ValueRange most) {
    scales.emplace(e, type, of, words, most, tiny ? mlir::attn::exponentBelowF16(source) : 0);
  }
  SmallVector<Value> convert(ValueRange codes) {
    if (!type.getOrder())
      singles(codes);
    else if (type.getFeatureAxis() == 1)
      contractedRuns(codes);
    else
      keptRuns(codes);
    return registers;
  }

private:
  /// Converts four values of a block in the bytes of a register.
  void singles(ValueRange codes) {
    const bool kept = type.getFeatureAxis() == 0;
    for (auto [i, word] : llvm::enumerate(codes))
      for (int64_t half : {0, 1}) {
        const int64_t row = i / depth, k = i % depth;
        place = {kept ? 8 * row : 16 * k + 8 * half, 8, 0};
        put(row, k, half, bytePair(word, {2 * int32_t(half), 2 * int32_t(half) + 1}));
      }
  }
  void contractedRuns(ValueRange words) {
    int64_t perWord = 32 / bits;
    size_t next = 0;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row)
      for (FragmentType::Span span : type.getSpans())
        for (int64_t run = span.size / 4, i = 0; i < run; i += perWord) {
          Value word = words[next++];
          place = {span.first, span.size, i};
          for (int64_t p = 0, first = span.first / 4 + i; p < perWord / 2; ++p)
            put(row, (first + 2 * p) / 4, p % 2,
                bits == 8 ? bytePair(word, {2 * int32_t(p), 2 * int32_t(p) + 1}) : halfPair(word, p));
        }
  }
  /// Converts words of four columns each; a register holds neighbouring columns.
  void keptRuns(ValueRange words) {
    for (FragmentType::Span span : type.getSpans()) {
      int64_t run = span.size / 8, perColumn = llvm::divideCeil(run * bits, 32);
      for (int64_t k = 0; k < depth; ++k, words = words.drop_front(4 * perColumn))
        for (int64_t half : {0, 1})
          for (int64_t i = 0; i < run; ++i) {
            Value low = words[2 * half * perColumn + i * bits / 32];
            Value high = words[(2 * half + 1) * perColumn + i * bits / 32];
            place = {span.first, span.size, i};
            put(span.first / 8 + i, k, half, neighbours(low, high, i % (32 / bits)));
          }
    }
  }
  /// Kept values of 8 bits are bytes of bytes, which LLVM joins to one choice.
  Value chosen(Value low, Value high, ArrayRef<int32_t> which) {
    return bits == 8 && type.getFeatureAxis() == 0 ? e.bytes(low, high, which) : e.permute(low, high, which);
  }
  /// Value i of two words.
  Value neighbours(Value low, Value high, int64_t i) {
    int32_t first = i * bits / 16 * 2; // byte of the half in which they are
    if (bits < 8)
      return halfPair(halves(low, high, {first, first + 1, 4 + first, 5 + first}), i % (16 / bits));
    if (isa<Float8E4M3FNType>(source)) {
      Value both = halves(low, high, {first, 4 + first, first + 1, 5 + first});
      int32_t at = i % 2 * 2;
      return bytePair(both, {at, at + 1});
    }
    Value both = halves(low, high, {first, first + 1, 4 + first, 5 + first});
    int32_t at = i % 2;
    return bytePair(both, {at, 2 + at});
  }
  /// Chooses bytes of two words, once for all values in them.
  Value halves(Value low, Value high, std::array<int32_t, 4> which) {
    Value &known = shuffled[{low.getAsOpaquePointer(), which[0]}];
    return known ? known : known = chosen(low, high, which);
  }

  /// Converts two bytes of a word.
  Value bytePair(Value word, std::array<int32_t, 2> which) {
    auto [low, high] = which;
    if (isa<Float8E4M3FNType>(source)) {
      Value two = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), e.shr(word, 8 * low));
      Value bytes = e.bitcast(VectorType::get(2, e.b.getI8Type()), two);
      auto f16 = VectorType::get(2, e.b.getF16Type());
      return fromF16(NVVM::ConvertF8x2ToF16x2Op::create(e.b, e.loc, f16, bytes, /*relu=*/false, source));
    }
    if (isa<Float4E2M1FNType>(source))
      return fromE2M1(chosen(word, e.i32(0), {low, 4, high, 4}), 0);
    if (isa<Float8E5M2Type>(source)) { // the upper half of an f16
      auto f16 = VectorType::get(2, e.b.getF16Type());
      return fromF16(e.bitcast(f16, chosen(word, e.i32(0), {4, low, 4, high})));
    }
    if (tiny)
      return e.bitcast(pair, chosen(word, e.i32(0), {low, 4, high, 4}));
    if (isF16(element))
      return add(chosen(word, e.i32(0x64), {low, 4, high, 4}), -1024);
    // In f32 it is 2^23 whose mantissa counts ones. The upper half holds all of an integer of 8 bits.
    auto whole = [&](int32_t which) -> Value {
      Value bits = chosen(word, e.i32(0x4b000000), {which, 4, 4, 7});
      Value exact = e.fadd(e.bitcast(e.b.getF32Type(), bits), e.f32(-0x1p23));
      return e.bitcast(e.b.getI32Type(), exact);
    };
    Value first = whole(low), second = whole(high);
    return e.bitcast(pair, chosen(first, second, {2, 3, 6, 7}));
  }

  /// Converts the values at a position of the halves of a word.
  Value halfPair(Value word, int64_t position) {
    if (isa<Float4E2M1FNType>(source))
      return fromE2M1(word, position);
    Place place(source, element, position);
    Value &moved = shifted[{word.getAsOpaquePointer(), place.shift}];
    if (!moved)
      moved = e.shr(word, place.shift);
    int64_t mask = ((int64_t(1) << bits) - 1) << place.bit, both = 0x10001;
    if (tiny)
      return e.bitcast(pair, e.band(moved, mask * both));
    Value bits =
        arith::OrIOp::create(e.b, e.loc, e.band(moved, mask * both), e.i32(place.magic(element) * both));
    return add(bits, -static_cast<double>(place.bias(element)));
  }

  /// Value `position` of each half, 2^14 too small, also if subnormal: its sign, exponent and mantissa are
  /// moved to their bits in f16.
  Value fromE2M1(Value word, int64_t position) {
    // Positions 3 and 1, or 2 and 0, are handled at once: they move to the upper and the lower byte of each
    // half, among bits of other values. One instruction chooses between signs and the rest, and one for each
    // position masks both.
    const bool odd = position % 2 != 0, upper = position >= 2;
    auto shl = [&](Value x, int32_t by) -> Value { return arith::ShLIOp::create(e.b, e.loc, x, e.i32(by)); };
    Value &both = shifted[{word.getAsOpaquePointer(), odd}];
    if (!both) {
      Value signs = odd ? word : shl(word, 4), others = odd ? e.shr(word, 3) : shl(word, 1);
      both = arith::OrIOp::create(e.b, e.loc, e.band(signs, static_cast<int32_t>(0x80808080)),
                                  e.band(others, 0x7f7f7f7f));
    }
    Value bits = e.band(upper ? both : shl(both, 8), static_cast<int32_t>(0x8e008e00));
    auto f16 = VectorType::get(2, e.b.getF16Type());
    Value few = e.bitcast(f16, bits);
    if (tiny)
      return fromF16(few);
    auto power = DenseElementsAttr::get(f16, APFloat(APFloat::IEEEhalf(), "16384"));
    return fromF16(LLVM::FMulOp::create(e.b, e.loc, few, LLVM::ConstantOp::create(e.b, e.loc, f16, power)));
  }

  /// The floats that `bits` stand for, plus `number`.
  Value add(Value bits, double number) {
    Value &both = pairsOfNumbers[number];
    if (!both) {
      APFloat rounded(number);
      bool lossy;
      rounded.convert(cast<FloatType>(element).getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
      both = LLVM::ConstantOp::create(e.b, e.loc, pair, DenseElementsAttr::get(pair, rounded));
    }
    return LLVM::FAddOp::create(e.b, e.loc, e.bitcast(pair, bits), both);
  }
  /// bf16 holds any quantized value that f16 holds exactly. Values in blocks take their scales before that.
  Value fromF16(Value halves) { return scales ? halves : toElement(halves); }
  Value toElement(Value halves) { return pairOf(e, halves, element); }

  void put(int64_t row, int64_t k, int64_t half, Value floats) {
    if (scales) {
      const int64_t line = type.getFeatureAxis() == 0 ? 2 * k + half : row;
      floats = toElement(LLVM::FMulOp::create(e.b, e.loc, floats, scales->pairOf(line, place)));
    }
    if (!groups.empty()) {
      const Group &group = groups[row * 8 * groups.size() / type.getSizes()[0]];
      Value factor = group.factors[2 * k + half];
      floats = group.terms.empty()
                   ? LLVM::FMulOp::create(e.b, e.loc, floats, factor).getResult()
                   : LLVM::FMAOp::create(e.b, e.loc, floats, factor, group.terms[2 * k + half]).getResult();
    }
    registers[(row * depth + k) * 2 + half] = e.bitcast(e.b.getI32Type(), floats);
  }
  /// The neighbours of a fragment over columns, joined as integers: ptxas would make a vector of two elements
  /// again for every use.
  SmallVector<Value> pairs(ValueRange columns) {
    SmallVector<Value> result;
    auto bits = [&](Value column) -> Value {
      Value half = e.bitcast(e.b.getI16Type(), column);
      return arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), half);
    };
    for (size_t i = 0; i < columns.size(); i += 2) {
      Value high = arith::ShLIOp::create(e.b, e.loc, bits(columns[i + 1]), e.i32(16));
      Value both = arith::OrIOp::create(e.b, e.loc, bits(columns[i]), high);
      result.push_back(e.bitcast(pair, both));
    }
    return result;
  }

  struct Group {
    SmallVector<Value> factors, terms;
  };
  Emitter &e;
  FragmentType type;
  Type source, element;
  int64_t bits, depth;
  bool tiny;
  VectorType pair;
  SmallVector<Group> groups;
  std::optional<BlockScales> scales;
  BlockScales::Place place = {0, 8, 0}; ///< of the values that `put` takes next
  SmallVector<Value> registers;
  std::map<std::pair<const void *, int64_t>, Value> shuffled, shifted;
  std::map<double, Value> pairsOfNumbers;
};

struct WidenPattern : TilePattern<WidenOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WidenOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Widening widening(e, op);
    widening.setGroups(adaptor.getScales(), adaptor.getZeros());
    if (BlocksAttr blocks = op.getBlocksAttr())
      widening.setBlocks(blocks, adaptor.getWords(), adaptor.getMost());
    rewriter.replaceOpWithMultiple(op, {widening.convert(adaptor.getSource())});
    return success();
  }
};

/// Widens 16 neighbouring features of a line to eight registers of f16, or floats to bf16.
class WideningRun {
public:
  WideningRun(Emitter &e, Type codes, Type element)
      : e(e), codes(codes), element(element), bits(codes.getIntOrFloatBitWidth()),
        pair(VectorType::get(2, e.b.getF16Type())) {}

  /// `words`: the quantized values; `meta`: a scale and a zero in a word, null without. Integers without them
  /// count from the middle of their range.
  SmallVector<Value> widen(ArrayRef<Value> words, Value meta) {
    Value scale, zero;
    middle = meta ? 0 : int64_t(1) << (bits - 1);
    if (meta) {
      scale = e.bitcast(pair, e.bytes(meta, meta, {0, 1, 0, 1}));
      zero = e.bitcast(pair, e.bytes(meta, meta, {2, 3, 2, 3}));
    }
    SmallVector<Value> registers;
    for (int64_t i = 0; i < features; i += 2) {
      const int64_t place = i * bits / 8; // of the byte with the first of two
      Value floats = exact(words[place / 4], static_cast<int32_t>(place % 4), i);
      if (meta)
        floats = fma(floats, scale, zero);
      registers.push_back(e.bitcast(e.b.getI32Type(), pairOf(e, floats, element)));
    }
    return registers;
  }
  /// The 32-bit words of the run's quantized values.
  int64_t countWords() const { return features * bits / 32; }

  static constexpr int64_t features = 16;

private:
  /// Features i and i + 1, in byte `byte` of the word and in the next, or both in that byte.
  Value exact(Value word, int32_t byte, int64_t i) {
    auto f16 = [&](Value x) { return e.bitcast(pair, x); };
    if (isa<Float8E4M3FNType>(codes)) {
      Value two = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), e.shr(word, 8 * byte));
      return NVVM::ConvertF8x2ToF16x2Op::create(
          e.b, e.loc, pair, e.bitcast(VectorType::get(2, e.b.getI8Type()), two), /*relu=*/false, codes);
    }
    if (isa<Float8E5M2Type>(codes)) // the upper half of an f16
      return f16(e.bytes(word, e.i32(0), {4, byte, 4, byte + 1}));
    // In 1024 + x the mantissa counts ones. A value further up in its byte is larger by a power of two.
    constexpr int32_t upper = 0x64;
    if (bits == 8)
      return LLVM::FAddOp::create(e.b, e.loc, f16(e.bytes(word, e.i32(upper), {byte, 4, byte + 1, 4})),
                                  numbers(-1024 - middle, -1024 - middle));
    const int64_t low = i * bits % 8, high = low + bits, mask = (int64_t(1) << bits) - 1;
    Value both = e.bytes(word, e.i32(upper), {byte, 4, byte, 4});
    Value alone = e.band(both, (upper << 24) | (mask << high << 16) | (upper << 8) | (mask << low));
    auto power = [](int64_t up) { return std::ldexp(1.0, static_cast<int>(-up)); };
    return fma(f16(alone), numbers(power(low), power(high)),
               numbers(-1024 * power(low) - middle, -1024 * power(high) - middle));
  }
  Value fma(Value x, Value factor, Value term) { return LLVM::FMAOp::create(e.b, e.loc, x, factor, term); }
  Value numbers(double low, double high) {
    SmallVector<APFloat> both;
    for (double number : {low, high}) {
      bool lossy;
      both.emplace_back(number).convert(APFloat::IEEEhalf(), APFloat::rmNearestTiesToEven, &lossy);
    }
    return LLVM::ConstantOp::create(e.b, e.loc, pair, DenseElementsAttr::get(pair, both));
  }

  Emitter &e;
  Type codes, element;
  int64_t bits, middle = 0;
  VectorType pair;
};

/// Writes a widened run as two chunks of 16 bytes, `further` bytes behind these places.
static void storeRun(Emitter &e, ArrayRef<Value> floats, ArrayRef<Value> places, int64_t further) {
  constexpr int64_t words = 4, chunk = 16;
  for (auto [half, place] : llvm::enumerate(places)) {
    Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(words, e.b.getI32Type()));
    for (int64_t i = 0; i < words; ++i)
      vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, floats[half * words + i], e.i32(i));
    LLVM::StoreOp::create(e.b, e.loc, vector, e.sharedAt(place, further), chunk);
  }
}

/// A warp takes eight lines at a time, of which a lane has 16 features in each panel of the target. Lanes
/// that access memory together have two, four or eight neighbouring lines, whose chunks lie in different
/// banks, of the quantized values (codesMove) and of the target.
struct WidenTilePattern : TilePattern<WidenTileOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WidenTileOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t lines = 8, panelFeatures = 64, panelBytes = 128, runsOfPanel = 4, chunk = 16;
    Emitter e = emitter(op, rewriter);
    auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
    if (!schedule || schedule.getProducerWarps() == 0)
      return op.emitOpError("is for producer warps, and the kernel's tile.schedule has none");
    SharedType source = op.getSource().getType(), target = op.getTarget().getType();
    if (target.getElement().isF32()) {
      widenMeta(e, adaptor.getSource(), adaptor.getTarget(), target.getRows(), schedule.getProducerWarps());
      rewriter.eraseOp(op);
      return success();
    }
    if (!target.getSwizzled())
      return op.emitOpError("expected a swizzled tile, got ")
             << target << "; --tile-infer-layouts swizzles it";
    const int64_t width = source.getLineBytes(),
                  runBytes = chunk * source.getElement().getIntOrFloatBitWidth() / 8;
    const int64_t groups = op.getMeta() ? op.getMeta().getType().getCols() / 2 : 1,
                  runs = source.getCols() / 16;
    Value run = e.band(e.lanes.lane, runsOfPanel - 1), line = e.shr(e.lanes.lane, 2);
    struct Place {
      Value from, meta, to, next;
    };
    SmallVector<Place> places; // of each panel, in the first eight lines
    for (int64_t panel = 0; panel * panelFeatures < source.getCols(); ++panel) {
      Value number = e.add(run, panel * runsOfPanel), byte = e.mul(number, runBytes);
      Value from = e.add(e.placeOf(source, width, line, e.shr(byte, 4)), e.band(byte, chunk - 1));
      Value meta =
          e.add(e.mul(line, 4 * groups), e.mul(e.shr(e.mul(number, groups), llvm::Log2_64(runs)), 4));
      Value even = e.mul(run, 2), to = e.placeOf(target, panelBytes, line, even);
      places.push_back({from, meta, to, e.placeOf(target, panelBytes, line, e.add(even, 1))});
    }
    auto widenLines = [&](OpBuilder &builder, Location loc, Value first, ValueRange) {
      Emitter at(builder, loc, e.lanes);
      WideningRun widening(at, source.getElement(), target.getElement());
      auto words = [&](Value tile, Value bytes, int64_t count) {
        Value address = at.sharedAt(tile, bytes);
        SmallVector<Value> loaded;
        Type i32 = at.b.getI32Type();
        if (count == 1)
          return SmallVector<Value>{LLVM::LoadOp::create(at.b, loc, i32, address, 4)};
        Value vector = LLVM::LoadOp::create(at.b, loc, VectorType::get(count, i32), address, 4 * count);
        for (int64_t i = 0; i < count; ++i)
          loaded.push_back(LLVM::ExtractElementOp::create(at.b, loc, vector, at.i32(i)));
        return loaded;
      };
      for (auto [panel, place] : llvm::enumerate(places)) {
        Value meta;
        if (op.getMeta())
          meta = words(adaptor.getMeta(), at.add(at.mul(first, 4 * groups), place.meta), 1).front();
        SmallVector<Value> codes =
            words(adaptor.getSource(), at.add(at.mul(first, width), place.from), widening.countWords());
        SmallVector<Value> floats = widening.widen(codes, meta);
        Value row = at.sharedAt(adaptor.getTarget(), at.mul(first, panelBytes));
        storeRun(at, floats, {at.sharedAt(row, place.to), at.sharedAt(row, place.next)},
                 panel * panelBytes * target.getRows());
      }
      scf::YieldOp::create(builder, loc);
    };
    scf::ForOp::create(rewriter, op.getLoc(), e.mul(e.lanes.warp, lines), e.i32(source.getRows()),
                       e.i32(lines * schedule.getProducerWarps()), ValueRange(), widenLines);
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// A lane widens the scale and the zero of a line.
  static void widenMeta(Emitter &e, Value source, Value target, int64_t lines, int64_t warps) {
    constexpr int64_t lanes = 32, narrow = 4, wide = 8;
    Value first = e.add(e.mul(e.lanes.warp, lanes), e.lanes.lane);
    auto widenLine = [&](OpBuilder &builder, Location loc, Value line, ValueRange) {
      Emitter at(builder, loc, e.lanes);
      Value word = LLVM::LoadOp::create(builder, loc, builder.getI32Type(),
                                        at.sharedAt(source, at.mul(line, narrow)), narrow);
      Value halves = at.bitcast(VectorType::get(2, builder.getF16Type()), word);
      Value both = LLVM::PoisonOp::create(builder, loc, VectorType::get(2, builder.getF32Type()));
      for (int64_t i : {0, 1}) {
        Value half = LLVM::ExtractElementOp::create(builder, loc, halves, at.i32(i));
        Value number = arith::ExtFOp::create(builder, loc, builder.getF32Type(), half);
        both = LLVM::InsertElementOp::create(builder, loc, both, number, at.i32(i));
      }
      LLVM::StoreOp::create(builder, loc, both, at.sharedAt(target, at.mul(line, wide)), wide);
      scf::YieldOp::create(builder, loc);
    };
    scf::ForOp::create(e.b, e.loc, first, e.i32(lines), e.i32(lanes * warps), ValueRange(), widenLine);
  }
};

/// Writes the lines of a warp's share, in the order of `tile.fetch_lines`.
struct WidenLinesPattern : TilePattern<WidenLinesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WidenLinesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    using Fetch = FetchLinesOp;
    constexpr int64_t panelFeatures = 64, panelBytes = 128;
    Emitter e = emitter(op, rewriter);
    auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
    SharedType target = op.getTarget().getType();
    const int64_t panels = target.getCols() / panelFeatures,
                  lines = static_cast<int64_t>(op.getHeld().size()) / panels * Fetch::linesOfStep;
    if (!schedule || schedule.getProducerWarps() * lines != target.getRows())
      return op.emitOpError("is for producer warps that hold all ")
             << target.getRows() << " lines, and those of the kernel's tile.schedule hold "
             << (schedule ? schedule.getProducerWarps() * lines : 0);
    if (!target.getSwizzled())
      return op.emitOpError("expected a swizzled tile, got ")
             << target << "; --tile-infer-layouts swizzles it";
    Value even = e.mul(e.band(e.lanes.lane, Fetch::runsOfPanel - 1), 2),
          line = e.shr(e.lanes.lane, llvm::Log2_64(Fetch::runsOfPanel));
    Value first = e.sharedAt(adaptor.getTarget(), e.mul(e.lanes.warp, lines * panelBytes));
    const std::array<Value, 2> places{e.sharedAt(first, e.placeOf(target, panelBytes, line, even)),
                                      e.sharedAt(first, e.placeOf(target, panelBytes, line, e.add(even, 1)))};
    WideningRun widening(e, op.getCodes(), target.getElement());
    for (auto [number, run] : llvm::enumerate(adaptor.getHeld())) {
      const int64_t step = static_cast<int64_t>(number) / panels,
                    panel = static_cast<int64_t>(number) % panels;
      SmallVector<Value> codes;
      for (int64_t i = 0; i < widening.countWords(); ++i)
        codes.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, run, e.i32(i)));
      storeRun(e, widening.widen(codes, /*meta=*/Value()), places,
               (step * Fetch::linesOfStep + panel * target.getRows()) * panelBytes);
    }
    rewriter.eraseOp(op);
    return success();
  }
};

} // namespace

void tile::populateWidenPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                 const LaneMap &lanes) {
  patterns.add<WidenPattern, WidenTilePattern, WidenLinesPattern>(converter, patterns.getContext(), lanes);
}

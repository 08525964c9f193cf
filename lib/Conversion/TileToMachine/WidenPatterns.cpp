//===- WidenPatterns.cpp - Codes become the floats that dots multiply -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two codes at a time, for a register of a dot's operand holds two floats. An
// integer of 8 bits and less, put into the mantissa of a large enough power of two,
// is that number more than it should be; a subtraction makes it exact. Codes of
// less than 8 bits are put there by one mask, several bits up in the mantissa
// where that stands for a smaller power.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "attn/Support/Elements.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace mlir::tile;

namespace {

bool isF16(Type element) { return mlir::attn::elementOf(element).dtype == mlir::attn::rt::DType::F16; }

/// Where a code of 4 or 2 bits that lies `bits * position` up in a half finds room in the mantissa.
struct Place {
  int64_t shift, bit;
  Place(Type codes, Type element, int64_t position) {
    int64_t bits = codes.getIntOrFloatBitWidth(), room = mantissa(element) / bits * bits;
    shift = position * bits / room * room, bit = position * bits % room;
  }
  static int64_t mantissa(Type element) { return isF16(element) ? 10 : 7; }
  /// The power of two whose mantissa counts ones from `bit` on.
  int64_t bias(Type element) const { return 1 << (mantissa(element) - bit); }
  /// Its bits.
  int64_t magic(Type element) const {
    int64_t exponent = mantissa(element) - bit + (isF16(element) ? 15 : 127);
    return exponent << mantissa(element);
  }
};

/// What `biased` codes are too much by. `position` counts codes of 4 and 2 bits from the low end of a half.
int64_t biasOf(Type codes, Type element, int64_t position) {
  if (codes.getIntOrFloatBitWidth() == 8)
    return isF16(element) ? 1024 : 0;
  return Place(codes, element, position).bias(element);
}

/// Writes the conversion of one fragment.
class Widening {
public:
  Widening(Emitter &e, WidenOp op)
      : e(e), type(op.getSource().getType()), source(type.getElement()),
        element(op.getResult().getType().getElement()), bits(source.getIntOrFloatBitWidth()),
        depth(type.getSizes()[1] / 16), biased(op.getBiased()), tiny(op.getTiny()),
        pair(VectorType::get(2, element)), registers(type.getSizes()[0] / 8 * depth * 2) {}

  /// Factors and terms of columns, for each group of rows.
  void setGroups(ArrayRef<ValueRange> factors, ArrayRef<ValueRange> terms) {
    for (ValueRange columns : factors)
      groups.push_back({pairs(columns), {}});
    for (auto [group, columns] : llvm::zip(groups, terms))
      group.terms = pairs(columns);
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
  /// Four codes of a block in the bytes of a register.
  void singles(ValueRange codes) {
    for (auto [i, word] : llvm::enumerate(codes))
      for (int64_t half : {0, 1})
        put(i / depth, i % depth, half, bytePair(word, {2 * int32_t(half), 2 * int32_t(half) + 1}, false));
  }
  void contractedRuns(ValueRange words) {
    int64_t perWord = 32 / bits;
    size_t next = 0;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row)
      for (int64_t first = 0; first < type.getSizes()[1] / 4; first += perWord) { // in the lane's runs
        Value word = words[next++];
        for (int64_t p = 0; p < perWord / 2; ++p)
          put(row, (first + 2 * p) / 4, p % 2,
              bits == 8 ? bytePair(word, {2 * int32_t(p), 2 * int32_t(p) + 1}, biased)
                        : halfPair(word, p, biased));
      }
  }
  /// Words of four columns each; neighbouring columns are what a register holds.
  void keptRuns(ValueRange words) {
    for (FragmentType::Span span : type.getSpans()) {
      int64_t run = span.size / 8, perColumn = llvm::divideCeil(run * bits, 32);
      for (int64_t k = 0; k < depth; ++k, words = words.drop_front(4 * perColumn))
        for (int64_t half : {0, 1})
          for (int64_t i = 0; i < run; ++i) {
            Value low = words[2 * half * perColumn + i * bits / 32];
            Value high = words[(2 * half + 1) * perColumn + i * bits / 32];
            put(span.first / 8 + i, k, half, neighbours(low, high, i % (32 / bits)));
          }
    }
  }
  /// Code i of two words.
  Value neighbours(Value low, Value high, int64_t i) {
    int32_t first = i * bits / 16 * 2; // byte of the half in which they are
    if (bits < 8)
      return halfPair(halves(low, high, {first, first + 1, 4 + first, 5 + first}), i % (16 / bits), false);
    if (isa<Float8E4M3FNType>(source)) {
      Value both = halves(low, high, {first, 4 + first, first + 1, 5 + first});
      int32_t at = i % 2 * 2;
      return bytePair(both, {at, at + 1}, false);
    }
    Value both = halves(low, high, {first, first + 1, 4 + first, 5 + first});
    int32_t at = i % 2;
    return bytePair(both, {at, 2 + at}, false);
  }
  /// The same bytes of two words, once for all codes in them.
  Value halves(Value low, Value high, std::array<int32_t, 4> which) {
    Value &known = shuffled[{low.getAsOpaquePointer(), which[0]}];
    return known ? known : known = e.bytes(low, high, which);
  }

  /// Two bytes of a word.
  Value bytePair(Value word, std::array<int32_t, 2> which, bool keepBias) {
    auto [low, high] = which;
    if (isa<Float8E4M3FNType>(source)) {
      Value two = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), e.shr(word, 8 * low));
      Value bytes = LLVM::BitcastOp::create(e.b, e.loc, VectorType::get(2, e.b.getI8Type()), two);
      auto f16 = VectorType::get(2, e.b.getF16Type());
      return fromF16(NVVM::ConvertF8x2ToF16x2Op::create(e.b, e.loc, f16, bytes, /*relu=*/false, source));
    }
    if (isa<Float8E5M2Type>(source)) { // the upper half of an f16
      auto f16 = VectorType::get(2, e.b.getF16Type());
      return fromF16(LLVM::BitcastOp::create(e.b, e.loc, f16, e.bytes(word, e.i32(0), {4, low, 4, high})));
    }
    if (tiny)
      return LLVM::BitcastOp::create(e.b, e.loc, pair, e.bytes(word, e.i32(0), {low, 4, high, 4}));
    if (isF16(element)) {
      Value bits = e.bytes(word, e.i32(0x64), {low, 4, high, 4});
      return keepBias ? LLVM::BitcastOp::create(e.b, e.loc, pair, bits).getResult() : subtract(bits, 1024);
    }
    // 2^23 in f32, whose mantissa counts ones. Of an integer of 8 bits the upper half is all.
    auto whole = [&](int32_t which) -> Value {
      Value bits = e.bytes(word, e.i32(0x4b000000), {which, 4, 4, 7});
      Value exact = e.fsub(LLVM::BitcastOp::create(e.b, e.loc, e.b.getF32Type(), bits), e.f32(0x1p23));
      return LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), exact);
    };
    Value first = whole(low), second = whole(high);
    return LLVM::BitcastOp::create(e.b, e.loc, pair, e.bytes(first, second, {2, 3, 6, 7}));
  }

  /// The codes at a position of the halves of a word.
  Value halfPair(Value word, int64_t position, bool keepBias) {
    Place place(source, element, position);
    Value &moved = shifted[{word.getAsOpaquePointer(), place.shift}];
    if (!moved)
      moved = e.shr(word, place.shift);
    int64_t mask = ((int64_t(1) << bits) - 1) << place.bit, both = 0x10001;
    if (tiny)
      return LLVM::BitcastOp::create(e.b, e.loc, pair, e.band(moved, mask * both));
    Value bits =
        arith::OrIOp::create(e.b, e.loc, e.band(moved, mask * both), e.i32(place.magic(element) * both));
    return keepBias ? LLVM::BitcastOp::create(e.b, e.loc, pair, bits).getResult()
                    : subtract(bits, static_cast<double>(place.bias(element)));
  }

  Value subtract(Value bits, double bias) {
    Value floats = LLVM::BitcastOp::create(e.b, e.loc, pair, bits);
    APFloat number(bias);
    bool lossy;
    number.convert(cast<FloatType>(element).getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
    auto value = DenseElementsAttr::get(pair, number);
    return LLVM::FSubOp::create(e.b, e.loc, floats, LLVM::ConstantOp::create(e.b, e.loc, pair, value));
  }
  /// What f16 holds of codes, bf16 does.
  Value fromF16(Value halves) {
    if (isF16(element))
      return halves;
    auto wide = [&](int64_t i) -> Value {
      Value half = LLVM::ExtractElementOp::create(e.b, e.loc, halves, e.i32(i));
      return arith::ExtFOp::create(e.b, e.loc, e.b.getF32Type(), half);
    };
    Value low = wide(0), high = wide(1);
    return LLVM::BitcastOp::create(e.b, e.loc, pair, e.pack(low, high, element));
  }

  void put(int64_t row, int64_t k, int64_t half, Value floats) {
    if (!groups.empty()) {
      const Group &group = groups[row * 8 * groups.size() / type.getSizes()[0]];
      Value factor = group.factors[2 * k + half];
      floats = group.terms.empty()
                   ? LLVM::FMulOp::create(e.b, e.loc, floats, factor).getResult()
                   : LLVM::FMAOp::create(e.b, e.loc, floats, factor, group.terms[2 * k + half]).getResult();
    }
    registers[(row * depth + k) * 2 + half] = LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), floats);
  }
  /// Neighbours of a fragment over columns. Of integers: what is made of two elements ptxas makes anew for
  /// every use.
  SmallVector<Value> pairs(ValueRange columns) {
    SmallVector<Value> result;
    auto bits = [&](Value column) -> Value {
      Value half = LLVM::BitcastOp::create(e.b, e.loc, e.b.getI16Type(), column);
      return arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), half);
    };
    for (size_t i = 0; i < columns.size(); i += 2) {
      Value high = arith::ShLIOp::create(e.b, e.loc, bits(columns[i + 1]), e.i32(16));
      Value both = arith::OrIOp::create(e.b, e.loc, bits(columns[i]), high);
      result.push_back(LLVM::BitcastOp::create(e.b, e.loc, pair, both));
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
  bool biased, tiny;
  VectorType pair;
  SmallVector<Group> groups;
  SmallVector<Value> registers;
  std::map<std::pair<const void *, int64_t>, Value> shuffled, shifted;
};

struct WidenPattern : TilePattern<WidenOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WidenOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Widening widening(e, op);
    widening.setGroups(adaptor.getScales(), adaptor.getZeros());
    rewriter.replaceOpWithMultiple(op, {widening.convert(adaptor.getSource())});
    return success();
  }
};

/// The least number of f16 is 2^-24; a code that lies further up in its half is larger by as many bits.
struct RestorePattern : TilePattern<RestoreOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RestoreOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t least = 24;
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getResult().getType();
    Type codes = op.getCodes();
    int64_t bits = codes.getIntOrFloatBitWidth(), columnBlocks = type.getSizes()[1] / 8;
    if (!type.getOrder())
      return op.emitOpError("expected features in runs, as tiny codes have them, got ") << type;
    SmallVector<Value> registers(adaptor.getSource());
    for (FragmentType::Span span : type.getSpans())
      for (int64_t i = 0; i < span.size / 8; ++i) { // rows of eight
        int64_t row = span.first / 8 + i;
        int64_t up = bits == 8 ? 0 : Place(codes, e.b.getF16Type(), i % (16 / bits)).bit;
        Value factor = e.f32(std::ldexp(1.0, static_cast<int>(least - up)));
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

struct BiasesPattern : TilePattern<BiasesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BiasesOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    Type element = type.getElement();
    int64_t perHalf = 16 / op.getCodes().getIntOrFloatBitWidth();
    SmallVector<Value> registers;
    for (int64_t i = 0; i < type.getRegisters(); ++i) {
      int64_t bias = type.getOrder() ? biasOf(op.getCodes(), element, i % perHalf) : 0;
      APFloat number(static_cast<double>(bias));
      bool lossy;
      number.convert(cast<FloatType>(element).getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
      registers.push_back(e.i32(static_cast<int64_t>(number.bitcastToAPInt().getZExtValue() * 0x10001)));
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// Elements of bf16 are upper halves of f32. The power is the inverse of what is between the largest's
/// exponent and that of 2^13.
struct NarrowPattern : TilePattern<NarrowOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NarrowOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type f32 = e.b.getF32Type(), i32 = e.b.getI32Type();
    auto asFloat = [&](Value bits) -> Value { return LLVM::BitcastOp::create(e.b, e.loc, f32, bits); };
    auto asBits = [&](Value number) -> Value { return LLVM::BitcastOp::create(e.b, e.loc, i32, number); };
    Value largest = e.f32(0);
    SmallVector<std::pair<Value, Value>> numbers;
    for (Value two : adaptor.getSource()) {
      Value low = asFloat(e.b.createOrFold<arith::ShLIOp>(e.loc, two, e.i32(16)));
      Value high = asFloat(e.band(two, int32_t(0xffff0000)));
      numbers.emplace_back(low, high);
      for (Value number : {low, high})
        largest = e.fmax(largest, LLVM::FAbsOp::create(e.b, e.loc, number));
    }
    for (int64_t lanes = 16; lanes > 0; lanes /= 2)
      largest = e.fmax(largest, e.shuffle(NVVM::ShflKind::bfly, largest, e.i32(lanes)));
    constexpr int64_t bias = 127, target = bias + 13;
    Value exponent = e.sub(e.i32(target + bias), e.shr(asBits(largest), 23));
    exponent = e.min(exponent, e.i32(2 * bias - 1));
    auto power = [&](Value field) {
      return asFloat(e.b.createOrFold<arith::ShLIOp>(e.loc, field, e.i32(23)));
    };
    Value scale = power(exponent), factor = power(e.sub(e.i32(2 * bias), exponent));
    SmallVector<Value> registers;
    for (auto [low, high] : numbers)
      registers.push_back(e.pack(e.fmul(low, scale), e.fmul(high, scale), e.b.getF16Type()));
    rewriter.replaceOpWithMultiple(op, SmallVector<ValueRange>{registers, ValueRange(factor)});
    return success();
  }
};

} // namespace

void tile::populateWidenPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                 const LaneMap &lanes) {
  patterns.add<WidenPattern, RestorePattern, BiasesPattern, NarrowPattern>(converter, patterns.getContext(),
                                                                           lanes);
}

//===- CorrectionPatterns.cpp - Results of converted operands are put right ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantized values are multiplied as floats that are cheap to make: smaller
// than the values by a known power of two. It is taken out of the result of an
// MMA, or out of the other operand.
//
//===----------------------------------------------------------------------===//
#include "LaneCodes.h"
#include "Patterns.h"

#include <cmath>

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

/// Scales by the power of two that brings the exponent of the largest number to that of 2^13.
struct NarrowPattern : TilePattern<NarrowOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(NarrowOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type f32 = e.b.getF32Type(), i32 = e.b.getI32Type();
    auto asFloat = [&](Value bits) -> Value { return e.bitcast(f32, bits); };
    auto asBits = [&](Value number) -> Value { return e.bitcast(i32, number); };
    Value largest = e.f32(0);
    SmallVector<std::pair<Value, Value>> numbers;
    for (Value two : adaptor.getSource()) {
      auto [low, high] = numbers.emplace_back(asTwoFloats(e, op.getSource().getType().getElement(), two));
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

void tile::populateCorrectionPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<RestorePattern, BalancePattern, NarrowPattern>(converter, patterns.getContext(), lanes);
}

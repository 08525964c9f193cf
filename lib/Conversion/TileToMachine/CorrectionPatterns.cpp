//===- CorrectionPatterns.cpp - Results of converted operands are put right ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codes are multiplied as floats that are cheap to make: biased, or smaller than the
// codes by a power of two. What a dot of them is too much or too little by is known.
//
//===----------------------------------------------------------------------===//
#include "CodePlaces.h"
#include "Patterns.h"

#include <cmath>

using namespace mlir;
using namespace mlir::tile;

namespace {

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

void tile::populateCorrectionPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<RestorePattern, BiasesPattern, NarrowPattern>(converter, patterns.getContext(), lanes);
}

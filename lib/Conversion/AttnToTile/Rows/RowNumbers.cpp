//===- RowNumbers.cpp - Arithmetic on the numbers of a lane ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RowNumbers.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <bit>
#include <cmath>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

static uint32_t bitsOf(double number) { return std::bit_cast<uint32_t>(static_cast<float>(number)); }

Value RowNumbers::toHalf(Value x) {
  Value half = arith::TruncFOp::create(b, b.getF16Type(), x);
  return arith::ExtUIOp::create(b, i32, arith::BitcastOp::create(b, b.getI16Type(), half));
}

Value RowNumbers::fromHalf(Value bits) {
  Value half = arith::TruncIOp::create(b, b.getI16Type(), bits);
  Value number = arith::BitcastOp::create(b, b.getF16Type(), half);
  return arith::ExtFOp::create(b, f32, number, arith::FastMathFlagsAttr());
}

/// A division has a branch for numbers whose inverse is not normal. Without it, one step of Newton's method
/// from the chip's reciprocal rounds as a division does.
Value RowNumbers::inverseOfHalf(Value x) {
  Value guess = tile::ReciprocalOp::create(b, x);
  Value off = math::FmaOp::create(b, arith::NegFOp::create(b, x), guess, b.f32(1));
  return math::FmaOp::create(b, off, guess, guess);
}

SmallVector<Value> RowNumbers::unpack(ArrayRef<Value> words, Type element) {
  SmallVector<Value> numbers;
  for (Value word : words) {
    if (element.isF32()) {
      numbers.push_back(number(word));
    } else if (element.isBF16()) {
      numbers.push_back(number(shl(word, 16)));
      numbers.push_back(number(mask(word, 0xffff0000)));
    } else {
      numbers.push_back(fromHalf(word));
      numbers.push_back(fromHalf(shr(word, 16)));
    }
  }
  return numbers;
}

Words RowNumbers::pack(ArrayRef<Value> numbers, Type element) {
  Words words;
  if (element.isF32()) {
    for (Value x : numbers)
      words.push_back(bits(x));
    return words;
  }
  const size_t count = 32 / element.getIntOrFloatBitWidth();
  for (size_t i = 0; i < numbers.size(); i += count)
    words.push_back(tile::PackOp::create(b, i32, numbers.slice(i, count), TypeAttr::get(element)));
  return words;
}

/// Adds instead of taking the union, so that one subtraction removes the bias of all quantized values.
Words RowNumbers::packCodes(ArrayRef<Value> codes, int64_t bits, uint32_t bias) {
  Words words;
  for (size_t begin = 0, count = std::min<size_t>(32 / bits, codes.size()); begin < codes.size();
       begin += count) {
    Value word;
    uint32_t tooLarge = 0;
    for (size_t i = 0; i < count; ++i) {
      Value shifted = shl(codes[begin + i], i * bits);
      word = word ? b.add(word, shifted) : shifted;
      tooLarge += bias << i * bits;
    }
    words.push_back(tooLarge ? b.sub(word, b.i32(static_cast<int32_t>(tooLarge))) : word);
  }
  return words;
}

SmallVector<Value> RowNumbers::unpackCodes(ArrayRef<Value> words, int64_t bits) {
  SmallVector<Value> codes;
  for (int64_t i = 0; i < rowNumbers; ++i) {
    int64_t bit = i * bits;
    codes.push_back(mask(shr(words[bit / 32], bit % 32), (uint32_t{1} << bits) - 1));
  }
  return codes;
}

Value RowNumbers::blockScale(Value byte, const rt::Format &format) {
  switch (format.blocks) {
  case rt::Format::Blocks::None:
    break;
  case rt::Format::Blocks::E8M0: {
    Value least = b.compare(arith::CmpIPredicate::eq, byte, b.i32(0)); // 2^-127 is not normal
    return number(b.select(least, b.i32(1 << 22), shl(byte, 23)));
  }
  case rt::Format::Blocks::E4M3:
    return fromCode(mask(byte, 0x7f), rt::elementType(rt::DType::F8E4M3FN));
  }
  return b.f32(1);
}

/// A number is either normal in the quantized type or rounded to a multiple of its smallest value. The
/// mantissa of a normal number is rounded in place. The others are rounded by a sum with a number whose last
/// bit is that smallest value.
Value RowNumbers::toCode(Value x, const rt::ElementType &type) {
  int shift = 23 - type.mantissaBits, bias = (1 << (type.exponentBits - 1)) - 1;
  Value sign = mask(shr(bits(x), 32 - type.bits), 1 << (type.bits - 1));
  Value within = min(magnitude(x), b.f32(type.largest()));
  Value all = bits(within);
  Value even = mask(shr(all, shift), 1);
  Value rounded = b.add(b.add(all, even), b.i32((1 << (shift - 1)) - 1));
  Value normal = b.sub(shr(rounded, shift), b.i32((127 - bias) << type.mantissaBits));
  double ulp = std::ldexp(1.0, 23 + 1 - bias - type.mantissaBits); // the sum's last bit is the smallest value
  Value small = b.sub(bits(add(within, b.f32(ulp))), b.i32(static_cast<int32_t>(bitsOf(ulp))));
  Value isSmall = b.compare(arith::CmpIPredicate::ult, all,
                            b.i32(static_cast<int32_t>(bitsOf(std::ldexp(1.0, 1 - bias)))));
  return either(b.select(isSmall, small, normal), sign);
}

/// Shifted into place, exponent and mantissa are a number 2^(127 - bias) too small; so are subnormal ones.
Value RowNumbers::fromCode(Value code, const rt::ElementType &type) {
  int shift = 23 - type.mantissaBits, bias = (1 << (type.exponentBits - 1)) - 1;
  const int magnitudes = (1 << (type.bits - 1)) - 1;
  Value all = mask(code, magnitudes), sign = shl(mask(code, magnitudes + 1), 32 - type.bits);
  Value value = mul(number(shl(all, shift)), b.f32(std::ldexp(1.0, 127 - bias)));
  if (type.bits == 4)
    return number(either(bits(value), sign));
  // Quantized values from here on are infinite or NaN.
  int64_t first = type.infinities ? ((1 << type.exponentBits) - 1) << type.mantissaBits : 0x7f;
  Value special = type.infinities ? either(shl(all, shift), b.i32(0x7f800000)) : b.i32(0x7fc00000);
  Value isSpecial = b.compare(arith::CmpIPredicate::uge, all, b.i32(first));
  Value unsignedBits = b.select(isSpecial, special, bits(value));
  return number(either(unsignedBits, sign));
}

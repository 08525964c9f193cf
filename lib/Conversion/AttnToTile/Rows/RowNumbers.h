//===- RowNumbers.h - Arithmetic on the numbers of a lane -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of attn_rt/tensor/Format.h for the eight numbers of a row that
// a lane holds: f32, and rounded where the CPU rounds, so that quantized values
// are the same to the bit. Elements that tile.pack has no conversion to are
// made by integer arithmetic on the bits of floats, alike on all chips.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWNUMBERS_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWNUMBERS_H

#include "RowExpansion.h"

namespace mlir::attn {

struct RowNumbers {
  explicit RowNumbers(KernelBuilder &builder) : b(builder), i32(b.getI32Type()), f32(b.getF32Type()) {}

  KernelBuilder &b;
  Type i32, f32;

  Value bits(Value number) { return b.createOrFold<arith::BitcastOp>(i32, number); }
  Value number(Value bits) { return b.createOrFold<arith::BitcastOp>(f32, bits); }
  Value shl(Value x, int64_t by) { return by ? b.createOrFold<arith::ShLIOp>(x, b.i32(by)) : x; }
  Value shr(Value x, int64_t by) { return by ? b.createOrFold<arith::ShRUIOp>(x, b.i32(by)) : x; }
  Value mask(Value x, uint32_t bits) {
    return b.createOrFold<arith::AndIOp>(x, b.i32(static_cast<int32_t>(bits)));
  }
  Value either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(x, y); }
  Value min(Value x, Value y) { return arith::MinNumFOp::create(b, x, y); }
  Value max(Value x, Value y) { return arith::MaxNumFOp::create(b, x, y); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value inverse(Value x) { return arith::DivFOp::create(b, b.f32(1), x); }
  /// Returns the inverse of a positive number of f16, the same bits in fewer instructions.
  Value inverseOfHalf(Value x);
  Value magnitude(Value x) { return number(mask(bits(x), 0x7fffffff)); }

  /// Rounds a number to f16, whose bits go to the low half of a word; and the way back.
  Value toHalf(Value x);
  Value fromHalf(Value bits);

  /// The eight numbers of a chunk of f16, bf16 or f32, and the way back, which e4m3 has, too.
  SmallVector<Value> unpack(ArrayRef<Value> words, Type element);
  Words pack(ArrayRef<Value> numbers, Type element);

  /// Packs eight quantized values of `bits` bits into words; each value may be `bias` too large. And the way
  /// back.
  Words packCodes(ArrayRef<Value> codes, int64_t bits, uint32_t bias = 0);
  SmallVector<Value> unpackCodes(ArrayRef<Value> words, int64_t bits);

  /// The quantized value of 8 or 4 bits that is nearest to a number, ties to even; the largest if the number
  /// is beyond it.
  Value toCode(Value x, const ::attn::rt::ElementType &type);
  Value fromCode(Value code, const ::attn::rt::ElementType &type);
  /// The number that the bits of a block's scale stand for.
  Value blockScale(Value byte, const ::attn::rt::Format &format);
};

} // namespace mlir::attn

#endif

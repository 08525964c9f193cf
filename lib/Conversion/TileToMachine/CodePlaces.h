//===- CodePlaces.h - Where codes lie in mantissas --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TILETOMACHINE_CODEPLACES_H
#define ATTN_CONVERSION_TILETOMACHINE_CODEPLACES_H

#include "attn/Support/Elements.h"

#include "mlir/IR/BuiltinTypes.h"

namespace mlir::tile {

inline bool isF16(Type element) { return mlir::attn::elementOf(element).dtype == mlir::attn::rt::DType::F16; }

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

/// How many bits further up than others a tiny code lies in its half, of f16. `position` counts codes from
/// the half's low end.
inline int64_t bitOf(Type codes, int64_t position) {
  int64_t bits = codes.getIntOrFloatBitWidth();
  return bits == 8 ? 0 : Place(codes, Float16Type::get(codes.getContext()), position % (16 / bits)).bit;
}

} // namespace mlir::tile

#endif

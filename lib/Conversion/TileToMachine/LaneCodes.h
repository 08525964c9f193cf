//===- LaneCodes.h - Positions and scales of quantized values ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TILETOMACHINE_LANECODES_H
#define ATTN_CONVERSION_TILETOMACHINE_LANECODES_H

#include "Emitter.h"

#include "attn/Support/Elements.h"

#include <map>

namespace mlir::tile {

inline bool isF16(Type element) { return mlir::attn::elementOf(element).dtype == mlir::attn::rt::DType::F16; }

/// The bit of the mantissa to which a quantized value of 4 or 2 bits moves, from bit `bits * position` of a
/// half.
struct Place {
  int64_t shift, bit;
  Place(Type codes, Type element, int64_t position) {
    int64_t bits = codes.getIntOrFloatBitWidth(), room = mantissa(element) / bits * bits;
    shift = position * bits / room * room, bit = position * bits % room;
  }
  static int64_t mantissa(Type element) { return isF16(element) ? 10 : 7; }
  /// The power of two whose mantissa counts ones from `bit` on.
  int64_t bias(Type element) const { return 1 << (mantissa(element) - bit); }
  /// The bits of that power.
  int64_t magic(Type element) const {
    int64_t exponent = mantissa(element) - bit + (isF16(element) ? 15 : 127);
    return exponent << mantissa(element);
  }
};

/// The number of bits by which a tiny value lies higher than others in its half, of f16. `position` counts
/// values from the half's low end.
inline int64_t bitOf(Type codes, int64_t position) {
  int64_t bits = codes.getIntOrFloatBitWidth();
  return bits == 8 ? 0 : Place(codes, Float16Type::get(codes.getContext()), position % (16 / bits)).bit;
}

/// The factors of quantized values whose blocks of features share a scale, for two values at a time as
/// registers of a right operand hold them: of two tokens if features are kept, of one token if they are
/// contracted.
class BlockScales {
public:
  /// A lane's values lie `offset` features into its run. The span of `size` features from `first` on consists
  /// of such runs, one for each lane along features. A span that is no longer than a block lies in one block.
  struct Place {
    int64_t first, size, offset;
  };

  /// `words`: the registers of each word, over tokens; `most`: the largest exponents; `raised`: the power of
  /// two by which these make quantized values larger.
  BlockScales(Emitter &e, FragmentType type, BlocksAttr blocks, ArrayRef<ValueRange> words, ValueRange most,
              int64_t raised);

  /// `line`: the number of a token's register, or of a pair of registers if features are kept.
  Value pairOf(int64_t line, Place place);

private:
  struct Block {
    int64_t least, most; ///< over all lanes
    Value lane;          ///< null if both are equal
  };
  Block blockOf(Place place);
  /// The block's scale of a token, in each byte.
  Value scaleOf(int64_t token, const Block &block);
  /// The scales of a pair: in the lowest two bytes, and in the lower byte of each half.
  Value scalesOf(int64_t line, const Block &block);
  Value pairOfE4M3(int64_t line, const Block &block);
  Value pairOfPowers(int64_t line, const Block &block);

  Emitter &e;
  FragmentType type;
  BlocksAttr blocks;
  SmallVector<SmallVector<Value>> words;
  SmallVector<Value> most;
  int64_t raised;
  bool kept;
  std::map<std::pair<int64_t, int64_t>, Block> known; ///< by feature and span
  std::map<std::pair<int64_t, std::pair<int64_t, int64_t>>, Value> pairs;
};

} // namespace mlir::tile

#endif

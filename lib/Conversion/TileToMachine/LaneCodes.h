//===- LaneCodes.h - Where codes lie, and what scales them ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TILETOMACHINE_LANECODES_H
#define ATTN_CONVERSION_TILETOMACHINE_LANECODES_H

#include "Emitter.h"

#include "attn/Support/Elements.h"

#include <map>

namespace mlir::tile {

inline bool isF16(Type element) { return mlir::attn::elementOf(element).dtype == mlir::attn::rt::DType::F16; }

/// The bit of the mantissa to which a code of 4 or 2 bits moves that lies `bits * position` up in a half.
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

/// The factors of codes whose blocks of features share a scale, two codes at a time as registers of a right
/// operand hold them: of two tokens where features are kept, of one token where they are contracted.
class BlockScales {
public:
  /// A lane's codes lie `offset` features into its run. The span of `size` features from `first` on consists
  /// of such runs, one for each lane along features. A span of at most a block lies in one block.
  struct Place {
    int64_t first, size, offset;
  };

  /// `words`: of each word the registers over tokens; `most`: the largest exponents; `raised`: by which power
  /// of two these make codes larger.
  BlockScales(Emitter &e, FragmentType type, BlocksAttr blocks, ArrayRef<ValueRange> words, ValueRange most,
              int64_t raised);

  /// `line`: number of a token's register, or of a pair of them where features are kept.
  Value pairOf(int64_t line, Place place);

private:
  struct Block {
    int64_t least, most; ///< of all lanes
    Value lane;          ///< null where they are equal
  };
  Block blockOf(Place place);
  /// The block's scale of a token, in each byte.
  Value scaleOf(int64_t token, const Block &block);
  /// Those that a pair takes, in the lowest two bytes, and in the lower byte of each half.
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

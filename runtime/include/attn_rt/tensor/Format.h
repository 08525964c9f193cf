//===- Format.h - How the elements of keys and values are stored -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A store holds codes, and what is needed to make numbers of them again. A plain
// format's codes are the numbers: 16-bit floats. Others come with *metadata*, each
// of which some elements share:
//
//   floats of 8 bits     x = code * scale          an f32 per tensor, per KV head, or per token and head
//   floats of 8, 4       x = code * 2^(s - 127)    a byte s per token, head and block of 32 features
//   floats of 4          x = code * s * scale      an e4m3 s per token, head and block of 16, an f32 of all
//   integers of 8, 4, 2  x = code * scale + zero   two f16 per token, head and group of features
//
// Groups and blocks are neighbouring features. Blocks of 32 are OCP's Microscaling
// formats (v1.0): codes are e4m3, e5m2 or e2m1, scales e8m0, of which 255 is a NaN.
// Blocks of 16 are NVFP4: codes are e2m1, and scales have no sign.
// Integer codes are unsigned. Codes of less than 8 bits are packed little end first:
// feature f of a row lies in bits (f % (8/bits)) * bits of byte f * bits / 8. Scales
// per tensor and head are given; an append finds those of a token (metadata by *line*).
//
// How kernels compute with codes tells lib/Conversion/AttnToTile/Expand/Dequantize.cpp.
// Here is the same for the CPU: for the reference, for tensors of tests, and for
// what an append must write. Its arithmetic is f32, step by step as below, so that
// a kernel can make the same codes to the bit.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_FORMAT_H
#define ATTN_RT_TENSOR_FORMAT_H

#include "attn_rt/tensor/ElementType.h"

#include <span>
#include <vector>

namespace attn::rt {

struct Format {
  /// Which elements share metadata.
  enum class Scales : uint8_t { None, Tensor, Head, Token, Group };
  /// What scales of blocks are, a byte each, whose codes are floats: powers of two, or floats beside which
  /// the tensor has a scale.
  enum class Blocks : uint8_t { None, E8M0, E4M3 };

  DType codes = DType::BF16; ///< elements of the tensor of codes; U8: packed integers
  int bits = 16;             ///< of a code
  Scales scales = Scales::None;
  int64_t group = 0; ///< of Scales::Group: how many neighbouring features share a scale (and a zero)
  Blocks blocks = Blocks::None;

  static Format plain(DType type) { return {type, elementType(type).bits, Scales::None, 0}; }
  static Format floats(DType type, Scales scales) { return {type, elementType(type).bits, scales, 0}; }
  /// Floats of 8 bits, or of 4 where `type` is U8.
  static Format blocksOf(DType type, int64_t group, Blocks blocks) {
    return {type, type == DType::U8 ? 4 : 8, Scales::Group, group, blocks};
  }
  /// Blocks whose scales are of the type that MLIR and manifests call so in small letters, and all these
  /// types.
  static Blocks blocksBy(std::string_view scale);
  static std::vector<std::string> blockScaleNames();
  static Format integers(int bits, int64_t group) { return {DType::U8, bits, Scales::Group, group}; }
  /// The group of integer codes where none is named: the row, or 128 features where these divide it.
  static int64_t defaultGroup(int64_t dim) { return dim > 128 && dim % 128 == 0 ? 128 : dim; }

  /// "bf16", "f8e4m3fn per head", "i4 per 64", "f4e2m1fn per 16 by f8e4m3fn", and the way back; any type may
  /// be plain to a manifest.
  std::string text() const;
  static std::optional<Format> parse(std::string_view text);
  /// The name of a code: "bf16", "f8e4m3fn", "i4".
  std::string codeName() const;
  /// What is wrong with the format, as "expected X, got Y; nearest legal: Z"; empty where it exists.
  std::string fault() const;
  /// The same of rows of `dim` features in a format that exists.
  std::string faultOf(int64_t dim) const;

  bool isPlain() const { return scales == Scales::None; }
  bool hasBlocks() const { return blocks != Blocks::None; }
  bool isInteger() const { return codes == DType::U8 && !hasBlocks(); }
  /// The type of a float's code.
  const ElementType &element() const { return hasBlocks() && bits == 4 ? e2m1() : elementType(codes); }
  /// Whether one scale is that of a whole head, or of all of them. Lines may have metadata beside it.
  bool hasSharedScale() const {
    return scales == Scales::Tensor || scales == Scales::Head || blocks == Blocks::E4M3;
  }
  /// Whether each line of codes, one head of a token, has metadata of its own.
  bool hasLines() const { return scales == Scales::Token || scales == Scales::Group; }
  /// The largest integer code.
  int levels() const { return (1 << bits) - 1; }
  /// Bytes of the codes of `dim` elements.
  int64_t rowBytes(int64_t dim) const { return dim * bits / 8; }
  /// Elements of the tensor of codes that hold them.
  int64_t rowCodes(int64_t dim) const { return codes == DType::U8 ? rowBytes(dim) : dim; }
  /// Copies take 16 bytes at a time: dims are multiples of as many codes.
  int64_t codesPerChunk() const { return 128 / bits; }
  /// Parts of a row that have metadata of their own.
  int64_t groups(int64_t dim) const { return scales == Scales::Group ? dim / group : 1; }
  /// Elements of metadata: f32, pairs of f16, or bytes.
  DType metaType() const {
    return isInteger()              ? DType::F16
           : blocks == Blocks::E8M0 ? DType::U8
           : blocks == Blocks::E4M3 ? DType::F8E4M3FN
                                    : DType::F32;
  }
  /// Bytes of the metadata of a row; 0 in a plain format. Copies take four at least: bytes behind the last
  /// block are nobody's.
  int64_t metaBytes(int64_t dim) const {
    return isPlain() ? 0 : hasBlocks() ? (groups(dim) + 3) / 4 * 4 : 4 * groups(dim);
  }
  /// The largest number that has a code under some metadata; of floats the largest f32.
  float largest() const;
  /// The scale by which floats of at most this magnitude become codes that lose least; 1 in a plain format.
  float scaleFor(double magnitude) const;
  bool operator==(const Format &) const = default;
};

/// Numbers of the codes of a format.
class RowDecoder {
public:
  explicit RowDecoder(Format format);
  /// The numbers that `out.size()` codes stand for, `meta` being the bytes of their metadata (null in a plain
  /// format) and `scale` that of the tensor beside lines. f32 holds code * scale of integers exactly; the
  /// other products and sums are rounded to it.
  void decode(const uint8_t *codes, const uint8_t *meta, std::span<float> out, float scale = 1) const;

private:
  void decodeIntegers(const uint8_t *codes, const uint8_t *meta, std::span<float> out) const;
  void decodeBlocks(const uint8_t *codes, const uint8_t *meta, std::span<float> out, float scale) const;

  Format format;
  std::vector<float> table; ///< of floats, by code; empty where a code's bits are those of an f32
};

/// Makes `row` what can be stored: a NaN becomes 0, what is beyond 65280 (integers: nearly the largest f16)
/// or the largest f32 (floats) becomes that, with its sign. Returns how many were NaN or infinite.
int64_t clampRow(Format format, std::span<float> row);

/// The scale of a block of numbers up to this magnitude, `scale` being the tensor's.
uint8_t findBlockScale(Format format, float magnitude, float scale = 1);

/// Metadata by line, for a row of clamped numbers:
///
///   floats     scale = max |x| * (1 / largest code), at least the smallest normal f32; of zeros 1
///   blocks     2^s <= max |x| / 2^e < 2^(s + 1), e the exponent of the largest code; of zeros s = 0
///              or s = e4m3(max |x| * (1 / largest code) * (1 / scale)), at least the smallest above 0
///   integers   of each group zero = f16(min x), scale = f16((max x - min x) * (1 / levels)), and at least
///   the least
///              above 0, so that a constant group is all zeros in code, and its zero the constant
///
/// All others' `meta` is given, and stays what it is; so is `scale`, the tensor's beside lines.
void findMeta(Format format, std::span<const float> row, uint8_t *meta, float scale = 1);

/// Codes of a row of clamped numbers under its metadata, with inverse = 1 / scale:
///
///   floats     x * inverse, rounded to the code's type, ties to even; what is too large becomes the largest
///   integers   (x - zero) * inverse, one rounding, to an integer, ties to even, within 0 and levels
///
/// Scales are finite and above 0.
void quantizeRow(Format format, std::span<const float> row, const uint8_t *meta, uint8_t *codes,
                 float scale = 1);

} // namespace attn::rt

#endif

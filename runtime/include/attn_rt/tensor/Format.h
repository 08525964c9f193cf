//===- Format.h - How the elements of keys and values are stored -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A store holds quantized values, and the metadata that turns them into numbers again.
// The values of a plain format are the numbers: 16-bit floats. Other formats have
// *metadata*, each element of which serves several values:
//
//   floats of 8 bits     x = q * scale          an f32 per tensor, per KV head, or per token and head
//   floats of 8, 4       x = q * 2^(s - 127)    a byte s per token, head and block of 32 features
//   floats of 4          x = q * s * scale      an e4m3 s per token, head and block of 16, an f32 of all
//   integers of 8, 4, 2  x = q * scale + zero   two f16 per token, head and group of features
//   latents              x = q * scale, or x    four f32 in each row, between its 512 e4m3 and its 64 bf16
//
// Groups and blocks are neighbouring features. Latents of two parts lie as vLLM, SGLang and
// FlashMLA store them ("fp8_ds_mla"): a row of 656 bytes has e4m3 with a scale for each
// group of 128, these scales, and the features that turn by position, unquantized. Blocks of 32 are OCP's
// Microscaling formats (v1.0): values are e4m3, e5m2 or e2m1, scales e8m0, of which 255 is a NaN. Blocks of
// 16 are NVFP4: values are e2m1, and scales have no sign. Quantized integers are unsigned. Values of less
// than 8 bits are packed little end first: feature f of a row lies in bits (f % (8/bits)) * bits of byte f *
// bits / 8. Scales per tensor and per head are given; an append computes those of a token (metadata by
// *line*).
//
// lib/Conversion/AttnToTile/Expand/Dequantize.cpp explains how kernels compute with
// quantized values. Here is the same for the CPU: for the reference, for tensors of
// tests, and for what an append must write. Its arithmetic is f32, step by step as
// below, so that a kernel can compute the same quantized values to the bit.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_FORMAT_H
#define ATTN_RT_TENSOR_FORMAT_H

#include "attn_rt/tensor/ElementType.h"

#include <span>
#include <vector>

namespace attn::rt {

struct Format {
  /// The elements that share metadata; Row: a group, whose scale lies in the row itself.
  enum class Scales : uint8_t { None, Tensor, Head, Token, Group, Row };
  /// The kind of scales of blocks of floats, a byte each: powers of two, or floats in addition to a scale of
  /// the whole tensor.
  enum class Blocks : uint8_t { None, E8M0, E4M3 };

  DType codes = DType::BF16; ///< elements of the tensor of quantized values; U8: packed integers
  int bits = 16;             ///< of a quantized value
  Scales scales = Scales::None;
  /// For Scales::Group: the number of neighbouring features that share a scale (and a zero point).
  int64_t group = 0;
  Blocks blocks = Blocks::None;
  int64_t rest = 0; ///< for Scales::Row: the last features of a row, which are bf16

  /// Plain floats, and floats of 8 bits with a scale per tensor, per head or per token.
  static Format plain(DType type) { return {type, elementType(type).bits, Scales::None, 0}; }
  static Format floats(DType type, Scales scales) { return {type, elementType(type).bits, scales, 0}; }
  /// Blocks of floats of 8 bits, or of 4 bits if `type` is U8.
  static Format blocksOf(DType type, int64_t group, Blocks blocks) {
    return {type, type == DType::U8 ? 4 : 8, Scales::Group, group, blocks};
  }
  /// The kind of blocks whose scales have this type, named as MLIR and manifests name it, in small letters;
  /// and the names of all these types.
  static Blocks blocksBy(std::string_view scale);
  static std::vector<std::string> blockScaleNames();
  /// Integers of 8, 4 or 2 bits, unsigned, with a scale and a zero point per group of features.
  static Format integers(int bits, int64_t group) { return {DType::U8, bits, Scales::Group, group}; }
  /// Rows of e4m3 with an f32 for each group of features, these scales, then `rest` features of bf16.
  static Format rows(int64_t group, int64_t rest) {
    return {DType::U8, 8, Scales::Row, group, Blocks::None, rest};
  }
  /// The default group of quantized integers: the row, or 128 features if these divide it.
  static int64_t defaultGroup(int64_t dim) { return dim > 128 && dim % 128 == 0 ? 128 : dim; }

  /// The format as text, "bf16", "f8e4m3fn per head", "i4 per 64", "f4e2m1fn per 16 by f8e4m3fn",
  /// "f8e4m3fn per 128 rest 64", and its inverse. A manifest may have any type as a plain format.
  std::string text() const;
  static std::optional<Format> parse(std::string_view text);
  /// The name of a quantized value's type: "bf16", "f8e4m3fn", "i4".
  std::string codeName() const;
  /// The fault of a format, as "expected X, got Y; nearest legal: Z"; empty if the format is supported.
  std::string fault() const;
  /// The fault of rows of `dim` features in a supported format, in the same form.
  std::string faultOf(int64_t dim) const;

  bool isPlain() const { return scales == Scales::None; }
  bool hasBlocks() const { return blocks != Blocks::None; }
  /// Whether a row has quantized features, their scales, and features of bf16.
  bool isMixed() const { return scales == Scales::Row; }
  bool isInteger() const { return codes == DType::U8 && !hasBlocks() && !isMixed(); }
  /// Whether metadata has tensors of its own.
  bool hasMeta() const { return !isPlain() && !isMixed(); }
  /// The type of a quantized float.
  const ElementType &element() const {
    return hasBlocks() && bits == 4 ? e2m1() : elementType(isMixed() ? DType::F8E4M3FN : codes);
  }
  /// Whether a head, or the whole tensor, has one scale. Lines may have metadata as well.
  bool hasSharedScale() const {
    return scales == Scales::Tensor || scales == Scales::Head || blocks == Blocks::E4M3;
  }
  /// Whether each line, one head of a token, has metadata of its own.
  bool hasLines() const { return scales == Scales::Token || scales == Scales::Group; }
  /// The largest quantized integer.
  int levels() const { return (1 << bits) - 1; }
  /// Bytes of `dim` quantized values, and of what else a row holds.
  int64_t rowBytes(int64_t dim) const { return isMixed() ? restByte(dim) + 2 * rest : dim * bits / 8; }
  /// In a row of several parts: its quantized features, its scales, and the byte where the rest begins.
  int64_t rowCoded(int64_t dim) const { return dim - rest; }
  int64_t rowScales(int64_t dim) const { return isMixed() ? rowCoded(dim) / group : 0; }
  int64_t restByte(int64_t dim) const { return rowCoded(dim) + 4 * rowScales(dim); }
  /// Elements of the tensor that hold them.
  int64_t rowCodes(int64_t dim) const { return codes == DType::U8 ? rowBytes(dim) : dim; }
  /// Copies take 16 bytes at a time: dims are multiples of as many values.
  int64_t codesPerChunk() const { return 128 / bits; }
  /// Parts of a row with metadata of their own.
  int64_t groups(int64_t dim) const { return scales == Scales::Group ? dim / group : 1; }
  /// The type of metadata: f32, pairs of f16, or bytes.
  DType metaType() const {
    return isInteger()              ? DType::F16
           : blocks == Blocks::E8M0 ? DType::U8
           : blocks == Blocks::E4M3 ? DType::F8E4M3FN
                                    : DType::F32;
  }
  /// Bytes of the metadata of a row; 0 in a plain format. Copies take at least four bytes: those after the
  /// last block are unused.
  int64_t metaBytes(int64_t dim) const {
    return !hasMeta() ? 0 : hasBlocks() ? (groups(dim) + 3) / 4 * 4 : 4 * groups(dim);
  }
  /// The largest number that the format can represent under some metadata; for floats the largest f32.
  float largest() const;
  /// The scale under which floats of at most this magnitude lose the least; 1 in a plain format.
  float scaleFor(double magnitude) const;
  bool operator==(const Format &) const = default;
};

/// Dequantizes rows of a format.
class RowDecoder {
public:
  explicit RowDecoder(Format format);
  /// Dequantizes `out.size()` values. `meta` holds the bytes of their metadata (null in a plain format),
  /// `scale` is the scale of the tensor in addition to metadata by line. f32 holds code * scale of integers
  /// exactly; the other products and sums are rounded to f32.
  void decode(const uint8_t *codes, const uint8_t *meta, std::span<float> out, float scale = 1) const;

private:
  void decodeIntegers(const uint8_t *codes, const uint8_t *meta, std::span<float> out) const;
  void decodeBlocks(const uint8_t *codes, const uint8_t *meta, std::span<float> out, float scale) const;
  void decodeMixed(const uint8_t *codes, std::span<float> out) const;

  Format format;
  std::vector<float> table; ///< for floats, by bits; empty if the value's bits are those of an f32
};

/// Clamps `row` to what can be stored: a NaN becomes 0; a magnitude beyond 65280 (integers: nearly the
/// largest f16) or beyond the largest f32 (floats) becomes that limit, with its sign. Returns the number of
/// elements that were NaN or infinite. Rows of several parts are clamped to the largest bf16.
int64_t clampRow(Format format, std::span<float> row);

/// The scale of a block of numbers up to this magnitude; `scale` is the tensor's.
uint8_t findBlockScale(Format format, float magnitude, float scale = 1);

/// Computes the metadata by line of a row of clamped numbers:
///
///   floats     scale = max |x| * (1 / largest value), at least the smallest normal f32
///   blocks     2^s <= max |x| / 2^e < 2^(s + 1), e the exponent of the largest value; s = -127 for zeros;
///              or s = e4m3(max |x| * (1 / largest value) * (1 / scale)), at least the smallest above 0
///   integers   per group: zero = f16(min x), scale = f16((max x - min x) * (1 / levels)), at least the
///              smallest above 0, so that a constant group is all zeros, with the constant as its zero point
///
/// Other formats' `meta` is given and stays unchanged, as does `scale`, the tensor's scale. Rows with scales
/// of their own have no metadata: quantizeRow finds these scales, as those of a token.
void findMeta(Format format, std::span<const float> row, uint8_t *meta, float scale = 1);

/// Quantizes a row of clamped numbers under its metadata, with inverse = 1 / scale:
///
///   floats     x * inverse, rounded to the value's type, ties to even; too large a value becomes the largest
///   the rest   x, rounded to bf16
///   integers   (x - zero) * inverse, one rounding, to an integer, ties to even, clamped to [0, levels]
///
/// Scales are finite and above 0.
void quantizeRow(Format format, std::span<const float> row, const uint8_t *meta, uint8_t *codes,
                 float scale = 1);

} // namespace attn::rt

#endif

//===- Format.h - How the elements of keys and values are stored -*- C++ -*-===//
//
// A store holds codes, and what is needed to make numbers of them again. A plain
// format's codes are the numbers: 16-bit floats. Others come with tensors of
// scales, each of which some elements share. Kernels convert a code to the type of
// the queries, exactly, and multiply by the scale where that costs least: outside
// of dots (lib/Conversion/AttnToTile/Dequantize.cpp). Here is the same for the CPU,
// for the reference and for tensors of tests.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_FORMAT_H
#define ATTN_RT_FORMAT_H

#include "attn_rt/ElementType.h"

#include <span>
#include <vector>

namespace attn::rt {

struct Format {
  /// Which elements share a scale: all those of a KV head.
  enum class Scales : uint8_t { None, Head };

  DType codes = DType::BF16;
  Scales scales = Scales::None;

  /// What an element type of a KV operand stands for; empty where there is no such format.
  static std::optional<Format> of(DType element);
  /// The element types that stand for one, for messages: "f16, bf16 or f8e4m3fn".
  static std::string names();

  bool isPlain() const { return scales == Scales::None; }
  /// Bytes of the codes of `dim` elements.
  int64_t rowBytes(int64_t dim) const { return dim * static_cast<int64_t>(dtypeSize(codes)); }
  /// Copies take 16 bytes at a time: dims are multiples of as many codes.
  int64_t codesPerChunk() const { return 16 / static_cast<int64_t>(dtypeSize(codes)); }
  /// The scale by which numbers of at most this magnitude become codes that lose least; 1 in a plain format.
  float scaleFor(double magnitude) const;
  bool operator==(const Format &) const = default;
};

/// Numbers of the codes of a format, by a table: f32 holds every code exactly.
class RowDecoder {
public:
  explicit RowDecoder(Format format);
  /// The numbers that `out.size()` codes from `codes` on stand for under a scale.
  void decode(const uint8_t *codes, float scale, std::span<float> out) const;

private:
  Format format;
  std::vector<float> table; ///< by code; empty where a code's bits are those of an f32
};

/// Codes of a row of numbers under a scale: rounded to nearest, ties to even; what is too large becomes the
/// largest code of a format without infinities. The scale is finite and above 0.
void quantizeRow(Format format, std::span<const float> row, float scale, uint8_t *codes);

} // namespace attn::rt

#endif

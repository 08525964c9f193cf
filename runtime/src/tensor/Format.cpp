//===- Format.cpp - How the elements of keys and values are stored --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace attn::rt {

namespace {

constexpr DType floatCodes[] = {DType::F8E4M3FN, DType::F8E5M2};
constexpr int integerBits[] = {8, 4, 2};
constexpr int64_t groupSizes[] = {16, 32, 64, 128};
constexpr std::string_view scaleWords[] = {"", "tensor", "head", "token"};
/// Rows of e4m3, scales and bf16 have the parts that engines give them: three of whole 16 bytes.
constexpr int64_t codedFeatures = 512, codedGroup = 128, restFeatures = 64;
constexpr int powerBias = 127, noPower = 255;

/// The kinds of blocks.
struct BlockFormat {
  Format format;
  std::string_view scale; ///< type of the blocks' scales
};
constexpr BlockFormat blockFormats[] = {
    {{DType::F8E4M3FN, 8, Format::Scales::Group, 32, Format::Blocks::E8M0}, "f8e8m0fnu"},
    {{DType::F8E5M2, 8, Format::Scales::Group, 32, Format::Blocks::E8M0}, "f8e8m0fnu"},
    {{DType::U8, 4, Format::Scales::Group, 32, Format::Blocks::E8M0}, "f8e8m0fnu"},
    {{DType::U8, 4, Format::Scales::Group, 16, Format::Blocks::E4M3}, "f8e4m3fn"},
};

template <typename T> bool isAmong(std::span<const T> legal, T value) {
  return std::ranges::find(legal, value) != legal.end();
}

std::string integerName(int bits) { return 'i' + std::to_string(bits); }

struct Pair {
  float scale, zero;
};

Pair pairAt(const uint8_t *meta, int64_t group) {
  std::array<uint16_t, 2> halves;
  std::memcpy(halves.data(), meta + 4 * group, sizeof halves);
  return {static_cast<float>(fromF16(halves[0])), static_cast<float>(fromF16(halves[1]))};
}

float scaleAt(const uint8_t *meta, int64_t index = 0) {
  float scale;
  std::memcpy(&scale, meta + index * int64_t{sizeof scale}, sizeof scale);
  return scale;
}

/// The largest number of integer formats. Both 16-bit floats hold it, and zero + levels * scale stays within
/// f16, however the scale is rounded.
constexpr float largestOfIntegers = 65280;

std::string byText(Format::Blocks blocks) {
  for (const BlockFormat &each : blockFormats)
    if (each.format.blocks == blocks)
      return " by " + std::string(each.scale);
  return "";
}

float magnitudeOf(std::span<const float> numbers) {
  float magnitude = 0;
  for (const float x : numbers)
    magnitude = std::max(magnitude, std::abs(x));
  return magnitude;
}

/// The scales of blocks by their bytes.
float blockScale(Format format, uint8_t byte) {
  switch (format.blocks) {
  case Format::Blocks::None:
    break;
  case Format::Blocks::E8M0:
    return byte == noPower ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, byte - powerBias);
  case Format::Blocks::E4M3: // without a sign
    return static_cast<float>(fromFloatBits(byte & 0x7f, elementType(DType::F8E4M3FN)));
  }
  return 1;
}

std::string listOf(const std::vector<std::string> &names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  return text;
}

/// The scale by which a float of this magnitude becomes the largest one of its type. It is the smallest for
/// zeros, so that they decide no unit of weights.
float tokenScale(const ElementType &type, float magnitude) {
  const auto largest = static_cast<float>(type.largest());
  return std::max(magnitude * (1 / largest), std::numeric_limits<float>::min());
}

/// Quantizes groups of features, and writes their scales and the rest of the row after them.
void quantizeMixed(Format format, std::span<const float> row, uint8_t *codes) {
  const ElementType &type = format.element(), &wide = elementType(DType::BF16);
  const int64_t dim = std::ssize(row), coded = format.rowCoded(dim);
  for (int64_t g = 0; g < format.rowScales(dim); ++g) {
    const auto group = row.subspan(static_cast<size_t>(g * format.group), static_cast<size_t>(format.group));
    const float scale = tokenScale(type, magnitudeOf(group)), inverse = 1 / scale;
    std::memcpy(codes + coded + 4 * g, &scale, sizeof scale);
    for (size_t i = 0; i < group.size(); ++i)
      codes[g * format.group + static_cast<int64_t>(i)] = static_cast<uint8_t>(
          toFloatBits(std::clamp<double>(group[i] * inverse, -type.largest(), type.largest()), type));
  }
  for (int64_t f = coded; f < dim; ++f) {
    const uint16_t bits = toFloatBits(row[static_cast<size_t>(f)], wide);
    std::memcpy(codes + format.restByte(dim) + 2 * (f - coded), &bits, sizeof bits);
  }
}

/// The part of a row that has its own metadata.
std::span<const float> groupOf(Format format, std::span<const float> row, int64_t group) {
  return row.subspan(static_cast<size_t>(group * format.group), static_cast<size_t>(format.group));
}

} // namespace

Format::Blocks Format::blocksBy(std::string_view scale) {
  for (const BlockFormat &each : blockFormats)
    if (each.scale == scale)
      return each.format.blocks;
  return Blocks::None;
}

std::vector<std::string> Format::blockScaleNames() {
  std::vector<std::string> names;
  for (const BlockFormat &each : blockFormats)
    if (!isAmong<std::string>(names, std::string(each.scale)))
      names.emplace_back(each.scale);
  return names;
}

std::string Format::codeName() const { return isInteger() ? integerName(bits) : std::string(element().name); }

std::string Format::text() const {
  if (isPlain())
    return codeName();
  if (isMixed())
    return codeName() + " per " + std::to_string(group) + " rest " + std::to_string(rest);
  return codeName() + " per " +
         (scales == Scales::Group ? std::to_string(group)
                                  : std::string(scaleWords[static_cast<size_t>(scales)])) +
         byText(blocks);
}

std::optional<Format> Format::parse(std::string_view text) {
  for (const BlockFormat &each : blockFormats)
    if (each.format.text() == text)
      return each.format;
  if (const Format mixed = rows(codedGroup, restFeatures); text == mixed.text())
    return mixed;
  const size_t space = text.find(" per ");
  const std::string_view code = text.substr(0, space);
  const std::string_view per = space == std::string_view::npos ? "" : text.substr(space + 5);
  Format format;
  for (const int bits : integerBits)
    if (code == integerName(bits)) {
      int64_t group = 0;
      const auto [end, error] = std::from_chars(per.data(), per.data() + per.size(), group);
      if (error != std::errc() || end != per.data() + per.size())
        return std::nullopt;
      format = integers(bits, group);
      return format.fault().empty() ? std::optional(format) : std::nullopt;
    }
  const std::optional<DType> type = parseDType(code);
  const auto *word = std::ranges::find(scaleWords, per);
  if (!type || word == std::end(scaleWords) || (per.empty() && space != std::string_view::npos))
    return std::nullopt;
  format = floats(*type, static_cast<Scales>(word - scaleWords));
  const bool isCode = isAmong<DType>(floatCodes, *type);
  return (format.isPlain() && !isCode) || format.fault().empty() ? std::optional(format) : std::nullopt;
}

std::string Format::fault() const {
  if (hasBlocks()) {
    std::string nearest;
    std::vector<std::string> legal;
    for (const BlockFormat &each : blockFormats) {
      if (each.format == *this)
        return "";
      legal.push_back(each.format.text());
      if (each.format.blocks == blocks && (nearest.empty() || each.format.bits == bits))
        nearest = legal.back();
    }
    return "expected blocks of " + listOf(legal) + ", got " + text() + "; nearest legal: " + nearest;
  }
  if (isMixed())
    return *this == rows(codedGroup, restFeatures)
               ? ""
               : "expected rows of f8E4M3FN per 128 and a rest of 64 features, got per " +
                     std::to_string(group) + " and a rest of " + std::to_string(rest) +
                     "; nearest legal: per = 128, rest = 64";
  if (isInteger()) {
    if (!isAmong<int>(integerBits, bits))
      return "expected quantized integers of 8, 4 or 2 bits, got " + std::to_string(bits) +
             "; nearest legal: " +
             integerName(bits > 4   ? 8
                         : bits > 2 ? 4
                                    : 2);
    if (scales == Scales::Group && group >= 1)
      return "";
    return "expected quantized integers per a number of features, got per " +
           (scales == Scales::Group ? std::to_string(group)
                                    : std::string(scaleWords[static_cast<size_t>(scales)])) +
           "; nearest legal: per = 128";
  }
  if (isAmong<DType>(floatCodes, codes)) {
    if (scales == Scales::Tensor || scales == Scales::Head || scales == Scales::Token)
      return "";
    return "expected " + codeName() + " values per tensor, head or token, got " +
           (isPlain() ? "no scales" : "per " + std::to_string(group)) + "; nearest legal: per = token";
  }
  const bool multiplied = elementType(codes).mmaDepth > 0;
  if (multiplied && isPlain())
    return "";
  return "expected f16 or bf16, or quantized f8E4M3FN, f8E5M2, i8, i4 or i2, got " + text() +
         (multiplied ? "; nearest legal: " + codeName() : "");
}

std::string Format::faultOf(int64_t dim) const {
  const auto nearest = [&](int64_t unit) {
    return (dim > unit ? std::to_string(dim / unit * unit) + " or " : "") +
           std::to_string(dim / unit * unit + unit);
  };
  if (isMixed())
    return rowCoded(dim) == codedFeatures
               ? ""
               : "expected rows of 576 features, 512 of f8E4M3FN and a rest of 64, got " +
                     std::to_string(dim) + "; nearest legal: 576";
  const int64_t chunk = codesPerChunk();
  if (dim % chunk != 0)
    return "expected a dim of whole 16 bytes, a multiple of " + std::to_string(chunk) + " elements of " +
           codeName() + ", got " + std::to_string(dim) +
           "; nearest legal: " + nearest(hasBlocks() ? std::lcm(chunk, int64_t{group}) : chunk);
  if (hasBlocks())
    return dim % group == 0 ? ""
                            : "expected a dim of whole blocks, a multiple of " + std::to_string(group) +
                                  ", got " + std::to_string(dim) + "; nearest legal: " + nearest(group);
  if (scales != Scales::Group || group == dim || (isAmong<int64_t>(groupSizes, group) && dim % group == 0))
    return "";
  int64_t closest = dim;
  for (const int64_t size : groupSizes)
    if (dim % size == 0 && std::abs(size - group) < std::abs(closest - group))
      closest = size;
  return "expected a group of 16, 32, 64 or 128 features that divides the dim of " + std::to_string(dim) +
         ", or all of it, got " + std::to_string(group) + "; nearest legal: " + std::to_string(closest);
}

float Format::largest() const {
  return isInteger() ? largestOfIntegers
         : isMixed() ? static_cast<float>(elementType(DType::BF16).largest())
                     : std::numeric_limits<float>::max();
}

float Format::scaleFor(double magnitude) const {
  return isPlain() || !(magnitude > 0) ? 1 : static_cast<float>(magnitude / element().largest());
}

RowDecoder::RowDecoder(Format format) : format(format) {
  const ElementType &type = format.element();
  if (type.isFloat() && type.dtype != DType::BF16)
    for (uint32_t code = 0; code < uint32_t{1} << type.bits; ++code)
      table.push_back(static_cast<float>(fromFloatBits(static_cast<uint16_t>(code), type)));
}

void RowDecoder::decode(const uint8_t *codes, const uint8_t *meta, std::span<float> out, float scale) const {
  const auto wide = [&](size_t i) {
    uint16_t code;
    std::memcpy(&code, codes + 2 * i, sizeof code);
    return code;
  };
  if (format.isInteger())
    return decodeIntegers(codes, meta, out);
  if (format.hasBlocks())
    return decodeBlocks(codes, meta, out, scale);
  if (format.isMixed())
    return decodeMixed(codes, out);
  if (format.codes == DType::BF16) // this loop vectorizes
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = std::bit_cast<float>(static_cast<uint32_t>(wide(i)) << 16);
  else if (format.bits == 16)
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = table[wide(i)];
  else
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = table[codes[i]];
  if (!format.isPlain())
    for (float &number : out)
      number *= scaleAt(meta);
}

void RowDecoder::decodeMixed(const uint8_t *codes, std::span<float> out) const {
  // Values are the first features of a row, whose length is that of its keys.
  const int64_t dim = codedFeatures + format.rest, coded = format.rowCoded(dim);
  for (int64_t f = 0; f < std::ssize(out); ++f)
    if (f < coded) {
      out[static_cast<size_t>(f)] = table[codes[f]] * scaleAt(codes + coded, f / format.group);
    } else {
      uint16_t bits;
      std::memcpy(&bits, codes + format.restByte(dim) + 2 * (f - coded), sizeof bits);
      out[static_cast<size_t>(f)] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
}

void RowDecoder::decodeBlocks(const uint8_t *codes, const uint8_t *meta, std::span<float> out,
                              float scale) const {
  const auto group = static_cast<size_t>(format.group);
  float ofBlock = 0;
  for (size_t f = 0; f < out.size(); ++f) {
    if (f % group == 0)
      ofBlock = blockScale(format, meta[f / group]) * scale;
    out[f] = table[format.bits == 8 ? codes[f] : codes[f / 2] >> f % 2 * 4 & 15] * ofBlock;
  }
}

void RowDecoder::decodeIntegers(const uint8_t *codes, const uint8_t *meta, std::span<float> out) const {
  const auto perByte = static_cast<size_t>(8 / format.bits), group = static_cast<size_t>(format.group);
  Pair pair{};
  for (size_t f = 0; f < out.size(); ++f) {
    if (f % group == 0)
      pair = pairAt(meta, static_cast<int64_t>(f / group));
    const int shift = static_cast<int>(f % perByte) * format.bits;
    out[f] = static_cast<float>(codes[f / perByte] >> shift & format.levels()) * pair.scale + pair.zero;
  }
}

int64_t clampRow(Format format, std::span<float> row) {
  const float largest = format.largest();
  int64_t notFinite = 0;
  for (float &x : row) {
    notFinite += !std::isfinite(x);
    x = std::isnan(x) ? 0 : std::clamp(x, -largest, largest);
  }
  return notFinite;
}

uint8_t findBlockScale(Format format, float magnitude, float scale) {
  const double largest = format.element().largest();
  switch (format.blocks) {
  case Format::Blocks::None:
    break;
  case Format::Blocks::E8M0: {
    const int power = magnitude > 0 ? std::ilogb(magnitude) - std::ilogb(largest) + powerBias : 0;
    return static_cast<uint8_t>(std::clamp(power, 0, noPower - 1));
  }
  case Format::Blocks::E4M3: {
    const ElementType &type = elementType(DType::F8E4M3FN);
    const float wanted = magnitude * (1 / static_cast<float>(largest)) * (1 / scale);
    const uint16_t code = toFloatBits(std::min<double>(wanted, type.largest()), type);
    return static_cast<uint8_t>(std::max<uint16_t>(code, 1)); // the smallest above 0
  }
  }
  return 0;
}

void findMeta(Format format, std::span<const float> row, uint8_t *meta, float scale) {
  if (format.scales == Format::Scales::Token) {
    const float found = tokenScale(elementType(format.codes), magnitudeOf(row));
    std::memcpy(meta, &found, sizeof found);
  }
  if (format.scales != Format::Scales::Group)
    return;
  if (format.hasBlocks()) {
    for (int64_t g = 0; g < format.groups(std::ssize(row)); ++g)
      meta[g] = findBlockScale(format, magnitudeOf(groupOf(format, row, g)), scale);
    return;
  }
  for (int64_t g = 0; g < format.groups(std::ssize(row)); ++g) {
    const auto [min, max] = std::ranges::minmax(groupOf(format, row, g));
    const float low = min + 0.0F, high = max + 0.0F; // + 0 removes the sign of a zero
    const auto levels = static_cast<float>(format.levels());
    constexpr uint16_t smallest = 1; // the smallest above 0
    const std::array<uint16_t, 2> pair = {std::max(toF16((high - low) * (1 / levels)), smallest), toF16(low)};
    std::memcpy(meta + 4 * g, pair.data(), sizeof pair);
  }
}

void quantizeRow(Format format, std::span<const float> row, const uint8_t *meta, uint8_t *codes,
                 float scale) {
  if (format.isMixed())
    return quantizeMixed(format, row, codes);
  if (format.isInteger()) {
    const auto perByte = static_cast<size_t>(8 / format.bits), group = static_cast<size_t>(format.group);
    std::fill_n(codes, format.rowBytes(std::ssize(row)), uint8_t{0});
    for (size_t f = 0; f < row.size(); ++f) {
      const Pair pair = pairAt(meta, static_cast<int64_t>(f / group));
      const double inverse = 1 / pair.scale; // of an f32
      const double code =
          std::clamp<double>(std::nearbyint((row[f] - pair.zero) * inverse), 0, format.levels());
      codes[f / perByte] |= static_cast<uint8_t>(static_cast<int>(code) << f % perByte * format.bits);
    }
    return;
  }
  const ElementType &type = format.element();
  if (format.hasBlocks()) {
    std::fill_n(codes, format.rowBytes(std::ssize(row)), uint8_t{0});
    for (size_t f = 0; f < row.size(); ++f) {
      const float ofBlock = blockScale(format, meta[f / static_cast<size_t>(format.group)]) * scale;
      const float inverse = 1 / ofBlock;
      const uint16_t code =
          toFloatBits(std::clamp<double>(row[f] * inverse, -type.largest(), type.largest()), type);
      codes[format.bits == 8 ? f : f / 2] |= static_cast<uint8_t>(code << (format.bits == 8 ? 0 : f % 2 * 4));
    }
    return;
  }
  const float inverse = format.isPlain() ? 1 : 1 / scaleAt(meta);
  const double largest = type.largest();
  for (size_t i = 0; i < row.size(); ++i) {
    double number = row[i];
    if (!format.isPlain())
      number = std::clamp<double>(row[i] * inverse, -largest, largest);
    const uint16_t code = toFloatBits(number, type);
    std::memcpy(codes + i * type.bytes(), &code, type.bytes());
  }
}

} // namespace attn::rt

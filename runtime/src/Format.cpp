#include "attn_rt/Format.h"

#include <bit>
#include <cstring>

namespace attn::rt {

namespace {

constexpr Format formats[] = {
    {DType::F16, Format::Scales::None},
    {DType::BF16, Format::Scales::None},
    {DType::F8E4M3FN, Format::Scales::Head},
};

} // namespace

std::optional<Format> Format::of(DType element) {
  for (const Format &format : formats)
    if (format.codes == element)
      return format;
  return std::nullopt;
}

std::string Format::names() {
  std::string text;
  for (const Format &format : formats) {
    const bool last = &format + 1 == std::end(formats);
    text += (text.empty() ? "" : last ? " or " : ", ") + std::string(dtypeName(format.codes));
  }
  return text;
}

float Format::scaleFor(double magnitude) const {
  return isPlain() || !(magnitude > 0) ? 1 : static_cast<float>(magnitude / elementType(codes).largest());
}

RowDecoder::RowDecoder(Format format) : format(format) {
  const ElementType &type = elementType(format.codes);
  if (type.dtype != DType::BF16)
    for (uint32_t code = 0; code < uint32_t{1} << type.bits; ++code)
      table.push_back(static_cast<float>(fromFloatBits(static_cast<uint16_t>(code), type)));
}

void RowDecoder::decode(const uint8_t *codes, float scale, std::span<float> out) const {
  const auto wide = [&](size_t i) {
    uint16_t code;
    std::memcpy(&code, codes + 2 * i, sizeof code);
    return code;
  };
  if (format.codes == DType::BF16) // this loop vectorizes
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = std::bit_cast<float>(static_cast<uint32_t>(wide(i)) << 16);
  else if (dtypeSize(format.codes) == 2)
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = table[wide(i)];
  else
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = table[codes[i]];
  if (!format.isPlain())
    for (float &number : out)
      number *= scale;
}

void quantizeRow(Format format, std::span<const float> row, float scale, uint8_t *codes) {
  const ElementType &type = elementType(format.codes);
  for (size_t i = 0; i < row.size(); ++i) {
    const double number = format.isPlain() ? row[i] : static_cast<double>(row[i]) / scale;
    const uint16_t code = toFloatBits(number, type);
    std::memcpy(codes + i * type.bytes(), &code, type.bytes());
  }
}

} // namespace attn::rt

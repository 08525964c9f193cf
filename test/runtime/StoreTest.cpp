#include "attn_rt/Artifact.h"
#include "attn_rt/Random.h"

#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

Store storeOf(StoreKind kind, int64_t page = 0, bool ragged = false, int64_t heads = 4) {
  const Format plain = *Format::of(DType::BF16), codes = *Format::of(DType::F8E4M3FN);
  return {kind, page, ragged, heads, {'k', 64, codes}, {'v', 32, plain}};
}

std::string text(const std::vector<StoreTensor> &tensors) {
  std::string text;
  for (const StoreTensor &tensor : tensors) {
    text += (text.empty() ? "" : " ") + tensor.name + ":" + std::string(dtypeName(tensor.dtype)) + "[";
    for (const StoreDim &dim : tensor.dims) {
      text += text.back() == '[' ? "" : ",";
      text += dim.size ? std::string(sizeName(*dim.size)) + (dim.value ? "+" + std::to_string(dim.value) : "")
                       : std::to_string(dim.value);
    }
    text += "]";
  }
  return text;
}

TEST(Store, Tensors) {
  EXPECT_EQ(text(storeOf(StoreKind::Dense).data()),
            "k:f8e4m3fn[instances,tokens,4,64] v:bf16[instances,tokens,4,32] "
            "k_scales:f32[4]");
  EXPECT_EQ(text(storeOf(StoreKind::Paged, 16, false, 0).data()),
            "k_pages:f8e4m3fn[pages,16,heads,64] v_pages:bf16[pages,16,heads,32] k_scales:f32[heads]");
  EXPECT_EQ(text(storeOf(StoreKind::Packed).tables()),
            "lengths:i32[instances] pos0:i32[instances] rows:i32[instances,2] start:i32[instances+1]");
  EXPECT_EQ(text(storeOf(StoreKind::Paged, 16, true).tables()),
            "lengths:i32[instances,4] pos0:i32[instances] rows:i32[instances,2] "
            "block_table:i32[instances,4,max_pages]");
  EXPECT_EQ(storeOf(StoreKind::Dense).tokenBytes(), 64 + 2 * 32);
}

// The map from tokens to slots, against its definition.
TEST(Store, Addresses) {
  StoreNumbers numbers{.table = {}, .tokens = 100, .maxPages = 7, .heads = 4, .head = 3};
  EXPECT_EQ(storeOf(StoreKind::Dense).slotOf(numbers, 2, 17), 217);
  const std::vector<int32_t> start = {0, 5, 40};
  numbers.table = start;
  EXPECT_EQ(storeOf(StoreKind::Packed).slotOf(numbers, 1, 17), 22);
  std::vector<int32_t> pages(3 * 4 * 7);
  for (size_t i = 0; i < pages.size(); ++i)
    pages[i] = static_cast<int32_t>(1000 - 3 * i);
  numbers.table = pages;
  for (int64_t page : {1, 8, 16}) {
    const int64_t token = page + page / 2; // in the second page
    EXPECT_EQ(storeOf(StoreKind::Paged, page).slotOf(numbers, 2, token), pages[2 * 7 + 1] * page + page / 2);
    EXPECT_EQ(storeOf(StoreKind::Paged, page, true).slotOf(numbers, 2, token),
              pages[(2 * 4 + 3) * 7 + 1] * page + page / 2);
    EXPECT_EQ(storeOf(StoreKind::Paged, page).slotOf(numbers, 2, token, true), pages[2 * 7 + 1] * page);
  }
  EXPECT_EQ(storeOf(StoreKind::Dense).lineOf(numbers, 10), 43);
  EXPECT_EQ(storeOf(StoreKind::Dense, 0, false, 0).lineOf(numbers, 10), 43);
}

TEST(Store, Boxes) {
  EXPECT_EQ(storeOf(StoreKind::Dense).boxLines(160), 160);
  EXPECT_EQ(storeOf(StoreKind::Paged, 16).boxLines(160), 16);
  EXPECT_EQ(storeOf(StoreKind::Paged, 64).boxLines(96), 32);
  EXPECT_EQ(storeOf(StoreKind::Paged, 4).boxLines(96), 0);             // swizzles repeat after eight lines
  EXPECT_EQ(storeOf(StoreKind::Paged, 16, false, 0).boxLines(160), 0); // strides nobody knows yet
  EXPECT_EQ(storeOf(StoreKind::Paged, 8).slots(3, 100, 7), 56);
  EXPECT_EQ(storeOf(StoreKind::Dense).slots(3, 100, 7), 300);
  EXPECT_EQ(storeOf(StoreKind::Packed).slots(3, 100, 7), 100);
}

TEST(Store, Pages) {
  const Store paged = storeOf(StoreKind::Paged, 16), single = storeOf(StoreKind::Paged, 1),
              dense = storeOf(StoreKind::Dense);
  EXPECT_EQ(paged.text() + " " + single.text() + " " + dense.text(), "paged<16> paged<1> dense");
  for (int64_t tokens : {0, 1, 15, 16, 17, 160}) {
    EXPECT_EQ(paged.entriesOf(tokens), (tokens + 15) / 16);
    EXPECT_EQ(single.entriesOf(tokens), tokens);
    EXPECT_EQ(dense.entriesOf(tokens), 0);
  }
  EXPECT_EQ(paged.entryOf(31), 1);
  EXPECT_EQ(paged.tokensOf(3), 48);
  EXPECT_TRUE(single.hasSingleTokens() && !paged.hasSingleTokens() && !dense.hasSingleTokens());
  // Boxes of 16 lines are whole pages; a tile of 24 tokens has boxes of 8; nothing of pages of 4 comes in
  // boxes.
  EXPECT_TRUE(!paged.tearsPages(160) && paged.tearsPages(24) && !storeOf(StoreKind::Paged, 4).tearsPages(96));
  EXPECT_TRUE(storeOf(StoreKind::Paged, 64).tearsPages(96) && !dense.tearsPages(96));
  EXPECT_EQ(paged.boxAlignment(8), 8);
  EXPECT_EQ(dense.boxAlignment(96), 1);
  for (int64_t page : {1, 2, 64, 256})
    EXPECT_TRUE(Store::isPageSize(page)) << page;
  for (int64_t page : {-8, 0, 3, 24, 512})
    EXPECT_FALSE(Store::isPageSize(page)) << page;
}

TEST(Format, OfElements) {
  EXPECT_TRUE(Format::of(DType::F16)->isPlain());
  EXPECT_EQ(Format::of(DType::F8E4M3FN)->scales, Format::Scales::Head);
  EXPECT_EQ(Format::of(DType::F8E4M3FN)->codesPerChunk(), 16);
  EXPECT_FALSE(Format::of(DType::F32) || Format::of(DType::I8) || Format::of(DType::F8E5M2));
  EXPECT_EQ(Format::names(), "f16, bf16 or f8e4m3fn");
}

// Quantized and decoded again, a number is off by at most half a step of its exponent, or of the smallest.
TEST(Format, QuantizedRows) {
  Random random(1, "rows");
  std::vector<float> row(512), back(512);
  for (size_t i = 0; i < row.size(); i += 2) {
    double a, b;
    random.normalPair(a, b);
    row[i] = static_cast<float>(a), row[i + 1] = static_cast<float>(b);
  }
  row[7] = 0, row[9] = 5;
  const Format format = *Format::of(DType::F8E4M3FN);
  const float scale = format.scaleFor(5);
  EXPECT_FLOAT_EQ(scale, 5.0F / 448);
  std::vector<uint8_t> codes(row.size());
  quantizeRow(format, row, scale, codes.data());
  RowDecoder(format).decode(codes.data(), scale, back);
  for (size_t i = 0; i < row.size(); ++i)
    EXPECT_LE(std::abs(row[i] - back[i]), std::max(std::abs(row[i]) / 16, scale * 0x1p-10F) * 1.0001F)
        << row[i];
  EXPECT_EQ(back[7], 0);
  EXPECT_EQ(codes[9], 0x7e);
  row[0] = 1e9F; // more than the scale allows for
  quantizeRow(format, row, scale, codes.data());
  EXPECT_EQ(codes[0], 0x7e);
  EXPECT_EQ(format.scaleFor(0), 1);
}

TEST(Format, PlainRowsAreTheNumbers) {
  const std::vector<float> row = {1, -0.5F, 3e4F, 0};
  std::vector<float> back(row.size());
  for (DType dtype : {DType::F16, DType::BF16}) {
    const Format format = *Format::of(dtype);
    std::vector<uint8_t> codes(row.size() * 2);
    quantizeRow(format, row, format.scaleFor(3e4), codes.data());
    RowDecoder(format).decode(codes.data(), 2, back); // there is no scale
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(back[i], row[i], std::abs(row[i]) / 256);
  }
}

} // namespace

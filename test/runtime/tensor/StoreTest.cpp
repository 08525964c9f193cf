//===- StoreTest.cpp - Where the tokens of a KV operand lie ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/support/Random.h"

#include <gtest/gtest.h>

#include <limits>

using namespace attn::rt;

namespace {

Store storeOf(StoreKind kind, int64_t page = 0, bool ragged = false, int64_t heads = 4) {
  const Format codes = Format::floats(DType::F8E4M3FN, Format::Scales::Head);
  return {kind, page, ragged, heads, {'k', 64, codes}, {'v', 32, Format::plain(DType::BF16)}};
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

TEST(Store, ValuesThatAreAPartOfKeys) {
  const Format plain = Format::plain(DType::BF16);
  const Store store{StoreKind::Paged, 64, false, 1, {'k', 576, plain}, {'k', 512, plain}};
  EXPECT_TRUE(store.isLatent());
  EXPECT_FALSE(storeOf(StoreKind::Paged, 16).isLatent());
  EXPECT_EQ(text(store.data()), "k_pages:bf16[pages,64,1,576]");
  EXPECT_EQ(store.codesName(store.values), "k_pages");
  EXPECT_EQ(store.tokenBytes(), 2 * 576);
}

TEST(Store, UnifiedPages) {
  Store store = storeOf(StoreKind::Unified, 16, true);
  store.keys.format = Format::integers(4, 32), store.values.format = Format::integers(8, 32);
  EXPECT_EQ(text(store.data()), "k_pages:u8[pages,16,32] v_pages:u8[pages,16,32] "
                                "k_meta:f16[pages,16,2,2] v_meta:f16[pages,16,1,2]");
  EXPECT_EQ(text(store.tables()), "lengths:i32[instances,4] pos0:i32[instances] rows:i32[instances,2] "
                                  "block_table:i32[instances,4,max_pages]");
  const Store::PageParts parts = store.pageParts();
  EXPECT_EQ(parts.keys, 0);
  EXPECT_EQ(parts.values, 16 * 32);
  EXPECT_EQ(parts.keyMeta, 2 * 16 * 32);
  EXPECT_EQ(parts.valueMeta, 2 * 16 * 32 + 16 * 8);
  EXPECT_EQ(parts.bytes, 16 * store.tokenBytes());
  EXPECT_EQ(store.boxLines(64), 0);
  // Lists of heads are rows of the table, and pages belong to no head.
  const std::vector<int32_t> table = {9, 9, 9, 9, 9, 9, 4, 7};
  const StoreNumbers numbers{.table = table, .maxPages = 2, .heads = 4, .head = 3};
  EXPECT_EQ(store.slotOf(numbers, 0, 21), 7 * 16 + 5);
  EXPECT_EQ(store.lineSlotOf(numbers, 0, 21), 7 * 16 + 5);
  EXPECT_EQ(store.lineOf(numbers, 117), 117);
  // Parts of short pages begin at multiples of 16 bytes.
  store.page = 1;
  EXPECT_EQ(store.pageParts().keyMeta, 64);
  EXPECT_EQ(store.pageParts().valueMeta, 80);
  EXPECT_EQ(store.pageParts().bytes, 96);
}

TEST(Store, Metadata) {
  Store store = storeOf(StoreKind::Paged, 16);
  store.keys.format = Format::integers(4, 32), store.values.format = Format::integers(8, 32);
  EXPECT_EQ(text(store.data()), "k_pages:u8[pages,4,16,32] v_pages:u8[pages,4,16,32] "
                                "k_meta:f16[pages,4,16,2,2] v_meta:f16[pages,4,16,1,2]");
  EXPECT_EQ(store.tokenBytes(), (32 + 8) + (32 + 4));
  store.keys.format = Format::floats(DType::F8E5M2, Format::Scales::Token);
  store.values.format = Format::floats(DType::F8E5M2, Format::Scales::Tensor);
  EXPECT_EQ(text(store.data()), "k_pages:f8e5m2[pages,4,16,64] v_pages:f8e5m2[pages,4,16,32] "
                                "k_scales:f32[pages,4,16] v_scales:f32[1]");
  EXPECT_EQ(store.tokenBytes(), (64 + 4) + 32);
  store.keys.format = Format::blocksOf(DType::U8, 16, Format::Blocks::E4M3);
  EXPECT_EQ(text(store.data()), "k_pages:u8[pages,4,16,32] v_pages:f8e5m2[pages,4,16,32] "
                                "k_scales:f8e4m3fn[pages,4,16,4] v_scales:f32[1] k_tensor_scale:f32[1]");
  store.keys.format = Format::floats(DType::F8E5M2, Format::Scales::Token);
  store.kind = StoreKind::Dense, store.page = 0;
  EXPECT_EQ(text(store.data()), "k:f8e5m2[instances,tokens,4,64] v:f8e5m2[instances,tokens,4,32] "
                                "k_scales:f32[instances,tokens,4] v_scales:f32[1]");
}

// Checked by definition: [pages, heads, page] if paged, [tokens, heads] otherwise, for quantized values and
// metadata alike.
TEST(Store, AddressesOfLines) {
  StoreNumbers numbers{.table = {}, .tokens = 100, .maxPages = 7, .heads = 4, .head = 3};
  Store store = storeOf(StoreKind::Paged, 16);
  store.keys.format = Format::integers(4, 32);
  EXPECT_EQ(store.lineOf(numbers, 37), (2 * 4 + 3) * 16 + 5);
  store.keys.format = Format::floats(DType::F8E4M3FN, Format::Scales::Tensor);
  EXPECT_EQ(Store::sharedOf(numbers, store.keys), 0);
  store.keys.format = Format::floats(DType::F8E4M3FN, Format::Scales::Head);
  EXPECT_EQ(Store::sharedOf(numbers, store.keys), 3);
  store = storeOf(StoreKind::Packed);
  store.keys.format = Format::integers(2, 64);
  EXPECT_EQ(store.lineOf(numbers, 37), 37 * 4 + 3);
}

// Checks the map from tokens to slots against its definition.
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
  // If heads come first, the line of head h is h * headPitch lines after its slot of lines.
  for (int64_t page : {1, 8, 16}) {
    const int64_t token = page + page / 2;
    for (bool ragged : {false, true}) {
      Store store = storeOf(StoreKind::Paged, page, ragged);
      EXPECT_EQ(store.lineSlotOf(numbers, 2, token), store.slotOf(numbers, 2, token));
      store.values.format = Format::integers(4, 32);
      EXPECT_EQ(store.lineOf(numbers, store.slotOf(numbers, 2, token)),
                page == 1 ? store.lineSlotOf(numbers, 2, token) * 4 + 3
                          : store.lineSlotOf(numbers, 2, token) + 3 * store.headPitch());
    }
  }
  EXPECT_EQ(storeOf(StoreKind::Dense).lineOf(numbers, 10), 43);
  EXPECT_EQ(storeOf(StoreKind::Dense, 0, false, 0).lineOf(numbers, 10), 43);
}

TEST(Store, Boxes) {
  EXPECT_EQ(storeOf(StoreKind::Dense).boxLines(160), 160);
  EXPECT_EQ(storeOf(StoreKind::Paged, 16).boxLines(160), 16);
  EXPECT_EQ(storeOf(StoreKind::Paged, 64).boxLines(96), 32);
  EXPECT_EQ(storeOf(StoreKind::Paged, 4).boxLines(96), 0); // swizzles repeat after eight lines
  EXPECT_EQ(storeOf(StoreKind::Paged, 16, false, 0).boxLines(160), 16);
  Store codes = storeOf(StoreKind::Paged, 16, false, 0);
  codes.keys.format = Format::integers(8, codes.keys.dim);
  EXPECT_EQ(codes.boxLines(160), 0); // the shape gives the strides of heads, which only the launch knows
  codes.heads = 4;
  EXPECT_EQ(codes.boxLines(160), 0); // a head's lines are no slots
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
  // Boxes of 16 lines are whole pages; a tile of 24 tokens has boxes of 8; pages of 4 cannot be copied in
  // boxes.
  EXPECT_TRUE(!paged.tearsPages(160) && paged.tearsPages(24) && !storeOf(StoreKind::Paged, 4).tearsPages(96));
  EXPECT_TRUE(storeOf(StoreKind::Paged, 64).tearsPages(96) && !dense.tearsPages(96));
  EXPECT_EQ(paged.boxAlignment(8), 8);
  EXPECT_EQ(dense.boxAlignment(96), 1);
}

TEST(Store, PageSizes) {
  for (int64_t page : {1, 2, 3, 7, 8, 16, 48, 64, 256, 528, 784, 1056, 2048})
    EXPECT_TRUE(Store::isPageSize(page)) << page;
  for (int64_t page : {-8, 0, 9, 12, 24, 1000, 2056, 2064, 4096})
    EXPECT_FALSE(Store::isPageSize(page)) << page;
  for (auto [page, nearest] : {std::pair(-8, "1"),
                               {0, "1"},
                               {9, "8 or 16"},
                               {15, "8 or 16"},
                               {24, "16 or 32"},
                               {1000, "992 or 1008"},
                               {2040, "2032 or 2048"},
                               {2049, "2048"}})
    EXPECT_EQ(Store::nearestPageSizes(page), nearest) << page;
}

// Pages whose tokens are no power of two: planners divide, and kernels count slots of unified pages in steps
// of a power of two.
TEST(Store, PagesThatAreNoPowerOfTwo) {
  for (int64_t page : {3, 48, 528, 784, 1056, 2000}) {
    const Store paged = storeOf(StoreKind::Paged, page);
    for (int64_t tokens : {int64_t{0}, int64_t{1}, page - 1, page, page + 1, 5 * page, int64_t{1} << 20}) {
      EXPECT_EQ(paged.entriesOf(tokens), (tokens + page - 1) / page) << page << " " << tokens;
      EXPECT_EQ(paged.entriesOf(static_cast<int32_t>(tokens)), (tokens + page - 1) / page);
      EXPECT_EQ(paged.entryOf(tokens), tokens / page);
    }
    EXPECT_EQ(paged.entriesOf(std::numeric_limits<int32_t>::max()), ((int64_t{1} << 31) + page - 2) / page);
    EXPECT_FALSE(paged.hasRoundPages());
    EXPECT_EQ(paged.gatheredSlots(), page == 3 ? 4 : page == 48 ? 64 : page < 1024 ? 1024 : 2048);
  }
  // Boxes are the longest part of a tile that divides a page.
  EXPECT_EQ(storeOf(StoreKind::Paged, 528).boxLines(96), 48);
  EXPECT_EQ(storeOf(StoreKind::Paged, 784).boxLines(160), 16);
  EXPECT_EQ(storeOf(StoreKind::Paged, 80).boxLines(160), 80);
  EXPECT_EQ(storeOf(StoreKind::Paged, 3).boxLines(96), 0);
  EXPECT_TRUE(storeOf(StoreKind::Paged, 784).tearsPages(160) &&
              !storeOf(StoreKind::Paged, 80).tearsPages(160));
  EXPECT_TRUE(storeOf(StoreKind::Paged, 64).hasRoundPages());
  EXPECT_EQ(storeOf(StoreKind::Unified, 64).gatheredSlots(), 64);
}

} // namespace

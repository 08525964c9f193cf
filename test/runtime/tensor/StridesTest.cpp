//===- StridesTest.cpp - Tensors that lie otherwise than densely ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Strides.h"

#include "attn_rt/support/Random.h"

#include <gtest/gtest.h>

#include <set>

using namespace attn::rt;

namespace {

std::string refusal(std::vector<int64_t> shape, std::vector<int64_t> strides) {
  Result<StridedShape> checked = checkStrides("q", {DType::BF16, std::move(shape), std::move(strides)});
  return checked ? "" : checked.error().message;
}

TEST(Strides, DenseOnesAreProductsOfTheShape) {
  EXPECT_EQ(StridedShape::dense(DType::BF16, {3, 4, 64}).strides, (std::vector<int64_t>{512, 128, 2}));
  EXPECT_EQ(StridedShape::dense(DType::BF16, {0, 4, 64}).strides, (std::vector<int64_t>{512, 128, 2}));
  EXPECT_EQ(StridedShape::dense(DType::BF16, {3, 4, 64}).span(), 1536);
  EXPECT_EQ(StridedShape::dense(DType::BF16, {3, 0, 64}).span(), 0);
  EXPECT_EQ((StridedShape{DType::U8, {3, 5}, {int64_t{1} << 62, 1}}).span(), std::nullopt);
}

TEST(Strides, WhatKernelsCannotTakeIsRefused) {
  EXPECT_EQ(refusal({3, 4, 64}, {512, 128, 2}), "");
  EXPECT_EQ(refusal({3, 4, 64}, {128, 384, 2}), "");
  EXPECT_EQ(refusal({3, 4, 64}, {1536, 144, 2}), "");
  EXPECT_EQ(refusal({3, 4, 64}, {512, 128}), "q: expected a stride for each of 3 dimensions, got 2");
  EXPECT_EQ(refusal({3, 4, 64}, {512, 2, 8}),
            "q: expected contiguous features, got strides [512, 2, 8] in bytes for bf16 [3, 4, 64]; "
            "nearest legal: its contiguous copy");
  EXPECT_EQ(
      refusal({3, 4, 64}, {520, 128, 2}),
      "q: expected strides that are multiples of 16 bytes, above 0 and below 2^31, got strides [520, 128, "
      "2] in bytes for bf16 [3, 4, 64]; nearest legal: 528 for dimension 0");
  for (int64_t stride : {int64_t{0}, int64_t{-512}, int64_t{1} << 31})
    EXPECT_NE(refusal({3, 4, 64}, {stride, 128, 2}).find("above 0 and below 2^31"), std::string::npos);
  EXPECT_EQ(
      refusal({3, 4, 64}, {496, 128, 2}),
      "q: expected elements that do not overlap, got strides [496, 128, 2] in bytes for bf16 [3, 4, 64]; "
      "nearest legal: at least 512 for dimension 0");
}

TEST(Strides, AxesOfOneIndexMeanNothing) {
  Result<StridedShape> checked = checkStrides("q", {DType::BF16, {1, 4, 64}, {-7, 128, 2}});
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked->strides, (std::vector<int64_t>{512, 128, 2}));
  EXPECT_EQ(refusal({0, 4, 64}, {1, 1, 1}), "");
}

/// Accepted strides never address a byte twice, checked by brute force.
TEST(Strides, AcceptedElementsDoNotOverlap) {
  Random random(5, "strides");
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    StridedShape tensor{DType::BF16, {}, {}};
    for (int axis = 0; axis < 3; ++axis) {
      tensor.shape.push_back(1 + random.below(4));
      tensor.strides.push_back(16 * (1 + random.below(12)));
    }
    tensor.shape.push_back(8);
    tensor.strides.push_back(2);
    Result<StridedShape> checked = checkStrides("kv.k", tensor);
    if (!checked)
      continue;
    ++accepted;
    std::set<int64_t> starts;
    int64_t last = 0;
    for (int64_t a = 0; a < tensor.shape[0]; ++a)
      for (int64_t b = 0; b < tensor.shape[1]; ++b)
        for (int64_t c = 0; c < tensor.shape[2]; ++c) {
          const int64_t at = a * checked->strides[0] + b * checked->strides[1] + c * checked->strides[2];
          EXPECT_TRUE(starts.insert(at).second);
          last = std::max(last, at + 16);
        }
    EXPECT_EQ(checked->span(), last);
  }
  EXPECT_GT(accepted, 200);
}

struct Pair {
  Store store;
  StridedShape keys, values;
  Result<SlotCounts> count() { return countSlots("kv", store, keys, values); }
};

Pair pool(std::vector<int64_t> k, std::vector<int64_t> v, int64_t pages = 5,
          StoreKind kind = StoreKind::Paged, int64_t page = 16) {
  const Format plain = Format::plain(DType::BF16);
  const Store store{kind, kind == StoreKind::Paged ? page : 0, false, 2, {'k', 64, plain}, {'v', 64, plain}};
  return {store,
          {DType::BF16, {pages, page, 2, 64}, std::move(k)},
          {DType::BF16, {pages, page, 2, 64}, std::move(v)}};
}

TEST(Strides, SlotsAreCountedInTokens) {
  SlotCounts dense = *pool({4096, 256, 128, 2}, {4096, 256, 128, 2}).count();
  EXPECT_EQ(dense.outer, 16);
  EXPECT_EQ(dense.all, 80);
  SlotCounts interleaved = *pool({8192, 256, 128, 2}, {8192, 256, 128, 2}).count();
  EXPECT_EQ(interleaved.outer, 32);
  EXPECT_EQ(interleaved.all, 4 * 32 + 16);                                      // ends with the last page
  SlotCounts heads = *pool({4096, 128, 2048, 2}, {8192, 256, 4096, 2}).count(); // v with a gap after features
  EXPECT_EQ(heads.outer, 32);
  EXPECT_EQ(pool({}, {}, 0).store.isStrided(), true);
}

TEST(Strides, KeysAndValuesShareSlots) {
  EXPECT_EQ(
      pool({4096, 256, 128, 2}, {8192, 256, 128, 2}).count().error().message,
      "kv.v_pages: expected pages 16 tokens apart, as of the keys, got strides [8192, 256, 128, 2] in bytes "
      "for bf16 [5, 16, 2, 64]; nearest legal: 4096 for dimension 0");
  EXPECT_EQ(
      pool({4112, 256, 128, 2}, {4096, 256, 128, 2}).count().error().message,
      "kv.k_pages: expected pages a whole number of tokens apart, got strides [4112, 256, 128, 2] in bytes "
      "for bf16 [5, 16, 2, 64]; nearest legal: 4096 for dimension 0");
  EXPECT_NE(pool({256, 1280, 128, 2}, {256, 1280, 128, 2}, 5, StoreKind::Dense)
                .count()
                .error()
                .message.find("kv.k: expected sequences a whole number of tokens apart"),
            std::string::npos);
}

TEST(Strides, OneTokenLeavesTheDistanceOfInstances) {
  Pair one = pool({4096, 16, 128, 2}, {8192, 16, 128, 2}, 5, StoreKind::Dense, 1);
  SlotCounts counts = *one.count();
  EXPECT_EQ(counts.outer, 1);
  EXPECT_EQ(counts.all, 5);
  EXPECT_EQ(one.keys.strides[1], 4096);
  EXPECT_EQ(one.values.strides[1], 8192);
}

TEST(Strides, SlotsBeyond32BitsAreRefused) {
  const int64_t apart = int64_t{1} << 30;
  Result<SlotCounts> counts =
      pool({apart, 16, 256, 2}, {apart, 16, 256, 2}, 100, StoreKind::Dense, 16).count();
  EXPECT_EQ(counts.error().message, "kv: expected sequences that lie within 2^31 tokens, got 100 of them "
                                    "67108864 tokens apart");
}

TEST(Strides, UnifiedPagesLieApart) {
  const auto part = [](int64_t apart, int64_t inner = 4) {
    return StridedShape{DType::F16, {5, 16, 1, 2}, {apart, inner, 4, 2}};
  };
  EXPECT_EQ(checkPages("kv.k_meta", part(640))->strides, (std::vector<int64_t>{640, 4, 4, 2}));
  EXPECT_EQ(checkPages("kv.k_meta", part(64))->strides[0], 64);
  EXPECT_EQ(checkPages("kv.k_meta", part(72)).error().message,
            "kv.k_meta: expected pages a multiple of 16 bytes apart, at least 64 and below 2^31, got strides "
            "[72, 4, "
            "4, 2] in bytes for f16 [5, 16, 1, 2]; nearest legal: 80 for dimension 0");
  EXPECT_NE(checkPages("kv.k_meta", part(32)).error().message.find("nearest legal: 64 for"),
            std::string::npos);
  EXPECT_NE(checkPages("kv.k_meta", part(640, 8)).error().message.find("expected dense pages"),
            std::string::npos);
  const Store store{.kind = StoreKind::Unified, .page = 16};
  EXPECT_EQ(*countPageBytes(store, {{"kv.k_pages", part(640)}, {"kv.k_meta", part(640)}}), 640);
  EXPECT_EQ(countPageBytes(store, {{"kv.k_pages", part(640)}, {"kv.k_meta", part(64)}}).error().message,
            "kv.k_meta: expected pages 640 bytes apart, as of kv.k_pages, got strides [64, 4, 4, 2] in bytes "
            "for f16 "
            "[5, 16, 1, 2]; nearest legal: 640 for dimension 0, a view into the same pages");
  // Kernels count slots of pages of 1056 tokens in steps of 2048.
  const Store hybrid{.kind = StoreKind::Unified, .page = 1056};
  const StridedShape many{DType::F16, {1 << 20, 1056, 1, 2}, {1 << 16, 4, 4, 2}};
  EXPECT_EQ(countPageBytes(hybrid, {{"kv.k_pages", many}}).error().message,
            "kv.k_pages: expected at most 1048575 pages of 1056 tokens, got 1048576");
  // A single page has no distance to the next.
  EXPECT_EQ(checkPages("kv.k_meta", {DType::F16, {1, 16, 1, 2}, {3, 4, 4, 2}})->strides[0], 64);
}

} // namespace

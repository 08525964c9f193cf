//===- GrowTest.cpp - A batch whose sequences all have grown --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Samples.h"

#include <gtest/gtest.h>

#include <limits>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

Tensor i32(std::vector<int32_t> values) {
  return Tensor::ofI32({static_cast<int64_t>(values.size())}, values);
}

/// Two sequences, of one row and of two, in a packed store with space for `apart` tokens of each.
Batch packedBatch(const Manifest &m, int32_t tokens, int32_t apart) {
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {3, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({0, 1, 3});
  tensors["q_pos"] = i32({tokens - 1, tokens + 3, tokens + 4});
  tensors["kv.k"] = Tensor(DType::BF16, {2 * apart, m.kvHeads, m.keyDim});
  tensors["kv.v"] = Tensor(DType::BF16, {2 * apart, m.kvHeads, m.valueDim});
  tensors["kv.start"] = i32({0, apart, 2 * apart});
  tensors["kv.lengths"] = i32({tokens, tokens + 5});
  EXPECT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  EXPECT_TRUE(batch) << batch.error().message;
  return *batch;
}

void expectSame(const Batch &a, const Batch &b) {
  EXPECT_EQ(a.qStart, b.qStart);
  EXPECT_EQ(a.qPos, b.qPos);
  EXPECT_EQ(a.operands[0].lengths, b.operands[0].lengths);
  EXPECT_EQ(a.operands[0].start, b.operands[0].start);
  EXPECT_EQ(a.operands[0].tokens, b.operands[0].tokens);
  EXPECT_EQ(a.operands[0].pos0, b.operands[0].pos0);
}

TEST(Grow, IsWhatTablesWouldSay) {
  const Manifest m = sampleManifest({.store = Argument::Store::Packed});
  Batch batch = packedBatch(m, 20, 25);
  for (const auto &[tokens, more, apart] : {std::tuple{21, 1, 26}, {21, 0, 40}, {30, 9, 35}}) {
    const Status grown = growBatch(m, batch, more, apart);
    ASSERT_TRUE(grown) << grown.error().message;
    expectSame(batch, packedBatch(m, tokens, apart));
    EXPECT_TRUE(checkBatch(m, batch));
  }
}

TEST(Grow, WhatDoesNotFitLeavesTheBatch) {
  const Manifest m = sampleManifest({.store = Argument::Store::Packed});
  const Batch before = packedBatch(m, 20, 25);
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  const struct {
    int32_t tokens;
    int64_t apart;
    const char *message;
  } cases[] = {
      {1, 25, "'kv.lengths'[1]: expected at most the 25 tokens that instances are apart, got 26"},
      {-1, 25, "'kv.lengths': expected that they grow, got -1 tokens more"},
      {1, -1, "'kv.start': expected 2 instances that are up to 536870911 tokens apart, got -1"},
      {1, most, "'kv.start': expected 2 instances that are up to 536870911 tokens apart, got 2147483647"},
      {most, 30, "'kv.lengths'[0]: expected at most the 30 tokens that instances are apart, got 2147483667"},
  };
  for (const auto &each : cases) {
    Batch batch = before;
    const Status grown = growBatch(m, batch, each.tokens, each.apart);
    ASSERT_FALSE(grown);
    EXPECT_NE(grown.error().message.find(each.message), std::string::npos) << grown.error().message;
    expectSame(batch, before);
  }
  Batch late = before;
  late.qPos[2] = most - 2;
  EXPECT_TRUE(growBatch(m, late, 2, 100));
  EXPECT_NE(growBatch(m, late, 1, 100).error().message.find("'q_pos'[2]: "), std::string::npos);
}

TEST(Grow, OthersSayItInTables) {
  const Manifest paged = sampleManifest();
  Batch batch;
  batch.operands.resize(1);
  EXPECT_NE(growBatch(paged, batch, 1, 100).error().message.find("expected a packed store"),
            std::string::npos);
  const Manifest two = sampleManifest({.store = Argument::Store::Packed, .operands = 2});
  EXPECT_NE(growBatch(two, batch, 1, 100).error().message.find("expected one operand, got 2"),
            std::string::npos);
}

} // namespace

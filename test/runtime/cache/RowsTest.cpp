//===- RowsTest.cpp - Lists of rows, and what they may not say ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Samples.h"
#include "attn_rt/cache/CacheRows.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

using Role = KernelInfo::Role;

std::string check(Role role, std::vector<int32_t> from, std::vector<int32_t> to, int64_t slots = 10) {
  RowChecker checker;
  checker.reserve(8);
  const Status status = checker.check(role, {from, to}, slots);
  return status ? "right" : status.error().message;
}

TEST(RowChecker, WhatIsRight) {
  EXPECT_EQ(check(Role::Append, {}, {}), "right");
  EXPECT_EQ(check(Role::Append, {}, {9, -1, 0, -7, 3}), "right");
  EXPECT_EQ(check(Role::Gather, {9, 9, -1, 0}, {}), "right");
  EXPECT_EQ(check(Role::Move, {0, 0, -1, 2}, {1, 3, -2, 9}), "right");
}

TEST(RowChecker, Slots) {
  EXPECT_EQ(check(Role::Append, {}, {0, 10}),
            "append: row 1 writes slot 10, but the cache has 10 slots, counted from 0");
  EXPECT_EQ(check(Role::Gather, {10}, {}),
            "gather: row 0 reads slot 10, but the cache has 10 slots, counted from 0");
  EXPECT_EQ(check(Role::Move, {1, 11}, {2, 3}),
            "move: row 1 reads slot 11, but the cache has 10 slots, counted from 0");
  EXPECT_EQ(check(Role::Append, {}, {0}, 0),
            "append: row 0 writes slot 0, but the cache has 0 slots, counted from 0");
}

TEST(RowChecker, TwoWrites) {
  EXPECT_EQ(check(Role::Append, {}, {5, 3, -1, -1, 5}), "append: rows 0 and 4 both write slot 5");
  EXPECT_EQ(check(Role::Move, {1, 2}, {3, 3}), "move: rows 0 and 1 both write slot 3");
}

TEST(RowChecker, ReadAndWritten) {
  const std::string why = ": rows are copied in any order, so no slot may be both";
  EXPECT_EQ(check(Role::Move, {1, 2}, {2, 3}), "move: row 1 reads slot 2, which row 0 writes" + why);
  EXPECT_EQ(check(Role::Move, {4}, {4}), "move: row 0 reads slot 4, which row 0 writes" + why);
  EXPECT_EQ(check(Role::Move, {0, 8, 9}, {1, 2, 8}), "move: row 1 reads slot 8, which row 2 writes" + why);
}

TEST(RowChecker, HalfSkipped) {
  const std::string why = ": expected both to be negative, or neither";
  EXPECT_EQ(check(Role::Move, {1, -1}, {2, 3}), "move: row 1 is to go from slot -1 to slot 3" + why);
  EXPECT_EQ(check(Role::Move, {1}, {-4}), "move: row 0 is to go from slot 1 to slot -4" + why);
}

TEST(RowChecker, Lists) {
  EXPECT_EQ(check(Role::Move, {1, 2}, {3}),
            "move: expected as many slots to read as to write, got 2 to read and 1 to write");
  EXPECT_EQ(check(Role::Append, {1}, {3}),
            "append: expected only slots to write, got 1 to read and 1 to write");
  EXPECT_EQ(check(Role::Gather, {}, {3}),
            "gather: expected only slots to read, got 0 to read and 1 to write");
}

TEST(MovementRows, AreThoseOfTheClass) {
  MovementRows rows;
  const Movement movement{{{1, {0, 0}, {3, 2}, 2}, {0, {0, 1}, {2, 0}, 3}, {0, {1, 3}, {0, 0}, 1}},
                          {{0, 1, {1, 2}, 2}, {1, 0, {0, 0}, 4}, {0, 3, {3, 0}, 1}},
                          5};
  ASSERT_TRUE(rows.assign(movement, 0, 4, 4));
  EXPECT_EQ(rows.copyFrom, (std::vector<int32_t>{1, 2, 3, 7}));
  EXPECT_EQ(rows.copyTo, (std::vector<int32_t>{8, 9, 10, 0}));
  EXPECT_EQ(rows.writeTo, (std::vector<int32_t>{-1, 6, 7, 12, -1}));
  ASSERT_TRUE(rows.assign(movement, 1, 4, 4));
  EXPECT_EQ(rows.copyTo, (std::vector<int32_t>{14, 15}));
  EXPECT_EQ(rows.writeTo, (std::vector<int32_t>{0, 1, 2, 3, -1}));
  ASSERT_TRUE(rows.assign({}, 0, 0, 4));
  EXPECT_TRUE(rows.writeTo.empty() && rows.copyFrom.empty());
}

TEST(MovementRows, Errors) {
  MovementRows rows;
  const auto message = [&](const Movement &movement) {
    const Status status = rows.assign(movement, 0, 4, 4);
    return status ? "right" : status.error().message;
  };
  EXPECT_EQ(message({{{0, {0, 0}, {4, 0}, 1}}, {}, 0}),
            "copy 0 of the movement writes slot 0 of page 4, but the pool has 4 pages, counted from 0");
  EXPECT_EQ(message({{{1, {9, 9}, {9, 9}, 9}, {0, {-1, 0}, {0, 0}, 1}}, {}, 0}),
            "copy 1 of the movement reads slot 0 of page -1, but the pool has 4 pages, counted from 0");
  EXPECT_EQ(
      message({{{0, {1, 2}, {0, 0}, 3}}, {}, 0}),
      "copy 0 of the movement reads 3 tokens from slot 2 of page 1 on, but they must lie within the page's 4 "
      "slots");
  EXPECT_EQ(message({{}, {{0, 0, {0, 3}, 2}}, 2}), "write 0 of the movement writes 2 tokens from slot 3 of "
                                                   "page 0 on, but they must lie within the page's 4 "
                                                   "slots");
  EXPECT_EQ(message({{{0, {1, 2}, {0, 0}, 0}}, {}, 0}).substr(0, 36), "copy 0 of the movement reads 0 token");
  EXPECT_EQ(message({{}, {{0, 3, {0, 0}, 2}}, 4}),
            "write 0 of the movement takes rows from 3 to 5, but it has 4");
  EXPECT_EQ(message({{}, {{0, 0, {0, 0}, 2}, {0, 1, {1, 0}, 1}}, 4}),
            "write 1 of the movement takes row 1, which goes to slot 1 already");
}

std::string read(Role role, const TensorMap &tensors, Argument::Store store = Argument::Store::Paged) {
  const Manifest manifest = cacheManifest(role, store);
  const Result<CacheTensors> read = readCacheTensors(manifest, tensors);
  if (!read)
    return read.error().message;
  return std::to_string(read->layers) + " layers, " + std::to_string(read->slots) + " slots, " +
         std::to_string(read->rows) + " rows, " + std::to_string(read->lists.from.size()) + " from, " +
         std::to_string(read->lists.to.size()) + " to";
}

Tensor tensor(std::vector<int64_t> shape, DType dtype = DType::BF16) { return {dtype, std::move(shape)}; }

TEST(CacheTensors, Sizes) {
  const TensorMap pages = {{"kv.k_pages", tensor({3, 5, 16, 2, 64})},
                           {"kv.v_pages", tensor({3, 5, 16, 2, 32})}};
  TensorMap append = pages;
  append["k"] = tensor({3, 7, 2, 64});
  append["v"] = tensor({3, 7, 2, 32});
  append["slots"] = tensor({7}, DType::I32);
  EXPECT_EQ(read(Role::Append, append), "3 layers, 80 slots, 7 rows, 0 from, 7 to");
  TensorMap move = pages;
  move["from"] = move["to"] = tensor({7}, DType::I32);
  EXPECT_EQ(read(Role::Move, move), "3 layers, 80 slots, 7 rows, 7 from, 7 to");
  const TensorMap packed = {
      {"kv.k", tensor({1, 9, 2, 64})}, {"kv.v", tensor({1, 9, 2, 32})}, {"slots", tensor({0}, DType::I32)}};
  EXPECT_EQ(read(Role::Gather, packed, Argument::Store::Packed), "1 layers, 9 slots, 0 rows, 0 from, 0 to");

  move["to"] = tensor({6}, DType::I32);
  EXPECT_EQ(read(Role::Move, move), "tensor 'to': expected shape [7], got [6]");
  append["k"] = tensor({3, 7, 64});
  EXPECT_EQ(read(Role::Append, append), "tensor 'k': expected shape [3, 7, 2, 64], got [3, 7, 64]");
  append["k"] = tensor({3, 7, 2, 64}, DType::F16);
  EXPECT_EQ(read(Role::Append, append), "tensor 'k': expected bf16, got f16");
  append.erase("k");
  EXPECT_EQ(read(Role::Append, append), "tensor 'k' is missing");
  TensorMap none = packed;
  none["kv.k"] = tensor({0, 9, 2, 64});
  none["kv.v"] = tensor({0, 9, 2, 32});
  EXPECT_EQ(read(Role::Gather, none, Argument::Store::Packed), "expected 1 to 1048576 layers, got 0");
}

} // namespace

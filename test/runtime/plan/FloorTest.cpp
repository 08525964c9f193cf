//===- FloorTest.cpp - Bytes that a problem must move ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

TEST(Floor, CountsWhatIsVisibleOnce) {
  const Manifest m = sampleManifest({.visibility = visibility(Visibility::Kind::Window, 0), .ends = {20}});
  Batch batch = simpleBatch({100, 30}, {1, 3});
  OperandBatch &kv = batch.operands[0];
  kv.maxPages = 7;
  kv.pages = 9;
  kv.blockTable = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0};
  const ProblemFloor floor = problemFloor(m, batch);
  EXPECT_EQ(floor.queryBytes, 4 * 8 * 64 * 2);
  EXPECT_EQ(floor.kvBytes, (20 + 22) * 2 * (64 + 64) * 2);
  EXPECT_EQ(floor.resultBytes, 4 * 8 * (64 * 2 + 4));
  EXPECT_EQ(floor.tableBytes, 4 * (3 + 2 + 4) + 4 * (2 + 2));
  EXPECT_EQ(floor.usefulFlops, 2.0 * (20 + 3 * 20) * 8 * 128);
  // A page of two instances is read once.
  kv.blockTable[7] = 5;
  EXPECT_LT(problemFloor(m, batch).kvBytes, floor.kvBytes);
}

TEST(Floor, CountsHeadsByClass) {
  const Manifest m = sampleManifest({.ends = {20, 30}, .headClasses = duo});
  Batch batch = simpleBatch({100}, {1});
  OperandBatch &kv = batch.operands[0];
  kv.maxPages = kv.pages = 7;
  kv.blockTable = {0, 1, 2, 3, 4, 5, 6};
  batch.classes = {1, 0};
  const ProblemFloor floor = problemFloor(m, batch);
  EXPECT_EQ(floor.kvBytes, (100 + 50) * (64 + 64) * 2);
  EXPECT_EQ(floor.tableBytes, 4 * (2 + 1 + 7) + 4);
  EXPECT_EQ(floor.usefulFlops, 2.0 * (100 + 50) * 4 * 128);
  batch.classes = {1, 1}; // pages 0, 1, 4, 5 and 6
  EXPECT_EQ(problemFloor(m, batch).kvBytes, 2 * 50 * (64 + 64) * 2);
  EXPECT_EQ(problemFloor(m, batch).tableBytes, 4 * (2 + 1 + 5) + 4);
}

} // namespace

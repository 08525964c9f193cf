//===- TokenTasksTest.cpp - Tests: Tokens for which something is added up --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "PlanChecks.h"
#include "attn_rt/batch/Visibility.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The sample's largest attend kernel in place of one that holds rows, and one that holds tokens.
Manifest backwardManifest(Visibility visibility, std::vector<int32_t> ends) {
  Manifest m = sampleManifest(
      {.store = Argument::Store::Dense, .visibility = std::move(visibility), .ends = std::move(ends)});
  KernelInfo rows = m.kernels[1], tokens = m.kernels[1];
  rows.role = tokens.role = KernelInfo::Role::Gradient;
  tokens.name = "decode_tokens";
  tokens.rows = 32;
  m.kernels.clear();
  m.launches.clear();
  m.addKernel(rows, {.grid = PlanArray::Starts});
  m.addKernel(tokens, {.grid = PlanArray::TokenTasks, .onlyIfFilled = true});
  m.results = {{"dq", m.dtype, {{"rows", 0}, {"", m.qHeads}, {"", m.keyDim}}}};
  return m;
}

Batch denseBatch(Rng &rng) {
  std::vector<int32_t> lengths, rows;
  for (size_t s = 1 + below(rng, 4); s > 0; --s) {
    lengths.push_back(static_cast<int32_t>(below(rng, 8) ? below(rng, 300) : 0));
    rows.push_back(static_cast<int32_t>(below(rng, 200)));
  }
  Batch batch = simpleBatch(lengths, rows);
  batch.operands[0].tokens = 300;
  for (int32_t &position : batch.qPos) // in any order
    position += static_cast<int32_t>(below(rng, 9));
  return batch;
}

/// Every token of every head is in one task; those that exist with all rows that see them.
void checkTasks(const Manifest &m, const Batch &batch, const Plan &plan) {
  const OperandBatch &operand = batch.operands[0];
  std::vector<int> held(operand.instances() * static_cast<size_t>(operand.tokens * m.kvHeads), 0);
  int32_t rowsBefore = INT32_MAX;
  for (const PlanTokenTask &task : plan.tokenTasks) {
    ASSERT_LE(task.kvEnd - task.kvBegin, 32);
    ASSERT_LE(task.rowEnd - task.rowBegin, rowsBefore);
    rowsBefore = task.rowEnd - task.rowBegin;
    const auto i = static_cast<size_t>(task.instance);
    if (task.rowBegin < task.rowEnd) {
      ASSERT_GE(task.rowBegin, operand.rowFirst[i]);
      ASSERT_LE(task.rowEnd, operand.rowLast[i]);
    }
    for (int32_t token = task.kvBegin; token < task.kvEnd; ++token) {
      ++held[(i * static_cast<size_t>(operand.tokens) + static_cast<size_t>(token)) *
                 static_cast<size_t>(m.kvHeads) +
             static_cast<size_t>(task.ordinal)];
      if (token >= operand.lengths[i]) {
        ASSERT_EQ(task.rowBegin, task.rowEnd);
        continue;
      }
      for (int32_t row = operand.rowFirst[i]; row < operand.rowLast[i]; ++row)
        if (isVisible(m.operands[0].visibility, plan.ends, batch.qPos[static_cast<size_t>(row)],
                      operand.pos0[i] + token)) {
          ASSERT_GE(row, task.rowBegin);
          ASSERT_LT(row, task.rowEnd);
        }
    }
  }
  for (int count : held)
    ASSERT_EQ(count, 1);
}

TEST(TokenTasks, EachTokenIsHeldOnceWithTheRowsThatSeeIt) {
  Rng rng(31);
  for (int round = 0; round < 200; ++round) {
    const Manifest m = backwardManifest(
        randomVisibility(rng), {static_cast<int32_t>(below(rng, 300)), static_cast<int32_t>(below(rng, 70))});
    const Batch batch = denseBatch(rng);
    Result<Plan> plan = makePlan(m, batch, {});
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_NO_FATAL_FAILURE(checkTasks(m, batch, *plan));
    EXPECT_EQ(plan->partialRows, 0);
    EXPECT_EQ(static_cast<int64_t>(plan->tokenTasks.size()), PlanLimits::of(m, batch).tokenTasks);
  }
}

TEST(TokenTasks, CausalRowsBeginAtTheDiagonal) {
  const Manifest m = backwardManifest(visibility(Visibility::Kind::Causal), {});
  Batch batch = simpleBatch({128}, {128});
  batch.operands[0].tokens = 128;
  Result<Plan> plan = makePlan(m, batch, {});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->tokenTasks.size(), 8U); // four tiles of two heads
  for (const PlanTokenTask &task : plan->tokenTasks) {
    EXPECT_EQ(task.rowBegin, task.kvBegin);
    EXPECT_EQ(task.rowEnd, 128);
  }
  EXPECT_EQ(plan->tokenTasks.front().kvBegin, 0);
}

TEST(TokenTasks, WindowsBoundRowsOnBothSides) {
  const Manifest m = backwardManifest(visibility(Visibility::Kind::Window, 0), {16});
  Batch batch = simpleBatch({128}, {128});
  batch.operands[0].tokens = 128;
  Result<Plan> plan = makePlan(m, batch, {});
  ASSERT_TRUE(plan);
  for (const PlanTokenTask &task : plan->tokenTasks) {
    EXPECT_EQ(task.rowBegin, task.kvBegin);
    EXPECT_EQ(task.rowEnd, std::min(task.kvEnd + 15, 128)); // the last token's window
  }
}

TEST(TokenTasks, FixedSplitsAreRefused) {
  const Manifest m = backwardManifest(visibility(Visibility::Kind::Causal), {});
  Batch batch = simpleBatch({128}, {128});
  batch.operands[0].tokens = 128;
  Result<Plan> plan = makePlan(m, batch, {.fixedSplit = 64});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("makes gradients, whose tasks are never cut"), std::string::npos);
}

/// As `backwardManifest`, where the last rows of each sequence count for what tokens are worth.
Manifest weighingManifest(int rows) {
  Manifest m = backwardManifest(visibility(Visibility::Kind::Causal), {});
  m.kernels[1].role = KernelInfo::Role::Significance;
  m.significanceRows = rows;
  return m;
}

TEST(TokenTasks, OfSignificanceHaveTheLastRows) {
  Batch batch = simpleBatch({128, 40}, {128, 3});
  batch.operands[0].tokens = 128;
  Result<Plan> plan = makePlan(weighingManifest(10), batch, {});
  ASSERT_TRUE(plan) << plan.error().message;
  for (const PlanTokenTask &task : plan->tokenTasks) {
    if (task.rowBegin == task.rowEnd)
      continue;
    EXPECT_GE(task.rowBegin, task.instance == 0 ? 118 : 128);
    EXPECT_EQ(task.rowEnd, task.instance == 0 ? 128 : 131);
  }
}

TEST(TokenTasks, LastRowsOfSeveralSequencesAreRefused) {
  Batch batch = simpleBatch({128, 128}, {5, 5});
  batch.operands[0].tokens = 128;
  batch.operands[0].rowLast[0] = 10;
  Result<Plan> plan = makePlan(weighingManifest(4), batch, {});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("instance 0 of 'kv' is seen by rows 0 to 9 of several"),
            std::string::npos);
  EXPECT_TRUE(makePlan(weighingManifest(0), batch, {}));
}

} // namespace

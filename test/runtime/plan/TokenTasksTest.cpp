//===- TokenTasksTest.cpp - Tests: Tokens for which something is added up --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "PlanChecks.h"
#include "attn_rt/batch/Visibility.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The sample with its largest attend kernel replaced by a kernel with stationary rows and one with
/// stationary keys.
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

/// The manifest of backwardManifest, whose tasks also add to rows.
Manifest fusedManifest(Visibility visibility, std::vector<int32_t> ends) {
  Manifest m = backwardManifest(std::move(visibility), std::move(ends));
  m.results.push_back({"dq.sums", DType::F32, m.results.front().dims});
  return m;
}

/// Checks that every token of every head is in one task, and that tokens that exist have all rows that see
/// them.
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

// Between packed instances and after the last one there may be spare slots: their tokens are in tasks without
// rows.
TEST(TokenTasks, AllOfAPackedTensorIsHeld) {
  Rng rng(33);
  for (int round = 0; round < 100; ++round) {
    Manifest m = backwardManifest(visibility(Visibility::Kind::Causal), {});
    m.arguments[1].store = Argument::Store::Packed;
    Batch batch = denseBatch(rng);
    OperandBatch &operand = batch.operands[0];
    operand.start = {0};
    for (int32_t length : operand.lengths)
      operand.start.push_back(operand.start.back() + length + static_cast<int32_t>(below(rng, 50)));
    operand.tokens = operand.start.back() + static_cast<int64_t>(below(rng, 100));
    Result<Plan> plan = makePlan(m, batch, {});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(static_cast<int64_t>(plan->tokenTasks.size()), PlanLimits::of(m, batch).tokenTasks);
    EXPECT_TRUE(plan->unwritten.empty());
    std::vector<int> held(static_cast<size_t>(operand.tokens), 0);
    for (const PlanTokenTask &task : plan->tokenTasks)
      for (int32_t token = task.kvBegin; token < task.kvEnd; ++token)
        ++held[static_cast<size_t>(operand.start[static_cast<size_t>(task.instance)] + token)];
    for (int count : held)
      ASSERT_EQ(count, m.kvHeads);
  }
}

TEST(TokenTasks, WithoutInstancesNobodyWrites) {
  Manifest m = backwardManifest(visibility(Visibility::Kind::Causal), {});
  m.arguments[1].store = Argument::Store::Packed;
  Batch batch = simpleBatch({}, {});
  batch.operands[0].start = {0};
  batch.operands[0].tokens = 9;
  Result<Plan> plan = makePlan(m, batch, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->unwritten, (std::vector<int32_t>{0}));
}

TEST(TokenTasks, ThatAddToRowsAreTheSame) {
  Rng rng(32);
  for (int round = 0; round < 200; ++round) {
    const Visibility sees = randomVisibility(rng);
    const std::vector<int32_t> ends{static_cast<int32_t>(below(rng, 300)),
                                    static_cast<int32_t>(below(rng, 70))};
    const Manifest m = fusedManifest(sees, ends);
    const Batch batch = denseBatch(rng);
    Result<Plan> plan = makePlan(m, batch, {.multiprocessors = 1 + static_cast<int>(below(rng, 20))});
    ASSERT_TRUE(plan) << plan.error().message;
    for (PlanTokenTask &task : plan->tokenTasks)
      if (task.rowEnd < task.rowBegin)
        std::swap(task.rowBegin, task.rowEnd);
    std::stable_sort(plan->tokenTasks.begin(), plan->tokenTasks.end(), [](const auto &a, const auto &b) {
      return a.rowEnd - a.rowBegin > b.rowEnd - b.rowBegin;
    });
    ASSERT_NO_FATAL_FAILURE(checkTasks(m, batch, *plan));
  }
}

/// Simulates tasks on blocks, each of which takes the next task when it is free, at one row per step. `apart`
/// is the longest time between the first and the last task that adds to a row of a head, `ended` the time
/// when all have ended.
struct Lockstep {
  int apart = 0, ended = 0;
  Lockstep(const std::vector<PlanTokenTask> &tasks, int blocks) {
    std::vector<int> freeAt(static_cast<size_t>(blocks), 0);
    std::map<std::pair<int32_t, int32_t>, std::vector<int>> times; // by head and row
    for (const PlanTokenTask &task : tasks) {
      auto block = std::min_element(freeAt.begin(), freeAt.end());
      const int step = task.rowBegin < task.rowEnd ? 1 : -1;
      for (int32_t row = task.rowBegin; row != task.rowEnd; row += step, ++*block)
        times[{task.ordinal, step > 0 ? row : row - 1}].push_back(*block);
    }
    ended = *std::max_element(freeAt.begin(), freeAt.end());
    for (auto &[at, all] : times) {
      std::sort(all.begin(), all.end());
      apart = std::max(apart, all.back() - all.front());
    }
  }
};

TEST(TokenTasks, ThatAddToRowsMeetAtThem) {
  const Manifest m = fusedManifest(visibility(Visibility::Kind::Causal), {});
  Batch batch = simpleBatch({1024}, {1024});
  batch.operands[0].tokens = 1024;
  ASSERT_EQ(m.kvHeads, 2);
  Result<Plan> plan = makePlan(m, batch, {.multiprocessors = 32 / m.kernels[1].blocksPerSM});
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->tokenTasks.size(), 64U); // on 32 blocks: one head, then the other
  const Lockstep lockstep(plan->tokenTasks, 32);
  EXPECT_LE(lockstep.apart, 32);        // a tile's rows
  EXPECT_EQ(lockstep.ended, 1024 + 32); // no block waits: the mean is half of 2 * 1056
  // If both phases walked from the last row, tasks of the second would not meet.
  for (PlanTokenTask &task : plan->tokenTasks)
    if (task.rowBegin < task.rowEnd)
      std::swap(task.rowBegin, task.rowEnd);
  EXPECT_GT(Lockstep(plan->tokenTasks, 32).apart, 500);
}

TEST(TokenTasks, ThatAddToRowsAreBalancedInSeveralSequences) {
  const Manifest m = fusedManifest(visibility(Visibility::Kind::Causal), {});
  const std::vector<int32_t> lengths{1000, 300, 620, 64, 300, 1000, 128, 480};
  Batch batch = simpleBatch(lengths, lengths);
  batch.operands[0].tokens = 1000;
  const int blocks = 4 * m.kernels[1].blocksPerSM;
  Result<Plan> plan = makePlan(m, batch, {.multiprocessors = 4});
  ASSERT_TRUE(plan);
  int64_t total = 0;
  for (const PlanTokenTask &task : plan->tokenTasks)
    total += std::abs(task.rowEnd - task.rowBegin);
  EXPECT_LE(Lockstep(plan->tokenTasks, blocks).ended, 1.05 * static_cast<double>(total) / blocks);
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
  EXPECT_NE(plan.error().message.find("makes gradients, whose tasks of rows are never cut"),
            std::string::npos);
}

/// The manifest of backwardManifest for significance; the last `rows` rows of each sequence count.
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

//===- RaggedTest.cpp - Heads with lengths and pages of their own -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"
#include "attn_rt/cache/CacheBatch.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

Tensor i32(std::vector<int64_t> shape, std::vector<int32_t> values) {
  return Tensor::ofI32(std::move(shape), values);
}

/// One row per sequence; `lengths` by sequence and head.
Batch raggedBatch(int32_t heads, const std::vector<int32_t> &lengths) {
  const size_t sequences = lengths.size() / static_cast<size_t>(heads);
  Batch batch = simpleBatch(std::vector<int32_t>(sequences, 0), std::vector<int32_t>(sequences, 1));
  OperandBatch &kv = batch.operands[0];
  kv.lengths = lengths;
  kv.heads = heads;
  kv.tokens = *std::max_element(lengths.begin(), lengths.end());
  for (size_t s = 0; s < sequences; ++s)
    batch.qPos[s] = kv.longest(s) - 1;
  return batch;
}

std::vector<int32_t> draw(Rng &rng, size_t count, size_t least, size_t most) {
  std::vector<int32_t> lengths(count);
  for (int32_t &length : lengths)
    length = static_cast<int32_t>(least + below(rng, most - least + 1));
  return lengths;
}

TEST(Ragged, EveryHeadReadsItsOwnTokens) {
  Rng rng(3);
  const Manifest m =
      sampleManifest({.qHeads = 32, .kvHeads = 8, .store = Argument::Store::Dense, .ragged = true});
  const std::vector<int32_t> lengths = draw(rng, 8 * 5, 0, 3000);
  const Batch batch = raggedBatch(8, lengths);
  ASSERT_TRUE(checkBatch(m, batch));
  const Plan plan = *makePlan(m, batch);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_EQ(plan.stats.kvBytes, tokens * (64 + 64) * 2);
  const ProblemFloor floor = problemFloor(m, batch);
  EXPECT_EQ(floor.kvBytes, plan.stats.kvBytes);
  EXPECT_EQ(floor.usefulFlops, 2.0 * static_cast<double>(tokens) * 4 * 128);
  EXPECT_EQ(floor.tableBytes, 4 * (6 + 5 * 8 + 5)); // q_start, lengths, q_pos
}

// Ragged heads of equal length cost the same as heads that share it.
TEST(Ragged, EqualHeadsCostWhatSharedOnesDo) {
  const SampleOptions options{.qHeads = 32, .kvHeads = 8};
  SampleOptions ragged = options;
  ragged.ragged = true;
  const std::vector<int32_t> lengths = {5000, 17, 1200, 300};
  std::vector<int32_t> byHead;
  for (int32_t length : lengths)
    byHead.insert(byHead.end(), 8, length);
  Batch shared = simpleBatch(lengths, {1, 1, 1, 1}), own = raggedBatch(8, byHead);
  EXPECT_EQ(own.qPos, shared.qPos);
  const PlanStats a = makePlan(sampleManifest(options), shared)->stats;
  const PlanStats b = makePlan(sampleManifest(ragged), own)->stats;
  EXPECT_EQ(a.tiles, b.tiles);
  EXPECT_EQ(a.kvBytes, b.kvBytes);
  EXPECT_EQ(a.tasks - a.cuts, b.tasks - b.cuts);
  EXPECT_NEAR(a.estimatedSeconds, b.estimatedSeconds, 0.01 * a.estimatedSeconds);
}

// Short heads beside long ones: blocks are as busy as with equal heads.
TEST(Ragged, BalancesHeadsOfDifferentLengths) {
  Rng rng(4);
  const Manifest m =
      sampleManifest({.qHeads = 32, .kvHeads = 8, .store = Argument::Store::Dense, .ragged = true});
  for (int32_t sequences : {1, 4, 16, 64}) {
    std::vector<int32_t> lengths = draw(rng, static_cast<size_t>(8 * sequences), 16, 500);
    for (size_t i = 0; i < lengths.size(); i += 5)
      lengths[i] *= 40;
    PlanOptions options;
    options.blocks = 132;
    const Plan plan = *makePlan(m, raggedBatch(8, lengths), options);
    EXPECT_LE(plan.stats.maxCost - plan.stats.meanCost, plan.stats.tileCost + plan.stats.fixedCost);
    if (plan.stats.meanCost >= 20 * plan.stats.tileCost)
      EXPECT_LE(plan.stats.balance, 1.05) << sequences;
  }
}

// A prompt is read once for the heads that keep much of it, but not for heads that keep almost none of it.
TEST(Ragged, SharingIsDecidedForEachHead) {
  const Manifest m = sampleManifest({.store = Argument::Store::Dense, .operands = 2, .ragged = true});
  Rng rng(1);
  Batch batch = treeBatch(rng, 4000);
  for (OperandBatch &operand : batch.operands) {
    std::vector<int32_t> lengths;
    for (int32_t length : operand.lengths)
      lengths.insert(lengths.end(), {length, std::min(length, 3)});
    operand.lengths = lengths;
    operand.heads = 2;
  }
  PlanOptions options;
  options.blocks = 1; // nothing is cut
  const Plan plan = *makePlan(m, batch, options);
  int ordinals[2] = {0, 0};
  for (const PlanTask &task : plan.tasks) {
    EXPECT_EQ(task.partial >= 0, task.ordinal == 0);
    ++ordinals[task.ordinal];
  }
  EXPECT_GT(ordinals[0], ordinals[1]);
}

TEST(Ragged, FloorCountsTheTableOfEachHead) {
  const Manifest m = sampleManifest({.ragged = true});
  Batch batch = raggedBatch(2, {100, 17});
  OperandBatch &kv = batch.operands[0];
  kv.maxPages = kv.pages = 7;
  kv.blockTable = {0, 1, 2, 3, 4, 5, 6, 6, 5, 9, 9, 9, 9, 9}; // each head has other pages 5 and 6
  ASSERT_TRUE(checkBatch(m, batch));
  const ProblemFloor floor = problemFloor(m, batch);
  EXPECT_EQ(floor.kvBytes, 117 * (64 + 64) * 2);
  EXPECT_EQ(floor.tableBytes, 4 * (2 + 2 + 7 + 2 + 1)); // q_start, lengths, both rows, q_pos
  const Plan plan = *makePlan(m, batch);
  EXPECT_EQ(plan.stats.kvBytes, floor.kvBytes);
  EXPECT_NE(explainPlan(m, batch, plan).find("ragged    kv: heads of 17 to 100 tokens, 58 % of"),
            std::string::npos);
}

// A store of one class has lists for the heads of the class, in their order, and may have none at all.
TEST(Ragged, StoresOfAClass) {
  Rng rng(9);
  const Manifest m = sampleManifest({.qHeads = 16,
                                     .kvHeads = 4,
                                     .store = Argument::Store::Dense,
                                     .ends = {64, 256},
                                     .operands = 2,
                                     .headClasses = duo,
                                     .apart = true,
                                     .ragged = true});
  for (const std::vector<int32_t> &classes :
       {std::vector<int32_t>{0, 1, 0, 1}, {1, 1, 1, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}}) {
    Batch batch = simpleBatch({900, 30, 2000}, {1, 2, 1});
    batch.operands[0].tokens = 2000;
    batch.operands.push_back(batch.operands[0]);
    batch.classes = classes;
    makeRagged(m, batch, rng);
    const Status checked = checkBatch(m, batch);
    ASSERT_TRUE(checked) << checked.error().message;
    PlanOptions options;
    options.blocks = 12;
    checkPlan(m, batch, options);
    EXPECT_EQ(makePlan(m, batch, options)->stats.kvBytes, problemFloor(m, batch).kvBytes);
  }
}

/// Two sequences of one row, two heads.
TensorMap raggedTensors(const Manifest &m) {
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {2, m.qHeads, m.keyDim});
  tensors["kv.k_pages"] = Tensor(DType::BF16, {7, 16, m.kvHeads, m.keyDim});
  tensors["kv.v_pages"] = Tensor(DType::BF16, {7, 16, m.kvHeads, m.valueDim});
  tensors["kv.block_table"] = i32({2, 2, 3}, {6, 0, 3, 1, 2, 9, 4, 9, 9, 9, 9, 9});
  tensors["kv.lengths"] = i32({2, 2}, {40, 18, 5, 0});
  return tensors;
}

TEST(Ragged, TensorsBecomeBatchesAndBack) {
  const Manifest m = sampleManifest({.ragged = true});
  TensorMap tensors = raggedTensors(m);
  ASSERT_TRUE(addDefaults(m, tensors));
  const Result<Batch> batch = batchFromTensors(m, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  const OperandBatch &kv = batch->operands[0];
  EXPECT_EQ(kv.instances(), 2u);
  EXPECT_EQ(kv.heads, 2);
  EXPECT_EQ(kv.maxPages, 3);
  EXPECT_EQ(kv.length(0, 1), 18);
  EXPECT_EQ(batch->qPos, (std::vector<int32_t>{39, 4})); // rows end with the longest head
  const TensorMap tables = tablesOf(m, *batch);
  for (const char *name : {"kv.lengths", "kv.block_table", "kv.pos0", "kv.rows"}) {
    EXPECT_EQ(tables.at(name).shape, tensors.at(name).shape) << name;
    EXPECT_EQ(tables.at(name).bytes, tensors.at(name).bytes) << name;
  }
}

TEST(Ragged, Errors) {
  const Manifest m = sampleManifest({.ragged = true});
  using Change = std::function<void(TensorMap &)>;
  struct Case {
    Change change;
    const char *message;
  } cases[] = {
      {[](TensorMap &t) { t["kv.lengths"] = i32({2}, {40, 5}); },
       "tensor 'kv.lengths': expected shape [kv.instances, 2], got [2]"},
      {[](TensorMap &t) { t["kv.lengths"] = i32({2, 3}, {1, 1, 1, 1, 1, 1}); },
       "tensor 'kv.lengths': expected shape [kv.instances = 2, 2], got [2, 3]"},
      {[](TensorMap &t) { t["kv.block_table"] = i32({2, 3}, {1, 1, 1, 1, 1, 1}); },
       "tensor 'kv.block_table': expected shape [kv.instances = 2, 2, kv.max_pages], got [2, 3]"},
      {[](TensorMap &t) { t["kv.lengths"].as<int32_t>()[1] = 49; },
       "'kv.lengths'[0][1]: expected between 0 and 48 (3 pages of 16 in 'kv.block_table'), got 49"},
      {[](TensorMap &t) { t["kv.lengths"].as<int32_t>()[2] = -1; },
       "'kv.lengths'[1][0]: expected between 0 and 48"},
      {[](TensorMap &t) { t["kv.lengths"].as<int32_t>()[1] = 33; },
       "'kv.block_table'[0][1][2]: expected a page between 0 and 6, got 9"},
      {[](TensorMap &t) { t["kv.block_table"].as<int32_t>()[6] = -2; },
       "'kv.block_table'[1][0][0]: expected a page between 0 and 6, got -2"},
  };
  for (const Case &c : cases) {
    TensorMap tensors = raggedTensors(m);
    ASSERT_TRUE(addDefaults(m, tensors));
    ASSERT_TRUE(batchFromTensors(m, tensors));
    c.change(tensors);
    const Result<Batch> batch = batchFromTensors(m, tensors);
    const std::string message = batch ? "no error" : batch.error().message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected " << c.message;
  }
  // Lengths of heads for an operand that has none of its own, as in a Cache's batches, and the reverse.
  EXPECT_EQ(checkBatch(sampleManifest(), raggedBatch(2, {4, 5})).error().message,
            "'kv.lengths': expected 1 for each instance, as all KV heads have the same, got 2");
  EXPECT_EQ(checkBatch(m, simpleBatch({4}, {1})).error().message,
            "'kv.lengths': expected 2 for each instance, one per KV head, got 1");
  Batch odd = raggedBatch(2, {4, 5});
  odd.operands[0].lengths.push_back(6);
  EXPECT_EQ(checkBatch(m, odd).error().message,
            "'kv.lengths': expected a multiple of 2 elements, one per KV head, got 3");
}

// A shape is a claim: a file may claim any number of instances without heads, and nothing is allocated for
// them.
TEST(Ragged, InstancesOfNoHeadsAreNotBelieved) {
  const Manifest m =
      sampleManifest({.ends = {64, 256}, .operands = 1, .headClasses = duo, .apart = true, .ragged = true});
  TensorMap tensors = raggedTensors(m);
  tensors["classes"] = i32({2}, {1, 1});
  tensors["q_start"] = i32({3}, {0, 1, 2});
  tensors["kv.lengths"] = Tensor(DType::I32, {int64_t{1} << 40, 0});
  (void)addDefaults(m, tensors);
  EXPECT_FALSE(tensors.count("kv.pos0"));
  EXPECT_FALSE(batchFromTensors(m, tensors));
}

} // namespace

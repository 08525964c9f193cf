//===- BatchTest.cpp - Tests: One problem's sizes, checked ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"
#include "Fuzz.h"
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

#include <functional>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

Tensor i32(std::vector<int64_t> shape, std::vector<int32_t> values) {
  return Tensor::ofI32(std::move(shape), values);
}

// Three sequences with 2, 0 and 3 rows over 40, 5 and 0 tokens.
TensorMap pagedTensors(const Manifest &m) {
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {5, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({4}, {0, 2, 2, 5});
  tensors["kv.k_pages"] = Tensor(DType::BF16, {7, 16, m.kvHeads, m.keyDim});
  tensors["kv.v_pages"] = Tensor(DType::BF16, {7, 16, m.kvHeads, m.valueDim});
  tensors["kv.block_table"] = i32({3, 3}, {6, 0, 3, 1, -1, 99, 99, 99, 99});
  tensors["kv.lengths"] = i32({3}, {40, 5, 0});
  return tensors;
}

TEST(Batch, DefaultsAreFilledIn) {
  const Manifest m = sampleManifest();
  TensorMap tensors = pagedTensors(m);
  ASSERT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->rows, 5);
  EXPECT_EQ(batch->sequences(), 3u);
  EXPECT_EQ(batch->qPos, (std::vector<int32_t>{38, 39, -3, -2, -1}));
  EXPECT_EQ(batch->operands[0].rowFirst, (std::vector<int32_t>{0, 2, 2}));
  EXPECT_EQ(batch->operands[0].rowLast, (std::vector<int32_t>{2, 2, 5}));
  EXPECT_EQ(batch->operands[0].pos0, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(batch->operands[0].pages, 7);
  EXPECT_EQ(batch->operands[0].maxPages, 3);
}

TEST(Batch, ContentsOfTablesMayLieElsewhere) {
  const Manifest m = sampleManifest();
  TensorMap tensors = pagedTensors(m);
  ASSERT_TRUE(addDefaults(m, tensors));
  const Tensor table = tensors["kv.block_table"];
  tensors["kv.block_table"].bytes.clear();
  EXPECT_EQ(batchFromTensors(m, tensors).error().message,
            "tensor 'kv.block_table': expected its contents, got a description");
  const Result<Batch> batch = batchFromTensors(m, tensors, {{"kv.block_table", table.as<int32_t>()}});
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->operands[0].blockTable, (std::vector<int32_t>{6, 0, 3, 1, -1, 99, 99, 99, 99}));
  const std::vector<int32_t> wrong{6, 7, 3, 1, -1, 99, 99, 99, 99};
  EXPECT_EQ(batchFromTensors(m, tensors, {{"kv.block_table", wrong}}).error().message,
            "'kv.block_table'[0][1]: expected a page between 0 and 6, got 7");
}

TEST(Batch, AllThatIsMissingIsNamedAtOnce) {
  const Manifest m = sampleManifest({.operands = 2, .sinkLogits = true});
  TensorMap tensors = pagedTensors(m);
  const auto error = [&](TensorMap of) {
    const Status added = addDefaults(m, of);
    const Result<Batch> batch = added ? batchFromTensors(m, of) : Result<Batch>(added.error());
    return batch ? "" : batch.error().message;
  };
  EXPECT_EQ(error(tensors),
            "tensors 'kv.pos0', 'kv1.k_pages', 'kv1.v_pages', 'kv1.block_table', 'kv1.lengths', "
            "'kv1.pos0', 'sink_logits' are missing");
  EXPECT_EQ(error({}), "tensors 'q', 'kv.k_pages', 'kv.v_pages', 'kv.block_table', 'kv.lengths', 'kv.pos0', "
                       "'kv1.k_pages', 'kv1.v_pages', 'kv1.block_table', 'kv1.lengths', 'kv1.pos0', "
                       "'sink_logits' are missing");
  TensorMap shared = tensors;
  for (const char *name : {".k_pages", ".v_pages", ".block_table", ".lengths"})
    shared[std::string("kv1") + name] = tensors[std::string("kv") + name];
  shared["kv.lengths"] = i32({2}, {40, 5});
  shared["sink_logits"] = Tensor(DType::F32, {m.qHeads});
  EXPECT_EQ(error(shared),
            "tensor 'kv.rows' is missing; it may be left out only with one instance per sequence: "
            "'kv.lengths' has 2 instances, 'q_start' 3 sequences; missing besides: "
            "'kv.pos0', 'kv1.pos0'");
  shared.erase("q_start");
  EXPECT_EQ(error(shared),
            "tensor 'q_start' is missing; it may be left out only with one row per instance: 'q' has 5 rows, "
            "'kv.lengths' 2 instances; missing besides: 'kv.pos0', 'kv1.pos0'");
}

TEST(Batch, DenseTokensAreValidUnlessLengthsSayOtherwise) {
  const Manifest m = sampleManifest({.store = Argument::Store::Dense});
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {4, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({3}, {0, 1, 4});
  tensors["kv.k"] = Tensor(DType::BF16, {2, 30, m.kvHeads, m.keyDim});
  tensors["kv.v"] = Tensor(DType::BF16, {2, 30, m.kvHeads, m.valueDim});
  ASSERT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->operands[0].lengths, (std::vector<int32_t>{30, 30}));
  EXPECT_EQ(batch->qPos, (std::vector<int32_t>{29, 27, 28, 29}));
  // A file may claim any number of instances without tokens.
  tensors = {{"q", tensors["q"]}, {"q_start", tensors["q_start"]}};
  for (const char *name : {"kv.k", "kv.v"})
    tensors[name] = Tensor(DType::BF16, {int64_t{1} << 40, 0, m.kvHeads, m.keyDim});
  EXPECT_TRUE(addDefaults(m, tensors));
  EXPECT_FALSE(batchFromTensors(m, tensors));
}

TEST(Batch, OneRowPerSequenceNeedsNoStarts) {
  const Manifest m = sampleManifest();
  TensorMap tensors = pagedTensors(m);
  tensors.erase("q_start");
  tensors["q"] = Tensor(m.dtype, {3, m.qHeads, m.keyDim});
  ASSERT_TRUE(addDefaults(m, tensors));
  EXPECT_EQ(batchFromTensors(m, tensors)->qPos, (std::vector<int32_t>{39, 4, -1}));
}

// A context of 100 tokens that all share, then private responses at positions 100 and up.
TEST(Batch, PositionsFollowThePrivateInstance) {
  const Manifest m = sampleManifest({.store = Argument::Store::Dense, .operands = 2});
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {4, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({3}, {0, 1, 4});
  for (const char *name : {"kv", "kv1"}) {
    const int64_t instances = name[2] ? 2 : 1;
    tensors[std::string(name) + ".k"] = Tensor(DType::BF16, {instances, 100, m.kvHeads, m.keyDim});
    tensors[std::string(name) + ".v"] = Tensor(DType::BF16, {instances, 100, m.kvHeads, m.valueDim});
  }
  tensors["kv.lengths"] = i32({1}, {100});
  tensors["kv.rows"] = i32({1, 2}, {0, 4});
  tensors["kv1.lengths"] = i32({2}, {7, 20});
  tensors["kv1.pos0"] = i32({2}, {100, 100});
  // With two operands a position has no default.
  ASSERT_TRUE(addDefaults(m, tensors));
  EXPECT_EQ(batchFromTensors(m, tensors).error().message, "tensor 'kv.pos0' is missing");
  tensors.erase("q_pos");
  tensors["kv.pos0"] = i32({1}, {0});
  ASSERT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->qPos, (std::vector<int32_t>{106, 117, 118, 119}));
}

// Without a private instance, a sequence ends with the last of the instances that all its rows see; with
// several private ones, with the last of these. Instances come in any order.
TEST(Batch, PositionsFollowWhatAllRowsSee) {
  const Manifest m = sampleManifest({.store = Argument::Store::Dense});
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {4, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({4}, {0, 1, 2, 4});
  tensors["kv.k"] = Tensor(DType::BF16, {5, 100, m.kvHeads, m.keyDim});
  tensors["kv.v"] = Tensor(DType::BF16, {5, 100, m.kvHeads, m.valueDim});
  tensors["kv.lengths"] = i32({5}, {90, 20, 30, 50, 40});
  tensors["kv.pos0"] = i32({5}, {0, 0, 1, 0, 0});
  tensors["kv.rows"] = i32({5, 2}, {1, 4, 2, 4, 2, 4, 0, 4, 0, 2});
  tensors.erase("q_pos");
  ASSERT_TRUE(addDefaults(m, tensors));
  const auto positions = tensors.at("q_pos").as<int32_t>();
  // Row 0 sees the instances that end at 50 and 40, row 1 also the one that ends at 90; rows 2 and 3 have two
  // private instances.
  EXPECT_EQ(std::vector<int32_t>(positions.begin(), positions.end()), (std::vector<int32_t>{49, 89, 29, 30}));
}

TEST(Batch, PackedLengthsFollowFromStarts) {
  const Manifest m = sampleManifest({.store = Argument::Store::Packed});
  TensorMap tensors;
  tensors["q"] = Tensor(m.dtype, {2, m.qHeads, m.keyDim});
  tensors["q_start"] = i32({3}, {0, 1, 2});
  tensors["kv.k"] = Tensor(DType::BF16, {30, m.kvHeads, m.keyDim});
  tensors["kv.v"] = Tensor(DType::BF16, {30, m.kvHeads, m.valueDim});
  tensors["kv.start"] = i32({3}, {0, 10, 30});
  ASSERT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ(batch->operands[0].lengths, (std::vector<int32_t>{10, 20}));
  tensors["kv.start"] = i32({3}, {0, 10, 31});
  EXPECT_NE(batchFromTensors(m, tensors)
                .error()
                .message.find("'kv.start'[2]: expected at most 30 (the tokens of 'kv.k'), got 31"),
            std::string::npos);
  tensors["kv.start"] = i32({3}, {0, 10, 30});
  tensors["kv.lengths"] = i32({2}, {10, 21});
  EXPECT_NE(batchFromTensors(m, tensors)
                .error()
                .message.find("'kv.lengths'[1]: expected between 0 and 20 ('kv.start'), got 21"),
            std::string::npos);
}

// A store of one class has as many heads as the class.
TEST(Batch, HeadsOfAClass) {
  const Manifest m = sampleManifest({.ends = {64, 256}, .operands = 2, .headClasses = duo, .apart = true});
  const auto with = [&](std::vector<int32_t> classes, int64_t retrieval, int64_t streaming) {
    TensorMap tensors = pagedTensors(m);
    tensors["classes"] = i32({2}, std::move(classes));
    for (const char *name : {"kv", "kv1"}) {
      const std::string prefix = name;
      for (const char *part : {".k_pages", ".v_pages"})
        tensors[prefix + part] = Tensor(DType::BF16, {7, 16, name[2] ? streaming : retrieval, 64});
      tensors[prefix + ".pos0"] = i32({3}, {0, 0, 0});
      for (const char *part : {".lengths", ".block_table"})
        tensors[prefix + part] = tensors[std::string("kv") + part];
    }
    const Status added = addDefaults(m, tensors);
    const Result<Batch> batch = added ? batchFromTensors(m, tensors) : Result<Batch>(added.error());
    return batch ? "" : batch.error().message;
  };
  EXPECT_EQ(with({0, 1}, 1, 1), "");
  EXPECT_EQ(with({1, 1}, 0, 2), "");
  EXPECT_EQ(with({1, 1}, 1, 2),
            "tensor 'kv.k_pages': expected shape [kv.pages = 7, 16, retrieval heads = 0, 64], got "
            "[7, 16, 1, 64]");
  EXPECT_EQ(with({1, 0}, 1, 2),
            "tensor 'kv1.k_pages': expected shape [kv1.pages = 7, 16, streaming heads = 1, 64], got "
            "[7, 16, 2, 64]");
  EXPECT_EQ(with({1, 2}, 1, 1),
            "'classes'[1]: expected a class between 0 and 1 (retrieval, streaming), got 2");
}

// The slots of such a store are counted per head.
TEST(Batch, SlotsOfAClass) {
  const Manifest m =
      sampleManifest({.qHeads = 8, .kvHeads = 8, .ends = {64, 256}, .headClasses = duo, .apart = true});
  Batch batch = simpleBatch({16}, {1});
  batch.classes = {0, 0, 0, 0, 0, 0, 0, 1};
  batch.operands[0].maxPages = 1;
  batch.operands[0].blockTable = {3};
  batch.operands[0].pages = (1 << 24) / 7 * 8;
  EXPECT_TRUE(checkBatch(m, batch));
  batch.operands[0].pages *= 2;
  EXPECT_EQ(checkBatch(m, batch).error().message,
            "'kv': expected at most 306783378 tokens of 7 heads in its store, got 613566720");
}

TEST(Batch, Errors) {
  const Manifest m = sampleManifest({.sinkLogits = true});
  using Change = std::function<void(TensorMap &)>;
  struct Case {
    Change change;
    const char *message;
  } cases[] = {
      {[](TensorMap &t) { t.erase("q"); }, "tensor 'q' is missing"},
      {[](TensorMap &t) { t.erase("kv.v_pages"); }, "tensor 'kv.v_pages' is missing"},
      {[](TensorMap &t) { t.erase("sink_logits"); }, "tensor 'sink_logits' is missing"},
      {[](TensorMap &t) { t["q"] = Tensor(DType::F16, {5, 8, 64}); },
       "tensor 'q': expected dtype bf16, got f16"},
      {[](TensorMap &t) { t["q"] = Tensor(DType::BF16, {5, 8, 65}); },
       "tensor 'q': expected shape [rows = 5, 8, 64], got [5, 8, 65]"},
      {[](TensorMap &t) { t["kv.lengths"] = Tensor(DType::I64, {3}); },
       "tensor 'kv.lengths': expected dtype i32, got i64"},
      {[](TensorMap &t) { t["kv.pos0"] = i32({2}, {0, 0}); },
       "tensor 'kv.pos0': expected shape [kv.instances = 3], got [2]"},
      {[](TensorMap &t) { t["kv.v_pages"] = Tensor(DType::BF16, {6, 16, 2, 64}); },
       "tensor 'kv.v_pages': expected shape [kv.pages = 7, 16, 2, 64], got [6, 16, 2, 64]"},
      {[](TensorMap &t) { t["q"].bytes.pop_back(); }, "tensor 'q': its bytes do not fill the shape"},
      {[](TensorMap &t) { t["kv.lengths"] = i32({3}, {49, 5, 0}); },
       "'kv.lengths'[0]: expected between 0 and 48 (3 pages of 16 in 'kv.block_table'), got 49"},
      {[](TensorMap &t) { t["kv.lengths"] = i32({3}, {40, -5, 0}); },
       "'kv.lengths'[1]: expected between 0 and 48"},
      {[](TensorMap &t) { t["kv.block_table"].as<int32_t>()[2] = 7; },
       "'kv.block_table'[0][2]: expected a page between 0 and 6, got 7"},
      {[](TensorMap &t) { t["kv.block_table"].as<int32_t>()[3] = -1; },
       "'kv.block_table'[1][0]: expected a page between 0 and 6, got -1"},
      {[](TensorMap &t) { t["kv.pos0"] = i32({3}, {0, 2147483643, 0}); },
       "'kv.pos0'[1]: expected between 0 and 2147483642, got 2147483643"},
      {[](TensorMap &t) { t["kv.pos0"] = i32({3}, {-1, 0, 0}); }, "'kv.pos0'[0]: expected between 0 and"},
      {[](TensorMap &t) { t["q_start"] = i32({4}, {0, 3, 2, 5}); },
       "'q_start'[2]: expected at least 3 (the element before), got 2"},
      {[](TensorMap &t) { t["q_start"] = i32({4}, {1, 2, 2, 5}); }, "'q_start'[0]: expected 0, got 1"},
      {[](TensorMap &t) { t["q_start"] = i32({4}, {0, 2, 2, 6}); },
       "'q_start'[3]: expected 5 (the rows of 'q'), got 6"},
      {[](TensorMap &t) { t["q_start"] = i32({0}, {}); },
       "'q_start': expected at least one element, got none"},
      {[](TensorMap &t) { t["kv.rows"] = i32({3, 2}, {0, 2, 2, 2, 2, 6}); },
       "'kv.rows'[2]: expected 0 <= first <= last <= 5 (the rows of 'q'), got [2, 6)"},
      {[](TensorMap &t) { t["kv.rows"] = i32({3, 2}, {-1, 2, 2, 2, 2, 5}); }, "got [-1, 2)"},
      {[](TensorMap &t) { t["kv.rows"] = i32({3, 2}, {0, 2, 2, 1, 2, 5}); }, "got [2, 1)"},
      {[](TensorMap &t) { t["kv.rows"] = i32({3, 2}, {0, 3, 2, 2, 2, 5}); },
       "'kv.rows': [0] = [0, 3) and [2] = [2, 5) overlap; expected apart or one inside the other"},
  };
  for (const Case &c : cases) {
    TensorMap tensors = pagedTensors(m);
    tensors["sink_logits"] = Tensor(DType::F32, {8});
    ASSERT_TRUE(addDefaults(m, tensors));
    ASSERT_TRUE(batchFromTensors(m, tensors));
    c.change(tensors);
    Result<Batch> batch = batchFromTensors(m, tensors);
    const std::string message = batch ? "no error" : batch.error().message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected " << c.message;
  }
}

TEST(Batch, SizesHaveALeast) {
  const Manifest m = sampleManifest(
      {.visibility = both(visibility(Visibility::Kind::TwoSided, 0), visibility(Visibility::Kind::Chunk, 2)),
       .ends = {4, 5, 8}});
  TensorMap tensors = pagedTensors(m);
  ASSERT_TRUE(addDefaults(m, tensors));
  Result<Batch> batch = batchFromTensors(m, tensors);
  batch->ends = {0, 0, 1};
  EXPECT_TRUE(checkBatch(m, *batch));
  batch->ends = {0, 0, 0};
  EXPECT_EQ(checkBatch(m, *batch).error().message, "'ends'[2]: expected at least 1, got 0");
  batch->ends = {0, -1, 1};
  EXPECT_EQ(checkBatch(m, *batch).error().message, "'ends'[1]: expected at least 0, got -1");
}

TEST(Batch, ClassesOfHeads) {
  const Manifest m = sampleManifest({.headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                                                     {"streaming", visibility(Visibility::Kind::Causal)}}});
  TensorMap tensors = pagedTensors(m);
  ASSERT_TRUE(addDefaults(m, tensors));
  EXPECT_EQ(batchFromTensors(m, tensors).error().message, "tensor 'classes' is missing");
  const auto with = [&](Tensor classes) {
    tensors["classes"] = std::move(classes);
    return batchFromTensors(m, tensors);
  };
  EXPECT_EQ(with(i32({2}, {1, 0}))->classes, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(with(i32({2}, {1, 2})).error().message,
            "'classes'[1]: expected a class between 0 and 1 (retrieval, streaming), got 2");
  EXPECT_EQ(with(i32({2}, {-1, 0})).error().message,
            "'classes'[0]: expected a class between 0 and 1 (retrieval, streaming), got -1");
  EXPECT_EQ(with(i32({3}, {0, 0, 0})).error().message, "tensor 'classes': expected shape [2], got [3]");
  EXPECT_EQ(with(Tensor(DType::F32, {2})).error().message, "tensor 'classes': expected dtype i32, got f32");
  Batch batch = *with(i32({2}, {1, 0}));
  batch.classes = {1};
  EXPECT_EQ(checkBatch(m, batch).error().message, "'classes': expected 2 elements, one per KV head, got 1");
}

TEST(Batch, NestedRangesAreATree) {
  const Manifest m = sampleManifest();
  TensorMap tensors = pagedTensors(m);
  tensors["kv.rows"] = i32({3, 2}, {0, 5, 0, 2, 2, 5});
  ASSERT_TRUE(addDefaults(m, tensors));
  EXPECT_TRUE(batchFromTensors(m, tensors));
}

TEST(Batch, DefaultsThatCannotBeGuessed) {
  const Manifest m = sampleManifest();
  TensorMap tensors = pagedTensors(m);
  tensors.erase("q_start");
  EXPECT_NE(addDefaults(m, tensors).error().message.find("'q' has 5 rows, 'kv.lengths' 3 instances"),
            std::string::npos);
  tensors["q_start"] = i32({3}, {0, 2, 5});
  EXPECT_NE(
      addDefaults(m, tensors).error().message.find("'kv.lengths' has 3 instances, 'q_start' 2 sequences"),
      std::string::npos);
}

// Batches made by hand obey the same rules as batches from tensors.
TEST(Batch, HandMadeDescriptions) {
  const Manifest m = sampleManifest({.store = Argument::Store::Dense});
  Batch batch{2, {0, 1, 2}, {9, 9}, {{{10, 10}, {0, 0}, {0, 1}, {1, 2}, 0, 0, {}, 16, {}}}, {}, 0, {}};
  EXPECT_TRUE(checkBatch(m, batch));
  Batch broken = batch;
  broken.qPos.pop_back();
  EXPECT_NE(checkBatch(m, broken).error().message.find("'q_pos': expected 2 elements"), std::string::npos);
  broken = batch;
  broken.operands[0].pos0.pop_back();
  EXPECT_NE(checkBatch(m, broken).error().message.find("'kv.pos0': expected 2 elements"), std::string::npos);
  broken = batch;
  broken.operands[0].rowLast.pop_back();
  EXPECT_NE(checkBatch(m, broken).error().message.find("'kv.rows': expected 2 elements"), std::string::npos);
  broken = batch;
  broken.operands.clear();
  EXPECT_NE(checkBatch(m, broken).error().message.find("expected 1 operands, got 0"), std::string::npos);
  broken = batch;
  broken.rows = 1 << 30;
  EXPECT_NE(checkBatch(m, broken).error().message.find("'q': expected at most 268435455 rows of 8 heads"),
            std::string::npos);
  broken = batch;
  broken.operands[0].lengths[1] = 17;
  EXPECT_NE(
      checkBatch(m, broken).error().message.find("expected between 0 and 16 (the tokens of 'kv.k'), got 17"),
      std::string::npos);
}

// Any mutation of the tensors gives an error, or a batch that can be planned.
TEST(Batch, MutatedTensors) {
  Rng rng(43);
  const Manifest m = sampleManifest();
  int passed = 0;
  for (int i = 0; i < rounds(3000); ++i) {
    TensorMap tensors = pagedTensors(m);
    if (i % 2)
      ASSERT_TRUE(addDefaults(m, tensors));
    for (size_t changes = 1 + below(rng, 2); changes > 0; --changes) {
      auto victim = std::next(tensors.begin(), static_cast<int64_t>(below(rng, tensors.size())));
      Tensor &tensor = victim->second;
      const int32_t values[] = {-1, 0, 1, 2, 3, 6, 7, 48, 49, 2147483647, -2147483647 - 1};
      switch (below(rng, 5)) {
      case 0:
        tensors.erase(victim);
        break;
      case 1:
        tensor =
            Tensor(tensor.dtype, {static_cast<int64_t>(below(rng, 5)), static_cast<int64_t>(below(rng, 3))});
        break;
      case 2:
        tensor.shape.assign(below(rng, 4), int64_t{1} << below(rng, 62));
        break;
      default:
        if (tensor.dtype == DType::I32 && !tensor.bytes.empty())
          tensor.as<int32_t>()[below(rng, tensor.as<int32_t>().size())] =
              values[below(rng, std::size(values))];
      }
    }
    if (!addDefaults(m, tensors))
      continue;
    Result<Batch> batch = batchFromTensors(m, tensors);
    if (!batch)
      continue;
    ++passed;
    Result<Plan> plan = makePlan(m, *batch);
    EXPECT_TRUE(plan) << plan.error().message;
    (void)explainPlan(m, *batch, *plan);
  }
  EXPECT_GT(passed, 100);
}

} // namespace

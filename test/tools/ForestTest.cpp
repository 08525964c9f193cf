//===- ForestTest.cpp - Tensors for a forest ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "run/inputs/Inputs.h"

#include <gtest/gtest.h>

using namespace attn;
using namespace attn::run;

namespace {

using Numbers = std::vector<int32_t>;

// prompt ─┬─ answer              second tree: one node with two rows
//         └─ thought ─── draft ─┬─ token
//                               └─ token
const rt::Workload workload{
    8, 2,   64,
    1, 256, {{{{-1, 90, 0}, {0, 10, 1}, {0, 20, 1}, {2, 2, 2}, {3, 1, 1}, {3, 1, 1}, {-1, 7, 2}}, 1}}};

Arguments problem(std::initializer_list<int64_t> pages) {
  Arguments arguments;
  arguments.query = {"q", rt::DType::BF16, {-1, 8, 64}, {"rows"}};
  for (int64_t page : pages) {
    const std::string name(1, static_cast<char>('a' + arguments.kv.size()));
    arguments.kv.push_back(
        {name, name + "_count", name + "_len", page ? Store::Paged : Store::Packed, page, 2, 64, 64});
  }
  return arguments;
}

rt::TensorMap generate(const Arguments &arguments) {
  Dims dims;
  auto tensors = generateForest(arguments, workload, "w.json", 0, dims, 1);
  if (!tensors) {
    ADD_FAILURE() << tensors.error().message;
    return {};
  }
  return *tensors;
}

std::string failure(const Arguments &arguments, const rt::Workload &of, int64_t step = 0,
                    const char *dim = nullptr) {
  Dims dims;
  if (dim)
    EXPECT_TRUE(dims.add(dim));
  auto tensors = generateForest(arguments, of, "w.json", step, dims, 0);
  return tensors ? "no error" : tensors.error().message;
}

Numbers numbers(const rt::TensorMap &tensors, const std::string &name) {
  const auto values = tensors.at(name).as<int32_t>();
  return {values.begin(), values.end()};
}

TEST(Forest, RowsAreDepthFirstAndTheLastOfTheirNodes) {
  const auto tensors = generate(problem({16}));
  EXPECT_EQ(numbers(tensors, "q_start"), (Numbers{0, 6, 8}));
  EXPECT_EQ(numbers(tensors, "q_pos"), (Numbers{99, 109, 110, 111, 112, 112, 5, 6}));
}

TEST(Forest, ANodeIsAnInstance) {
  for (int64_t page : {0, 1, 16}) {
    const auto tensors = generate(problem({page}));
    EXPECT_EQ(numbers(tensors, "a.lengths"), (Numbers{90, 10, 20, 2, 1, 1, 7}));
    EXPECT_EQ(numbers(tensors, "a.pos0"), (Numbers{0, 90, 90, 110, 112, 112, 0}));
    EXPECT_EQ(numbers(tensors, "a.rows"), (Numbers{0, 6, 0, 1, 1, 6, 2, 6, 4, 5, 5, 6, 6, 8}));
  }
}

TEST(Forest, NewNodesGoToTheSecondArgument) {
  const auto tensors = generate(problem({16, 0}));
  EXPECT_EQ(numbers(tensors, "a.lengths"), (Numbers{90, 10, 20, 7}));
  EXPECT_EQ(numbers(tensors, "a.rows"), (Numbers{0, 6, 0, 1, 1, 6, 6, 8}));
  EXPECT_EQ(numbers(tensors, "b.lengths"), (Numbers{2, 1, 1}));
  EXPECT_EQ(numbers(tensors, "b.pos0"), (Numbers{110, 112, 112}));
  EXPECT_EQ(numbers(tensors, "b.rows"), (Numbers{2, 6, 4, 5, 5, 6}));
}

TEST(Forest, InPagesOfOneTokenNewNodesArePaths) {
  const auto tensors = generate(problem({16, 1}));
  EXPECT_EQ(numbers(tensors, "b.lengths"), (Numbers{2, 3, 3}));
  EXPECT_EQ(numbers(tensors, "b.pos0"), (Numbers{110, 110, 110}));
  EXPECT_EQ(numbers(tensors, "b.rows"), (Numbers{2, 4, 4, 5, 5, 6}));
  const Numbers table = numbers(tensors, "b.block_table");
  const auto columns = tensors.at("b.block_table").shape[1];
  for (int64_t path : {1, 2}) // both begin with the draft's two tokens
    EXPECT_TRUE(std::equal(table.begin(), table.begin() + 2, table.begin() + path * columns));
  EXPECT_NE(table[static_cast<size_t>(columns + 2)], table[static_cast<size_t>(2 * columns + 2)]);
}

TEST(Forest, AnArgumentWithoutNodesIsSeenByNobody) {
  rt::Workload plain = workload;
  plain.steps[0].nodes.resize(2);
  Dims dims;
  const auto tensors = generateForest(problem({16, 1}), plain, "w.json", 0, dims, 1);
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(numbers(*tensors, "b.lengths"), Numbers{0});
  EXPECT_EQ(numbers(*tensors, "b.rows"), (Numbers{0, 0}));
}

TEST(Forest, TablesOverPositionsHoldTheLongestPath) {
  Arguments arguments = problem({16});
  arguments.others = {{"bias", rt::DType::F32, {-1, -1}, {"rows", "a_len"}}};
  EXPECT_EQ(generate(arguments).at("bias").shape, (std::vector<int64_t>{8, 113}));
}

TEST(Forest, RefusesWhatCannotBe) {
  const auto refuses = [](const std::string &message, const char *words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  refuses(failure(problem({16}), workload, 1), "--step expects a number below 1, the steps of 'w.json'");
  refuses(failure(problem({16, 1, 1}), workload), "one KV argument, or two");
  refuses(failure(problem({16}), workload, 0, "a_len=5"), "--dim a_len follows from --workload");
  refuses(failure(problem({16}), workload, 0, "streaming=5"), "--dim streaming: this problem has no such");

  rt::Workload other = workload;
  other.steps[0].nodes[1].rows = 11;
  refuses(failure(problem({16}), other), "w.json: steps[0].nodes[1]: rows are the last tokens");
  other.steps[0].nodes = {{-1, 5, 0}, {0, 5, 0}};
  refuses(failure(problem({16}), other), "w.json: steps[0] has no rows");
  other.steps[0].nodes = {{-1, 0x7fffffff, 0}, {0, 1, 1}};
  refuses(failure(problem({16}), other), "nodes[1]: the path to its last token has 2147483648 tokens");
  other.steps[0].nodes.assign(20000, {0, 1, 1});
  for (int32_t i = 0; i < 20000; ++i)
    other.steps[0].nodes[static_cast<size_t>(i)].parent = i - 1;
  refuses(failure(problem({16, 1}), other), "a chain of tokens is one node");
  other = workload;
  other.kvHeads = 8;
  refuses(failure(problem({16}), other), "8 query heads on 8 KV heads of 64, 256 bytes");
}

} // namespace

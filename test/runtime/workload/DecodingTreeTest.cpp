//===- DecodingTreeTest.cpp - Tests: Runs of multi-step reasoning ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/DecodingTree.h"
#include "Data.h"
#include "Fuzz.h"
#include "attn_rt/forest/Forest.h"

#include <algorithm>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

const std::string good =
    R"([[{"id": 0, "tokens": 100, "start": -99, "end": 0, "children": [5, 2]},
  {"id": 2, "tokens": 7, "start": 1, "end": 7, "children": []},
  {"id": 5, "tokens": 4, "start": 1, "end": 4, "children": [9]},
  {"id": 9, "tokens": 2, "start": 5, "end": 6, "children": []}],
 [{"id": 0, "tokens": 3, "start": 1, "end": 3, "children": []}]])";

std::string replaced(const std::string &from, const std::string &to) {
  std::string text = good;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::vector<std::vector<int32_t>> rowsOf(const WorkloadStep &step) {
  std::vector<std::vector<int32_t>> rows;
  for (const ForestNode &node : step.nodes)
    rows.push_back({node.parent, node.tokens, node.rows});
  return rows;
}

TEST(DecodingTree, readsDepthFirst) {
  const auto trees = readDecodingTrees(good, "t.json");
  ASSERT_TRUE(trees) << trees.error().message;
  ASSERT_EQ(trees->size(), 2U);
  const DecodingTree &tree = (*trees)[0];
  std::vector<std::vector<int32_t>> nodes;
  for (const DecodingTree::Node &node : tree.nodes)
    nodes.push_back({node.parent, node.start, node.end});
  EXPECT_EQ(nodes, (std::vector<std::vector<int32_t>>{{-1, -99, 0}, {0, 1, 4}, {1, 5, 6}, {0, 1, 7}}));
  EXPECT_EQ(tree.iterations(), 7);
}

// The layout of DeFT's dataset/generation/Reasoning: texts beside the trees, nodes by id, and another name
// for tokens.
TEST(DecodingTree, readsWhatIsPublished) {
  const std::string published = R"([{"incompleted": false, "prompt": "Sort [3, 1]", "data": {
  "0": {"id": 0, "value": 100, "start": -99, "end": 0, "children": [5, 2]},
  "2": {"id": 2, "value": 7, "start": 1, "end": 7, "children": []},
  "5": {"id": 5, "value": 4, "start": 1, "end": 4, "children": [9]},
  "9": {"id": 9, "value": 2, "start": 5, "end": 6, "children": []}}},
 {"incompleted": true, "prompt": "Sort []", "data": {}},
 {"incompleted": true, "prompt": "", "data": {
  "0": {"id": 0, "value": 3, "start": 1, "end": 3, "children": []}}}])";
  const auto trees = readDecodingTrees(published, "t.json"), reduced = readDecodingTrees(good, "t.json");
  ASSERT_TRUE(trees) << trees.error().message;
  ASSERT_EQ(trees->size(), reduced->size());
  for (size_t i = 0; i < trees->size(); ++i)
    for (int32_t iteration = 1; iteration < 9; ++iteration)
      EXPECT_EQ(rowsOf((*trees)[i].step(iteration)), rowsOf((*reduced)[i].step(iteration)));
  const auto error = [&](const std::string &from, const std::string &to) {
    std::string text = published;
    return readDecodingTrees(text.replace(text.find(from), from.size(), to), "t.json").error().message;
  };
  EXPECT_EQ(error("\"value\": 7", "\"value\": 8"),
            "t.json: trees[0].data['2'].value: expected 7 (from start 1 to end 7), got 8");
  EXPECT_EQ(error("\"data\"", "\"dat\""), "t.json: trees[0].data: missing");
  EXPECT_EQ(error("[9]", "[8]"), "t.json: trees[0].data['5'].children[0]: there is no node 8");
}

TEST(DecodingTree, stepsAreForests) {
  const DecodingTree tree = (*readDecodingTrees(good, "t.json"))[0];
  using Rows = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(rowsOf(tree.step(1)), (Rows{{-1, 100, 0}, {0, 1, 1}, {0, 1, 1}}));
  EXPECT_EQ(rowsOf(tree.step(5)), (Rows{{-1, 100, 0}, {0, 4, 0}, {1, 1, 1}, {0, 5, 1}}));
  EXPECT_EQ(rowsOf(tree.step(7)), (Rows{{-1, 100, 0}, {0, 7, 1}}));
  EXPECT_TRUE(tree.step(8).nodes.empty());
  const std::vector<WorkloadStep> steps = tree.steps(4);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].repeat, 4);
  for (const WorkloadStep &step : steps)
    EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
}

TEST(DecodingTree, refusesWithTreeAndNode) {
  const struct {
    std::string text;
    std::vector<std::string> words;
  } cases[] = {
      {"", {"t.json"}},
      {"{}", {"t.json", "trees", "array"}},
      {"[]", {"at least one"}},
      {"[[]]", {"trees[0]", "at least one node"}},
      {replaced("[5, 2]", "[5, 3]"), {"trees[0][0].children[1]", "no node 3"}},
      {replaced("[9]", "[2]"), {"node 2", "two parents", "0", "5"}},
      {replaced("[9]", "[0]"), {"trees[0][2].children[0]", "node 0 starts at -99, before its parent"}},
      {replaced("[9]", "[5]"), {"node 5 has two parents"}},
      {replaced("\"children\": []}],", "\"children\": [9]}],"), {"trees[0][3].children[0]", "node 9"}},
      {replaced("\"tokens\": 7", "\"tokens\": 8"), {"trees[0][1].tokens", "expected 7", "got 8"}},
      {replaced("\"tokens\": 7", "\"tokens\": -1"), {"trees[0][1].tokens", "-1"}},
      {R"([[{"id": 3, "tokens": 0, "start": 5, "end": 4, "children": [4]},
            {"id": 4, "tokens": 0, "start": 5, "end": 4, "children": [3]}]])",
       {"trees[0]", "node 3 is below itself: a cycle"}},
      {replaced("\"id\": 2", "\"id\": 0"), {"trees[0][1].id", "twice"}},
      {replaced("\"start\": 5, \"end\": 6", "\"start\": 4, \"end\": 5"), {"node 9 starts at 4", "done at 4"}},
      {replaced("\"start\": 5, ", ""), {"trees[0][3].start", "missing"}},
      {replaced("\"end\": 7", "\"end\": 4294967296"), {"trees[0][1].end", "4294967296"}},
      {replaced("[5, 2]", "7"), {"trees[0][0].children", "array"}},
  };
  for (const auto &[text, words] : cases) {
    const auto trees = readDecodingTrees(text, "t.json");
    ASSERT_FALSE(trees) << text;
    for (const std::string &word : words)
      EXPECT_NE(trees.error().message.find(word), std::string::npos)
          << trees.error().message << "\nlacks " << word;
  }
}

TEST(DecodingTree, mutantsAreReadOrRefused) {
  Rng rng(31);
  int read = 0;
  for (int round = 0; round < rounds(4000); ++round) {
    const auto trees = readDecodingTrees(mutate(good, rng), "mutant");
    if (!answered(trees))
      continue;
    ++read;
    for (const DecodingTree &tree : *trees)
      for (int32_t iteration : {1, 5, tree.iterations()})
        if (const WorkloadStep step = tree.step(iteration); !step.nodes.empty())
          EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
  }
  EXPECT_GT(read, 20);
}

/// Expects balance on 132 blocks: within a tile of the mean, and within 5 % if that is 20 tiles or more.
void expectBalance(const DecodingTree &tree) {
  const Workload workload{32, 32, 128, 1, 512, {}};
  ForestPlanner planner(workload, {});
  for (int32_t iteration = 1; iteration <= tree.iterations(); iteration += 10) {
    const WorkloadStep step = tree.step(iteration);
    const Result<ForestStats> stats = planner.plan(step.nodes);
    ASSERT_TRUE(stats);
    EXPECT_LE(static_cast<double>(stats->maxTiles) - stats->meanTiles(), 1);
    if (stats->meanTiles() >= 20)
      EXPECT_LE(stats->balance(), 1.05);
  }
}

TEST(DecodingTree, generatedOnesAreTheSameEverywhere) {
  const std::vector<DecodingLevel> shape{{10, 0, 1400}, {5, 3, 1400}, {10, 2, 1400}};
  const DecodingTree tree = generateDecodingTree(3, 1104, shape);
  EXPECT_EQ(tree.nodes.size(), 1U + 10 + 15 + 20);
  EXPECT_EQ(tree.nodes[0].tokens(), 1104);
  int64_t tokens = 0;
  for (const DecodingTree::Node &node : tree.nodes) {
    tokens += node.tokens();
    if (node.parent >= 0)
      EXPECT_EQ(node.start, tree.nodes[static_cast<size_t>(node.parent)].end + 1);
  }
  EXPECT_EQ(tokens, 35501);
  EXPECT_NE(generateDecodingTree(4, 1104, shape).iterations(), tree.iterations());
  expectBalance(tree);
}

TEST(DecodingTree, publishedSorting) {
  ATTN_DATA(text, "deft/sorting128ToT.trees.json");
  const auto trees = readDecodingTrees(text, "sorting");
  ASSERT_TRUE(trees) << trees.error().message;
  EXPECT_EQ(trees->size(), 100U);
  for (const DecodingTree &tree : *trees) {
    EXPECT_EQ(tree.nodes.size() % 10, 1U);
    EXPECT_EQ(tree.nodes[0].tokens(), 1104);
    expectBalance(tree);
  }
}

TEST(DecodingTree, publishedMerging) {
  ATTN_DATA(text, "deft/docmergeToT.trees.json");
  const auto trees = readDecodingTrees(text, "merging");
  ASSERT_TRUE(trees) << trees.error().message;
  EXPECT_EQ(trees->size(), 50U);
  for (const DecodingTree &tree : *trees)
    expectBalance(tree);
}

} // namespace

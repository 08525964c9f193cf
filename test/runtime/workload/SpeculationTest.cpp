//===- SpeculationTest.cpp - Token trees and what is accepted of them -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/Speculation.h"
#include "Data.h"
#include "Fuzz.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

const std::string goodTrees = R"({"small": [[0], [1], [0, 0], [0, 1]], "chain": [[0], [0, 0], [0, 0, 0]]})";
const std::string goodRun = R"({"tree": [[0], [1], [0, 0], [0, 1]], "size": 5, "records": [
  {"Accept_length": [1, 3, 2], "Avg_accept_length": 2.0}, {"Accept_length": [2]}]})";

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Speculation, reads) {
  const auto trees = readTokenTrees(goodTrees, "t.json");
  ASSERT_TRUE(trees) << trees.error().message;
  EXPECT_EQ(trees->at("small").height(), 2);
  EXPECT_EQ(trees->at("chain").chains().size(), 1U);
  const auto run = readVerification(goodRun, "r.json");
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->tree.size(), 4);
  EXPECT_EQ(run->accepted, (std::vector<std::vector<int32_t>>{{1, 3, 2}, {2}}));
  // DeFT's published form, with texts beside it.
  std::string published = replaced(goodRun, "\"tree\"", "\"Tree_ID\": 1, \"Tree_Structure\"");
  published = replaced(replaced(published, "\"size\"", "\"Token_Tree_size\""), "\"records\"", "\"Records\"");
  const auto same = readVerification(published, "r.json");
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(std::ranges::equal(same->tree.parent(), run->tree.parent()));
  EXPECT_EQ(same->accepted, run->accepted);
  const std::vector<WorkloadStep> steps = speculationSteps(run->tree, run->accepted[0], 100);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[2].nodes[0].tokens, 104);
  EXPECT_EQ(steps[0].nodes.size(), 5U);
  EXPECT_EQ(steps[0].nodes[3].parent, 1); // [0, 1] below [0]
  for (const WorkloadStep &step : steps)
    EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
}

TEST(Speculation, refuses) {
  const struct {
    std::string message;
    std::vector<std::string> words;
  } cases[] = {
      {readTokenTrees("[]", "t.json").error().message, {"t.json", "object"}},
      {readTokenTrees("{}", "t.json").error().message, {"at least one tree"}},
      {readTokenTrees(replaced(goodTrees, "[0, 1]]", "[2, 1]]"), "t.json").error().message,
       {"'small'", "token 3 is an orphan", "[2]"}},
      {readTokenTrees(replaced(goodTrees, "[0, 1]]", "[0, 0]]"), "t.json").error().message,
       {"'small'", "twice"}},
      {readTokenTrees(replaced(goodTrees, "[1]", "[-1]"), "t.json").error().message, {"'small'[1][0]", "-1"}},
      {readTokenTrees(replaced(goodTrees, "[1]", "[]"), "t.json").error().message, {"'small'", "token 1"}},
      {readTokenTrees(replaced(goodTrees, "[1]", "1"), "t.json").error().message, {"'small'[1]", "array"}},
      {readVerification(replaced(goodRun, "5", "6"), "r.json").error().message,
       {"size", "expected 5", "got 6"}},
      {readVerification(replaced(goodRun, "3, 2", "4, 2"), "r.json").error().message,
       {"records[0].Accept_length[1]", "between 1 and 3", "4"}},
      {readVerification(replaced(goodRun, "[2]}", "[0]}"), "r.json").error().message, {"records[1]", "0"}},
      {readVerification(replaced(goodRun, "\"records\"", "\"runs\""), "r.json").error().message,
       {"records", "missing"}},
  };
  for (const auto &[message, words] : cases)
    for (const std::string &word : words)
      EXPECT_NE(message.find(word), std::string::npos) << message << "\nlacks " << word;
}

TEST(Speculation, mutantsAreReadOrRefused) {
  Rng rng(37);
  int read = 0;
  for (int round = 0; round < rounds(4000); ++round) {
    read += answered(readTokenTrees(mutate(goodTrees, rng), "mutant"));
    if (const auto run = readVerification(mutate(goodRun, rng), "mutant"); answered(run)) {
      ++read;
      for (const std::vector<int32_t> &accepted : run->accepted)
        for (const WorkloadStep &step : speculationSteps(run->tree, accepted, 10))
          EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
    }
  }
  EXPECT_GT(read, 40);
}

TEST(Speculation, generatedTreesLookLikeMedusas) {
  const TokenTree tree = generateTokenTree(63);
  EXPECT_EQ(tree.size(), 63);
  EXPECT_GE(tree.height(), 4);
  EXPECT_EQ(generateTokenTree(1024).size(), 1024);
  const std::vector<int32_t> accepted = generateAccepted(5, tree, 2000);
  const auto [least, most] = std::minmax_element(accepted.begin(), accepted.end());
  EXPECT_EQ(*least, 1);
  EXPECT_EQ(*most, tree.height() + 1);
  EXPECT_EQ(generateAccepted(5, tree, 10), (std::vector<int32_t>(accepted.begin(), accepted.begin() + 10)));
}

TEST(Speculation, publishedTrees) {
  ATTN_DATA(text, "medusa_eagle/tree_choices.json");
  const auto trees = readTokenTrees(text, "tree_choices.json");
  ASSERT_TRUE(trees) << trees.error().message;
  EXPECT_EQ(trees->size(), 11U);
  EXPECT_EQ(trees->at("medusa.mc_sim_7b_63").size(), 63);
  EXPECT_EQ(trees->at("eagle.mc_sim_7b_63").size(), 25);
  for (const auto &[name, tree] : *trees)
    EXPECT_LT(std::ssize(tree.chains()), tree.size()) << name;
}

TEST(Speculation, publishedRuns) {
  for (int32_t size : {32, 64, 128, 256}) {
    ATTN_DATA(text, "deft/APPS_tree_size" + std::to_string(size) + ".json");
    const auto run = readVerification(text, "APPS");
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->tree.size(), size - 1);
    EXPECT_EQ(run->accepted.size(), 20U);
    EXPECT_EQ(run->accepted[0].size(), 401U);
  }
}

} // namespace

//===- WorkloadTest.cpp - Decoding steps as forests, from a file ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "attn_rt/forest/Forest.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

const std::string good =
    R"({"q_heads": 32, "kv_heads": 8, "dim": 128, "bytes_per_token_per_head": 512, "layers": 2, "steps": [
  {"nodes": [{"parent": -1, "tokens": 4000, "rows": 0}, {"parent": 0, "tokens": 17, "rows": 1},
             {"parent": 0, "tokens": 5, "rows": 2}, {"parent": 2, "tokens": 0, "rows": 1},
             {"parent": -1, "tokens": 9, "rows": 3}], "repeat": 3},
  {"nodes": [{"parent": -1, "tokens": 1, "rows": 1}]}]})";

std::string replaced(const std::string &from, const std::string &to) {
  std::string text = good;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Workload, reads) {
  const Result<Workload> workload = readWorkload(good, "w.json");
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->groupSize(), 4);
  EXPECT_EQ(workload->layers, 2);
  ASSERT_EQ(workload->steps.size(), 2U);
  EXPECT_EQ(workload->steps[0].repeat, 3);
  EXPECT_EQ(workload->steps[1].repeat, 1);
  EXPECT_EQ(workload->steps[0].nodes[3].parent, 2);
  EXPECT_EQ(workload->steps[0].nodes[4].rows, 3);
}

TEST(Workload, refusesWithStepAndNode) {
  const std::string node1 = R"({"parent": 0, "tokens": 17, "rows": 1})";
  const std::string node3 = R"({"parent": 2, "tokens": 0, "rows": 1})";
  const struct {
    std::string text;
    std::vector<std::string> words;
  } cases[] = {
      {"", {"w.json"}},
      {"[]", {"expected an object"}},
      {"{", {"w.json", "line 1"}},
      {good + "x", {"w.json"}},
      {std::string(100, '['), {"nested"}},
      {replaced("32", "33"), {"q_heads", "multiple of the 8", "33"}},
      {replaced("\"kv_heads\": 8", "\"kv_heads\": 0"), {"kv_heads", "0"}},
      {replaced("\"dim\": 128, ", ""), {"dim", "missing"}},
      {replaced("\"dim\"", "\"dims\""), {"unknown field 'dims'", "'dim'"}},
      {replaced("\"layers\": 2", "\"layers\": 2.5"), {"layers", "2.5"}},
      {replaced("\"layers\": 2", "\"layers\": \"2\""), {"layers", "integer"}},
      {replaced("512", "-512"), {"bytes_per_token_per_head", "-512"}},
      {replaced("\"repeat\": 3", "\"repeat\": 0"), {"steps[0].repeat", "0"}},
      {replaced("\"repeat\": 3", "\"repeats\": 3"), {"steps[0]", "unknown field 'repeats'"}},
      {replaced("\"repeat\": 3", "\"repeat\": 99999999999999999999"), {"steps[0].repeat"}},
      {replaced(node1, R"({"parent": 0, "tokens": -17, "rows": 1})"), {"steps[0].nodes[1].tokens", "-17"}},
      {replaced(node1, R"({"parent": 0, "tokens": 1.5, "rows": 1})"), {"steps[0].nodes[1].tokens", "1.5"}},
      {replaced(node1, R"({"parent": 0, "tokens": null, "rows": 1})"), {"steps[0].nodes[1].tokens"}},
      {replaced(node1, R"({"parent": 0, "tokens": 1e400, "rows": 1})"), {"w.json"}},
      {replaced(node1, R"({"parent": 0, "tokens": 4294967296, "rows": 1})"),
       {"nodes[1].tokens", "4294967296"}},
      {replaced(node1, R"({"parent": 0, "tokens": 17})"), {"steps[0].nodes[1].rows", "missing"}},
      {replaced(node1, R"({"parent": 0, "tokens": 17, "rows": 1, "row": 1})"), {"nodes[1]", "'row'"}},
      {replaced(node1, R"({"parent": 0, "tokens": 17, "rows": 1, "rows": 1})"), {"duplicate"}},
      {replaced(node1, "7"), {"steps[0].nodes[1]", "object"}},
      {replaced(node1, R"({"parent": 9, "tokens": 17, "rows": 1})"),
       {"steps[0].nodes[1].parent", "orphan", "9"}},
      {replaced(node1, R"({"parent": -2, "tokens": 17, "rows": 1})"), {"steps[0].nodes[1].parent", "-2"}},
      {replaced(node1, R"({"parent": 1, "tokens": 17, "rows": 1})"), {"nodes[1].parent", "own parent"}},
      {replaced(node1, R"({"parent": 3, "tokens": 17, "rows": 1})"), {"nodes[1].parent", "cycle"}},
      {replaced(node3, R"({"parent": 1, "tokens": 0, "rows": 1})"), {"nodes[3].parent", "depth-first"}},
      {replaced(node3, R"({"parent": 2, "tokens": 0, "rows": 2147483647})"), {"nodes[3].rows", "exceed"}},
      {replaced(R"([{"parent": -1, "tokens": 1, "rows": 1}])", "[]"), {"steps[1].nodes", "at least one"}},
      {replaced(R"([{"parent": -1, "tokens": 1, "rows": 1}])", "{}"), {"steps[1].nodes", "array"}},
      {R"({"q_heads":1,"kv_heads":1,"dim":1,"bytes_per_token_per_head":1,"layers":1,"steps":[]})", {"steps"}},
  };
  for (const auto &[text, words] : cases) {
    const Result<Workload> workload = readWorkload(text, "w.json");
    ASSERT_FALSE(workload) << text;
    EXPECT_EQ(workload.error().kind, ErrorKind::Input);
    for (const std::string &word : words)
      EXPECT_NE(workload.error().message.find(word), std::string::npos)
          << workload.error().message << "\nlacks " << word;
  }
}

TEST(Workload, whatIsWrittenIsReadBack) {
  Workload workload{32, 8, 128, 2, 512, fewShotSteps(3, 100, 2)};
  workload.steps[1].repeat = 7;
  const Result<Workload> again = readWorkload(writeWorkload(workload), "w.json");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->steps.size(), 2U);
  EXPECT_EQ(again->steps[1].repeat, 7);
  ASSERT_EQ(again->steps[1].nodes.size(), 4U);
  EXPECT_EQ(again->steps[1].nodes[0].tokens, 100);
  EXPECT_EQ(again->steps[1].nodes[3].tokens, 2);
  EXPECT_EQ(again->steps[1].nodes[3].parent, 0);
  EXPECT_EQ(writeWorkload(*again), writeWorkload(workload));
}

TEST(Workload, mutantsAreReadOrRefused) {
  Rng rng(20);
  int read = 0;
  for (int round = 0; round < rounds(4000); ++round) {
    const Result<Workload> workload = readWorkload(mutate(good, rng), "mutant");
    if (!answered(workload))
      continue;
    ++read;
    for (size_t s = 0; s < std::size(strategyNames); ++s) {
      ForestPlanner planner(*workload, {static_cast<Strategy>(s), 1 + static_cast<int>(below(rng, 200))});
      for (const WorkloadStep &step : workload->steps)
        if (const Result<ForestStats> stats = planner.plan(step.nodes))
          EXPECT_GE(stats->balance(), 1.0 - 1e-9);
    }
  }
  EXPECT_GT(read, 20); // mutants that keep the form reach the planner
}

} // namespace

//===- RequestsTest.cpp - Tests: Traces of requests -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/Requests.h"
#include "Data.h"
#include "Fuzz.h"
#include "attn_rt/forest/Forest.h"

#include <algorithm>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

const std::string goodLines =
    R"({"timestamp": 0, "input_length": 1100, "output_length": 6, "hash_ids": [0, 1, 2]}
{"timestamp": 4, "input_length": 1500, "output_length": 3, "hash_ids": [0, 1, 7]}

{"timestamp": 9, "input_length": 512, "output_length": 9, "hash_ids": [0]}
{"timestamp": 9, "input_length": 40, "output_length": 2, "hash_ids": [12]}
)";

std::string message(const auto &result) { return result ? "no error" : result.error().message; }

TEST(Requests, readsCsv) {
  const auto requests = readRequestsCsv(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\nx,7,0\n", "a.csv");
  ASSERT_TRUE(requests) << requests.error().message;
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_EQ((*requests)[0].context, 4808);
  EXPECT_EQ((*requests)[0].generated, 10);
  EXPECT_EQ(message(readRequestsCsv("ContextTokens\n5\n", "a.csv")),
            "CSV file 'a.csv': no column 'GeneratedTokens'; its columns are 'ContextTokens'");
  EXPECT_EQ(message(readRequestsCsv("ContextTokens,GeneratedTokens\n5,1\n5,-1\n", "a.csv")),
            "CSV file 'a.csv': request 1: expected 0 to 16777216 tokens, got -1");
}

TEST(Requests, sharedPrefixesAreOnePath) {
  const auto requests = readRequestsJsonl(goodLines, "m.jsonl");
  ASSERT_TRUE(requests) << requests.error().message;
  const WorkloadStep step = requestStep(*requests, 4);
  std::vector<std::vector<int32_t>> nodes;
  for (const ForestNode &node : step.nodes)
    nodes.push_back({node.parent, node.tokens, node.rows});
  // Block 0 is shared by three requests and is all of the third; block 1 is shared by two.
  EXPECT_EQ(nodes, (std::vector<std::vector<int32_t>>{{-1, 512, 0},
                                                      {0, 4, 1},
                                                      {0, 512, 0},
                                                      {2, 1100 - 1024 + 4, 1},
                                                      {2, 1500 - 1024 + 3, 1},
                                                      {-1, 42, 1}}));
  EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
}

TEST(Requests, refusesWithTheLine) {
  const auto read = [](const std::string &text) { return message(readRequestsJsonl(text, "m.jsonl")); };
  EXPECT_EQ(read("\n"), "m.jsonl: expected at least one request, got none");
  EXPECT_EQ(read(R"({"input_length": 1100, "output_length": 6, "hash_ids": [0, 1]})"),
            "m.jsonl: line 1.hash_ids: expected 3 blocks (1100 tokens, 512 each), got 2");
  EXPECT_EQ(read(goodLines + R"({"input_length": -1, "output_length": 6, "hash_ids": []})"),
            "m.jsonl: line 6.input_length: expected an integer between 0 and 16777216, got -1");
  EXPECT_EQ(read(R"({"input_length": 5, "hash_ids": [1]})"), "m.jsonl: line 1.output_length: missing");
  EXPECT_NE(read(goodLines + "{").find("m.jsonl: line 6: "), std::string::npos);
}

TEST(Requests, mutantsAreReadOrRefused) {
  Rng rng(43);
  int read = 0;
  for (int round = 0; round < rounds(3000); ++round)
    if (const auto requests = readRequestsJsonl(mutate(goodLines, rng), "mutant"); answered(requests)) {
      ++read;
      const WorkloadStep step = requestStep(*requests, 3);
      EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
      int64_t rows = 0;
      for (const ForestNode &node : step.nodes)
        rows += node.rows;
      EXPECT_EQ(rows, std::ssize(*requests));
    }
  EXPECT_GT(read, 40);
}

/// Tokens of a forest, and the sum of the tokens that each of its rows sees.
std::pair<int64_t, int64_t> tokensOf(const WorkloadStep &step) {
  int64_t shared = 0, apart = 0;
  std::vector<int64_t> path(step.nodes.size());
  for (size_t i = 0; i < step.nodes.size(); ++i) {
    const ForestNode &node = step.nodes[i];
    path[i] = (node.parent < 0 ? 0 : path[static_cast<size_t>(node.parent)]) + node.tokens;
    shared += node.tokens;
    apart += path[i] * node.rows;
  }
  return {shared, apart};
}

int64_t tokensOf(const std::vector<Request> &requests, int32_t generated) {
  return std::accumulate(requests.begin(), requests.end(), int64_t{0},
                         [&](int64_t sum, const Request &request) {
                           return sum + request.context + std::min(generated, request.generated);
                         });
}

TEST(Requests, generated) {
  const std::vector<Request> alone = generateRequests(1, 200), shared = generateRequests(1, 200, 20);
  EXPECT_EQ(tokensOf(requestStep(alone, 10)), std::pair(tokensOf(alone, 10), tokensOf(alone, 10)));
  const auto [once, each] = tokensOf(requestStep(shared, 10));
  EXPECT_EQ(each, tokensOf(shared, 10));
  EXPECT_LT(once, each * 3 / 4);
  EXPECT_EQ(tokensOf(generateRequests(1, 200, 20), 10), each);
}

TEST(Requests, publishedAzure) {
  ATTN_DATA(text, "azure/AzureLLMInferenceTrace_code.csv");
  const auto requests = readRequestsCsv(text, "azure");
  ASSERT_TRUE(requests) << requests.error().message;
  EXPECT_EQ(requests->size(), 8819U);
  EXPECT_EQ((*requests)[1].context, 3180);
}

TEST(Requests, publishedMooncake) {
  ATTN_DATA(text, "mooncake/synthetic_trace.jsonl");
  const auto requests = readRequestsJsonl(text, "mooncake");
  ASSERT_TRUE(requests) << requests.error().message;
  EXPECT_EQ(requests->size(), 3993U);
  const WorkloadStep step = requestStep(*requests, 1 << 20);
  EXPECT_TRUE(checkForest(step.nodes, 32, "step"));
  const auto [once, each] = tokensOf(step);
  EXPECT_EQ(each, tokensOf(*requests, 1 << 20));
  EXPECT_LT(once, each / 2); // most of it is shared
}

} // namespace

//===- HeadGatesTest.cpp - Which KV heads need the whole context ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/HeadGates.h"
#include "Data.h"
#include "Fuzz.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

const std::string good = "9.5e-01\t0.5\t-1.0e-04\r\n1.0e+00\t0.25\t0.5\n\n";

std::string message(const auto &result) { return result ? "no error" : result.error().message; }

TEST(HeadGates, readsAndSorts) {
  const auto gates = readHeadGates(good, "g.tsv", 2, 3);
  ASSERT_TRUE(gates) << gates.error().message;
  EXPECT_EQ(gates->at(1, 1), 0.25);
  EXPECT_EQ(classesAtLeast(*gates, 0.5), (LayerClasses{{0, 0, 1}, {0, 1, 0}}));
  EXPECT_EQ(classesAtLeast(*gates, 0.51), (LayerClasses{{0, 1, 1}, {0, 1, 1}}));
  // A gate below 0 is 0.
  EXPECT_EQ(classesAtLeast(*gates, 0), (LayerClasses{{0, 0, 0}, {0, 0, 0}}));
  // Equal gates: the earlier layer first.
  EXPECT_EQ(classesByShare(*gates, 0.5), (LayerClasses{{0, 0, 1}, {0, 1, 1}}));
  EXPECT_EQ(classesByShare(*gates, 0), (LayerClasses{{1, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(classesByShare(*gates, 7), (LayerClasses{{0, 0, 0}, {0, 0, 0}}));
}

TEST(HeadGates, refusesTheWrongShapeWithLineAndHead) {
  EXPECT_EQ(message(readHeadGates("", "g.tsv")),
            "head gates 'g.tsv': expected a line for each layer, got none");
  EXPECT_EQ(message(readHeadGates(good, "g.tsv", 32, 8)),
            "head gates 'g.tsv': expected 32 layers of 8 KV heads, got 2 layers of 3 KV heads");
  EXPECT_EQ(message(readHeadGates(good, "g.tsv", 0, 8)),
            "head gates 'g.tsv': expected 2 layers of 8 KV heads, got 2 layers of 3 KV heads");
  EXPECT_EQ(message(readHeadGates("1 2 3\n1 2\n", "g.tsv")),
            "head gates 'g.tsv': line 2: expected a gate for each of 3 heads, as in the first line, got 2");
  EXPECT_EQ(message(readHeadGates("1 2 3\n1 2 3x\n", "g.tsv")),
            "head gates 'g.tsv': line 2: head 2: expected a number, got '3x'");
  EXPECT_EQ(message(readHeadGates("1 nan", "g.tsv")),
            "head gates 'g.tsv': line 1: head 1: expected a number, got 'nan'");
  EXPECT_EQ(message(readHeadGates("1e999", "g.tsv")),
            "head gates 'g.tsv': line 1: head 0: expected a number, got '1e999'");
}

TEST(HeadGates, sizesThatTheGatesWereFoundFor) {
  const auto sizes = readStreamingSizes(
      R"({"sink_size": 128, "recent_size": 256, "deploy_sink_size": null, "lr": 0.02})", "c.json");
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->sink, 128);
  EXPECT_EQ(sizes->recent, 256);
  EXPECT_EQ(
      readStreamingSizes(R"({"sink_size": 128, "recent_size": 256, "deploy_sink_size": 64})", "c")->sink, 64);
  EXPECT_EQ(message(readStreamingSizes(R"({"sink_size": 128})", "c.json")),
            "c.json: config.recent_size: missing");
  EXPECT_EQ(message(readStreamingSizes(R"({"sink_size": -1, "recent_size": 1})", "c.json")),
            "c.json: config.sink_size: expected an integer between 0 and 1073741824, got -1");
}

TEST(HeadGates, mutantsAreReadOrRefused) {
  Rng rng(41);
  int read = 0;
  for (int round = 0; round < rounds(4000); ++round)
    if (const auto gates = readHeadGates(mutate(good, rng), "mutant"); answered(gates)) {
      ++read;
      EXPECT_EQ(std::ssize(gates->gates), int64_t{gates->layers} * gates->kvHeads);
      EXPECT_EQ(std::ssize(classesByShare(*gates, 0.5)), gates->layers);
    }
  EXPECT_GT(read, 100);
}

double shareAbove(const HeadGates &gates, double threshold) {
  return static_cast<double>(std::count_if(gates.gates.begin(), gates.gates.end(),
                                           [&](double gate) { return gate > threshold; })) /
         static_cast<double>(gates.gates.size());
}

TEST(HeadGates, generated) {
  const HeadGates gates = generateHeadGates(1, 32, 32, 0.43);
  EXPECT_NEAR(shareAbove(gates, 0.5), 0.43, 0.05);
  EXPECT_EQ(generateHeadGates(1, 32, 32, 0.43).gates, gates.gates);
}

TEST(HeadGates, published) {
  const struct {
    const char *model;
    int32_t kvHeads;
    double share;
  } files[] = {{"Llama-2-7B-32K-Instruct", 32, 0.43},
               {"Llama-3-8B-Instruct-Gradient-1048k", 8, 0.81},
               {"Meta-Llama-3.1-8B-Instruct", 8, 0.91},
               {"Mistral-7B-Instruct-v0.2", 8, 0.0}};
  for (const auto &[model, kvHeads, share] : files) {
    ATTN_DATA(text, std::string("duo/") + model + ".full_attention_heads.tsv");
    const auto gates = readHeadGates(text, model, 32, kvHeads);
    ASSERT_TRUE(gates) << gates.error().message;
    if (share > 0)
      EXPECT_NEAR(shareAbove(*gates, 0.5), share, 0.005) << model;
    ATTN_DATA(config, std::string("duo/") + model + ".config.json");
    const auto sizes = readStreamingSizes(config, model);
    ASSERT_TRUE(sizes) << sizes.error().message;
    EXPECT_EQ(sizes->sink, 128);
    EXPECT_EQ(sizes->recent, 256);
  }
}

} // namespace

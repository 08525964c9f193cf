//===- ForestTest.cpp - What reading a forest costs, four ways ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/forest/Forest.h"
#include "Fuzz.h"
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr Strategy strategies[] = {Strategy::ByQuery, Strategy::ByNode, Strategy::ByNodeChunk,
                                   Strategy::Flatten};

Workload model(int qHeads = 32, int kvHeads = 32, int dim = 128) {
  return {qHeads, kvHeads, dim, 1, int64_t{4} * dim, {}};
}

std::vector<ForestNode> fewShot(int branches, int iteration, int prompt = 4000) {
  std::vector<ForestNode> nodes{{-1, prompt, 0}};
  nodes.insert(nodes.end(), static_cast<size_t>(branches), {0, iteration, 1});
  return nodes;
}

/// A forest in depth-first order; leaves have rows, inner nodes sometimes.
std::vector<ForestNode> randomForest(Rng &rng, size_t count, int tokens) {
  std::vector<ForestNode> nodes;
  std::vector<int32_t> path;
  while (nodes.size() < count) {
    for (size_t up = path.empty() ? 0 : below(rng, 3) * below(rng, 3); up > 0 && !path.empty(); --up)
      path.pop_back();
    nodes.push_back({path.empty() ? -1 : path.back(),
                     below(rng, 8) ? static_cast<int32_t>(below(rng, static_cast<size_t>(tokens))) : 0,
                     static_cast<int32_t>(below(rng, 3) ? below(rng, 4) : 0)});
    path.push_back(static_cast<int32_t>(nodes.size()) - 1);
  }
  return nodes;
}

ForestStats planned(const Workload &workload, const std::vector<ForestNode> &nodes, Strategy strategy,
                    int blocks = 132) {
  EXPECT_TRUE(checkForest(nodes, workload.qHeads, "step"));
  ForestPlanner planner(workload, {strategy, blocks});
  const Result<ForestStats> stats = planner.plan(nodes);
  EXPECT_TRUE(stats);
  // The picture shows the counted work.
  std::vector<int64_t> loads(static_cast<size_t>(blocks), 0);
  std::map<int32_t, int64_t> done;
  planner.forEachPiece([&](const ForestPiece &piece) {
    EXPECT_GT(piece.tiles, 0);
    loads[static_cast<size_t>(piece.block)] += piece.tiles;
    done[piece.workTile] += piece.tiles;
  });
  for (const auto &[workTile, tiles] : done) {
    const ForestWorkTile &u = planner.workTiles()[static_cast<size_t>(workTile)];
    EXPECT_EQ(tiles, u.tiles * u.copies);
  }
  EXPECT_EQ(done.size(), planner.workTiles().size());
  EXPECT_EQ(*std::max_element(loads.begin(), loads.end()), stats->maxTiles);
  EXPECT_EQ(loads.size() - static_cast<size_t>(std::count(loads.begin(), loads.end(), 0)),
            static_cast<size_t>(stats->usedBlocks));
  return *stats;
}

TEST(Forest, table17OfDeFT) {
  const struct {
    int branches;
    double shared, each; // TB, as printed
  } rows[] = {{20, 1.68, 17.62}, {30, 2.10, 26.43}, {50, 2.94, 44.05}};
  const Workload w = model();
  for (const auto &row : rows) {
    double shared = 0, each = 0;
    for (int i = 1; i <= 400; ++i) {
      const std::vector<ForestNode> nodes = fewShot(row.branches, i);
      shared += static_cast<double>(planned(w, nodes, Strategy::Flatten).kvBytes) * 32e-12;
      each += static_cast<double>(planned(w, nodes, Strategy::ByQuery).kvBytes) * 32e-12;
    }
    EXPECT_NEAR(shared, row.shared, 0.005);
    EXPECT_NEAR(each, row.each, 0.005);
  }
}

/// Counts bytes and tiles one by one, from the definition.
TEST(Forest, agreesWithTheDefinition) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    const int group = 1 << below(rng, 8);
    const Workload w = model(2 * group, 2, 64);
    const std::vector<ForestNode> nodes = randomForest(rng, 1 + below(rng, 40), 700);
    int64_t nodeTokens = 0, nodeTiles = 0, rowTokens = 0, rowTiles = 0;
    std::vector<int64_t> below(nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i)
      for (int32_t at = static_cast<int32_t>(i); at >= 0; at = nodes[static_cast<size_t>(at)].parent) {
        const ForestNode &node = nodes[static_cast<size_t>(at)];
        below[static_cast<size_t>(at)] += nodes[i].rows;
        rowTokens += int64_t{nodes[i].rows} * node.tokens;
        rowTiles += int64_t{nodes[i].rows} * ((node.tokens + 63) / 64);
      }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int64_t reads = (below[i] * group + 127) / 128;
      nodeTokens += reads * nodes[i].tokens;
      nodeTiles += reads * ((nodes[i].tokens + 63) / 64);
    }
    for (Strategy strategy : strategies) {
      const bool byQuery = strategy == Strategy::ByQuery;
      const ForestStats stats = planned(w, nodes, strategy, 1 + static_cast<int>(rng() % 140));
      EXPECT_EQ(stats.kvBytes, (byQuery ? rowTokens : nodeTokens) * 2 * 256);
      EXPECT_EQ(stats.tiles, (byQuery ? rowTiles : nodeTiles) * 2);
      if (byQuery || strategy == Strategy::Flatten) {
        EXPECT_LT(static_cast<double>(stats.maxTiles) - stats.meanTiles(), 1.0);
      }
    }
  }
}

/// The planner of the runtime, given the same forest as instances with ranges of rows, counts the same if it
/// shares every node that several rows see.
TEST(Forest, agreesWithThePlanner) {
  Rng rng(11);
  for (int round = 0; round < 60; ++round) {
    const int group = 1 << below(rng, 4);
    SampleOptions sample;
    sample.kvHeads = 2;
    sample.qHeads = 2 * group;
    sample.visibility = visibility(Visibility::Kind::All);
    const Manifest m = sampleManifest(sample);
    const Workload w = model(2 * group, 2, sample.dim);
    std::vector<ForestNode> nodes = randomForest(rng, 1 + below(rng, 30), 900);
    for (ForestNode &node : nodes)
      node.tokens += 1000; // long enough to be worth sharing
    nodes.back().rows += 1;
    std::vector<int32_t> last(nodes.size()), first(nodes.size());
    Batch batch;
    batch.qStart = {0};
    for (size_t i = 0; i < nodes.size(); ++i) {
      first[i] = static_cast<int32_t>(batch.rows);
      for (int32_t row = 0; row < nodes[i].rows; ++row) {
        batch.qStart.push_back(static_cast<int32_t>(++batch.rows));
        batch.qPos.push_back(1 << 20);
      }
      for (int32_t at = static_cast<int32_t>(i); at >= 0; at = nodes[static_cast<size_t>(at)].parent)
        last[static_cast<size_t>(at)] = static_cast<int32_t>(batch.rows);
    }
    OperandBatch operand;
    for (size_t i = 0; i < nodes.size(); ++i) {
      operand.lengths.push_back(nodes[i].tokens);
      operand.pos0.push_back(0);
      operand.rowFirst.push_back(first[i]);
      operand.rowLast.push_back(last[i]);
    }
    batch.operands.push_back(operand);
    for (Strategy strategy : strategies) {
      PlanOptions options;
      options.strategy = strategy;
      options.blocks = 132;
      const Result<Plan> plan = makePlan(m, batch, options);
      ASSERT_TRUE(plan) << plan.error().message;
      const ForestStats stats = planned(w, nodes, strategy);
      EXPECT_EQ(stats.kvBytes, plan->stats.kvBytes);
      EXPECT_EQ(stats.tiles, plan->stats.tiles);
      EXPECT_EQ(stats.outputBytes, plan->stats.outputBytes);
      if (strategy == Strategy::ByNode || strategy == Strategy::ByNodeChunk) {
        EXPECT_EQ(stats.tasks, plan->stats.tasks);
        EXPECT_EQ(stats.partialBytes, plan->stats.partialBytes);
      }
    }
  }
}

TEST(Forest, sequenceNeedsNoPartials) {
  const Workload w = model();
  // One path in three nodes on one block is written directly, as one node would be.
  const std::vector<ForestNode> path{{-1, 640, 0}, {0, 64, 0}, {1, 128, 1}};
  const ForestStats cut = planned(w, path, Strategy::Flatten, 1);
  EXPECT_EQ(cut.partialBytes, 0);
  EXPECT_EQ(cut.tasks, 32);
  EXPECT_EQ(cut.tiles, 32 * 13);
  // By node, each of the 32 heads' row has three parts.
  EXPECT_EQ(planned(w, path, Strategy::ByNode, 1).partialBytes, 2 * 3 * 32 * 129 * 4);
  // Two shares cut between heads: still none. 64 shares cut each head once: two parts.
  EXPECT_EQ(planned(w, path, Strategy::ByQuery, 2).partialBytes, 0);
  EXPECT_EQ(planned(w, path, Strategy::ByQuery, 64).partialBytes, 2 * 2 * 32 * 129 * 4);
}

TEST(Forest, rowsOfANodeShareTiles) {
  // 33 rows x 4 heads of the group = 132 packed rows: two tiles, so the prompt is read twice per KV head.
  const Workload w = model(32, 8);
  const std::vector<ForestNode> nodes = fewShot(33, 10);
  EXPECT_EQ(planned(w, nodes, Strategy::Flatten).kvBytes, (2 * 4000 + 33 * 10) * 8 * 512);
  EXPECT_EQ(planned(w, fewShot(32, 10), Strategy::Flatten).kvBytes, (4000 + 32 * 10) * 8 * 512);
}

TEST(Forest, balanced) {
  Rng rng(3);
  for (const auto &[qHeads, kvHeads] : {std::pair{32, 32}, std::pair{32, 8}, std::pair{8, 1}})
    for (int round = 0; round < 100; ++round) {
      const ForestStats stats =
          planned(model(qHeads, kvHeads), randomForest(rng, 1 + below(rng, 100), 1500), Strategy::Flatten);
      const double excess = static_cast<double>(stats.maxTiles) - stats.meanTiles();
      EXPECT_LE(excess, 1);
      if (stats.meanTiles() >= 20) {
        EXPECT_LE(stats.balance(), 1.05);
      }
    }
}

TEST(Forest, edges) {
  const Workload w = model();
  for (Strategy strategy : strategies) {
    EXPECT_EQ(planned(w, {}, strategy).kvBytes, 0);
    EXPECT_EQ(planned(w, {{-1, 100, 0}}, strategy).kvBytes, 0); // no row reads it
    EXPECT_EQ(planned(w, {{-1, 0, 5}}, strategy).tiles, 0);
    EXPECT_EQ(planned(w, {{-1, 1, 1}}, strategy).kvBytes, 32 * 512);
  }
  // The largest numbers that pass are counted or refused, in no time.
  Workload large = model(1, 1);
  large.bytesPerTokenPerHead = INT32_MAX;
  const std::vector<ForestNode> nodes{{-1, INT32_MAX, INT32_MAX}};
  ASSERT_TRUE(checkForest(nodes, 1, "step"));
  for (Strategy strategy : strategies) {
    ForestPlanner planner(large, {strategy, 132});
    const Result<ForestStats> stats = planner.plan(nodes);
    ASSERT_FALSE(stats);
    EXPECT_NE(stats.error().message.find("bits"), std::string::npos);
  }
}

TEST(Forest, deterministic) {
  Rng rng(5);
  const Workload w = model(32, 8);
  const std::vector<ForestNode> nodes = randomForest(rng, 300, 900), others = randomForest(rng, 50, 90);
  for (Strategy strategy : strategies) {
    std::vector<std::vector<int64_t>> runs;
    ForestPlanner planner(w, {strategy, 132});
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(planner.plan(others)); // earlier plans of a planner change nothing
      ASSERT_TRUE(planner.plan(nodes));
      std::vector<int64_t> &pieces = runs.emplace_back();
      planner.forEachPiece([&](const ForestPiece &piece) {
        pieces.insert(pieces.end(), {piece.block, piece.workTile, piece.begin, piece.tiles});
      });
    }
    EXPECT_EQ(runs[0], runs[1]);
  }
}

} // namespace

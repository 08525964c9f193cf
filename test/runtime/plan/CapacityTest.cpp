//===- CapacityTest.cpp - Bounds that are known before the first step -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// A random forest as one operand: instances at any depth, rows on any of them.
Batch randomBatch(Rng &rng, size_t nodes, size_t most) {
  struct Node {
    int parent;
    int32_t tokens, rows;
  };
  std::vector<Node> forest;
  std::vector<int> path; // the nodes that may be the next node's parent
  for (size_t n = 0; n < nodes; ++n) {
    path.resize(below(rng, path.size() + 1));
    forest.push_back({path.empty() ? -1 : path.back(), static_cast<int32_t>(below(rng, most)),
                      static_cast<int32_t>(below(rng, 3) ? below(rng, 3) : below(rng, 40))});
    path.push_back(static_cast<int>(n));
  }
  Batch batch;
  batch.qStart = {0};
  OperandBatch &kv = batch.operands.emplace_back();
  std::vector<int32_t> ends;
  for (const Node &node : forest) {
    const auto above = static_cast<size_t>(node.parent);
    kv.lengths.push_back(node.tokens);
    kv.pos0.push_back(node.parent < 0 ? 0 : ends[above]);
    ends.push_back(kv.pos0.back() + node.tokens);
    kv.rowFirst.push_back(batch.qStart.back());
    kv.rowLast.push_back(batch.qStart.back() + node.rows);
    for (int32_t r = 0; r < node.rows; ++r)
      batch.qPos.push_back(std::max(ends.back() - node.rows + r, 0));
    if (node.rows > 0)
      batch.qStart.push_back(kv.rowLast.back());
    for (int at = node.parent; at >= 0; at = forest[static_cast<size_t>(at)].parent)
      kv.rowLast[static_cast<size_t>(at)] = kv.rowLast.back();
  }
  batch.rows = batch.qStart.back();
  return batch;
}

// One capacity, made from limits alone, holds every batch within them, with any options of the planner.
TEST(Capacity, HoldsEveryBatchWithinTheLimits) {
  Rng rng(41);
  int64_t fullest = 0; // fullest use of the tasks, in percent
  for (int round = 0; round < 120; ++round) {
    std::vector<HeadClassInfo> classes;
    for (size_t c = round % 3 ? 0 : 1 + below(rng, 3); c > 0; --c)
      classes.push_back({"class" + std::to_string(c), randomVisibility(rng)});
    const std::pair<int, int> heads[] = {{8, 2}, {7, 1}, {4, 4}};
    const auto [qHeads, kvHeads] = heads[below(rng, 3)];
    const Manifest m = sampleManifest({.qHeads = qHeads,
                                       .kvHeads = kvHeads,
                                       .visibility = randomVisibility(rng),
                                       .ends = {static_cast<int32_t>(below(rng, 400)), 60},
                                       .sinkLogits = below(rng, 2) == 1,
                                       .bigRows = 64,
                                       .keyAlign = below(rng, 2) ? 16 : 1,
                                       .headClasses = classes,
                                       .ragged = round % 4 == 1});
    std::vector<Batch> batches;
    PlanLimits limits;
    for (int b = 0; b < 4; ++b) {
      Batch &batch = batches.emplace_back(randomBatch(rng, 1 + below(rng, 12), round % 2 ? 3000 : 150));
      for (int h = 0; h < kvHeads && !classes.empty(); ++h)
        batch.classes.push_back(static_cast<int32_t>(below(rng, classes.size())));
      if (round % 4 == 1)
        makeRagged(m, batch, rng);
      limits = PlanLimits::larger(limits, PlanLimits::of(m, batch));
    }
    PlanOptions options;
    options.strategy = static_cast<Strategy>(below(rng, std::size(strategyNames)));
    options.blocks = static_cast<int>(1 + below(rng, 60));
    options.kernel = static_cast<int>(below(rng, 3)) - 1;
    options.quickest = round % 3 == 2;
    options.fixedSplit = below(rng, 3) ? 0 : 64 << below(rng, 4);
    options.gpu = round % 2 ? &slowGpu : &defaultGpu();
    const PlanCapacity capacity = planCapacity(m, limits, options);
    Planner planner(m, options, capacity);
    Plan plan;
    for (const Batch &batch : batches) {
      const Status planned = planner.plan(batch, plan);
      ASSERT_TRUE(planned) << planned.error().message;
      expectRight(m, batch, plan, capacity, options.fixedSplit == 0);
      if (HasFatalFailure())
        return;
      fullest = std::max(fullest, std::ssize(plan.tasks) * 100 / std::max<int64_t>(capacity.tasks, 1));
    }
  }
  EXPECT_GT(fullest, 60); // loose bounds would also hold
}

} // namespace

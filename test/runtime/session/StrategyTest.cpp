//===- StrategyTest.cpp - How work is divided moves rounding only -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarKernels.h"
#include "TestForest.h"
#include "attn_rt/device/HostDevice.h"

#include <gtest/gtest.h>
#include <map>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

// Slow enough that small problems are worth cutting.
constexpr GpuModel slowGpu{"slow", 1e9, 1e12, 1};

/// The scalar kernels' problem: a window, and in every third round two classes of heads.
Manifest manifestOf(int round, int32_t window) {
  SampleOptions sample{.ends = {window}, .bigRows = 64};
  if (round % 3 == 0) {
    sample.ends.push_back(70);
    sample.headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                          {"streaming", visibility(Visibility::Kind::Recent, 1)}};
  }
  return scalarManifest(sample);
}

TEST(Strategy, MovesOnlyRounding) {
  Rng rng(61);
  int64_t merged[4] = {};
  for (int round = 0; round < 12; ++round) {
    const Manifest manifest = manifestOf(round, below(rng, 2) ? 1 << 30 : 90);
    const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
    std::unique_ptr<HostDevice> device = makeHostDevice();
    Result<Session> session = Session::create(*device, manifest, {"scalar", {}, {}, kernels});
    ASSERT_TRUE(session) << session.error().message;

    // A prompt after which everything else branches, or a forest of any shape.
    TestForest forest = randomForest(rng, 1 + below(rng, 12), round % 2 ? 900 : 70);
    if (round % 4 == 1)
      for (TestNode &node : forest)
        node.parent = &node == &forest[0] ? -1 : 0;
    forest.back().rows = 1;
    TensorMap tensors = tensorsOf(manifest, forest, rng);
    if (!manifest.headClasses.empty())
      tensors["classes"] = Tensor::ofI32({2}, std::vector<int32_t>{1, 0});
    Result<Batch> batch = batchFromTensors(manifest, tensors);
    ASSERT_TRUE(batch) << batch.error().message;
    const TensorMap expected = attendReference(manifest, *batch, tensors);
    ASSERT_TRUE(session->bind(tensors, *batch));
    for (size_t s = 0; s < std::size(strategyNames); ++s)
      for (int blocks : {1, static_cast<int>(2 + below(rng, 40))}) {
        SCOPED_TRACE(std::string(strategyNames[s]) + " on " + std::to_string(blocks));
        PlanOptions options;
        options.strategy = static_cast<Strategy>(s);
        options.blocks = blocks;
        options.gpu = &slowGpu;
        Result<Plan> plan = makePlan(manifest, *batch, options);
        ASSERT_TRUE(plan) << plan.error().message;
        merged[s] += plan->partialRows;
        ASSERT_TRUE(session->reserve(planCapacity(manifest, PlanLimits::of(manifest, *batch), options)));
        Status ran = session->run(*plan);
        ASSERT_TRUE(ran) << ran.error().message;
        expectClose(*session->outputs(), expected);
        if (HasFatalFailure())
          return;
      }
  }
  for (size_t s = 0; s < std::size(merged); ++s)
    EXPECT_GT(merged[s], 0) << strategyNames[s];
}

/// The results of each row, by the node's number and the row's index within the node.
using Bits = std::map<std::pair<uint64_t, int32_t>, std::vector<uint8_t>>;

Bits bitsOf(const TensorMap &out, const TestForest &forest) {
  Bits bits;
  const auto rows = rowsOf(forest);
  for (size_t row = 0; row < rows.size(); ++row)
    for (const char *name : {"o", "lse"}) {
      const Tensor &tensor = out.at(name);
      const auto size = static_cast<int64_t>(tensor.bytes.size() / rows.size());
      const auto begin = tensor.bytes.begin() + static_cast<int64_t>(row) * size;
      std::vector<uint8_t> &own = bits[rows[row]];
      own.insert(own.end(), begin, begin + size);
    }
  return bits;
}

// Neighbours, blocks, strategy and extension of a plan change no bit; without a fixed split they do.
TEST(FixedSplit, NeighboursMoveNoBit) {
  Rng rng(67);
  int moved = 0, extended = 0;
  for (int round = 0; round < 12; ++round) {
    const Manifest manifest = manifestOf(round, round % 2 ? 1 << 30 : 150);
    const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
    std::unique_ptr<HostDevice> device = makeHostDevice();
    Session session = std::move(*Session::create(*device, manifest, {"scalar", {}, {}, kernels}));
    TestForest forest = randomForest(rng, 2 + below(rng, 5), 500);
    forest.back().rows = 1;
    std::optional<Bits> first, free;
    for (int variant = 0; variant < 8; ++variant) {
      SCOPED_TRACE("round " + std::to_string(round) + ", variant " + std::to_string(variant));
      const TestForest all =
          variant % 2 ? withNeighbours(forest, rng, 1 + below(rng, 6), variant % 4 == 1 ? 500 : 60) : forest;
      TensorMap tensors = tensorsOf(manifest, all, rng);
      if (!manifest.headClasses.empty())
        tensors["classes"] = Tensor::ofI32({2}, std::vector<int32_t>{1, 0});
      const Batch batch = *batchFromTensors(manifest, tensors);
      PlanOptions options;
      options.strategy = static_cast<Strategy>(below(rng, std::size(strategyNames)));
      options.blocks = static_cast<int>(1 + below(rng, 30));
      options.gpu = variant % 3 ? &slowGpu : &defaultGpu();
      options.fixedSplit = 128;
      ASSERT_TRUE(session.bind(tensors, batch));
      const auto run = [&](const Plan &plan) {
        EXPECT_TRUE(session.reserve(planCapacity(manifest, PlanLimits::of(manifest, batch), options)));
        const Status ran = session.run(plan);
        EXPECT_TRUE(ran) << ran.error().message;
        Bits bits = bitsOf(*session.outputs(), all), own;
        for (const auto &row : rowsOf(forest))
          own[row] = bits.at(row);
        return own;
      };
      Planner planner(manifest, options, planCapacity(manifest, PlanLimits::of(manifest, batch), options));
      Plan plan;
      Batch before = batch; // a step ago
      for (int32_t &position : before.qPos)
        position = std::max(position - 1, 0);
      for (int32_t &length : before.operands[0].lengths)
        length = std::max(length - 1, 0);
      ASSERT_TRUE(planner.plan(before, plan));
      const Result<bool> inPlace = planner.update(batch, plan);
      ASSERT_TRUE(inPlace) << inPlace.error().message;
      extended += *inPlace;
      const Bits bits = run(plan);
      if (!first)
        first = bits;
      EXPECT_TRUE(bits == *first);
      options.fixedSplit = 0;
      const Bits others = run(*makePlan(manifest, batch, options));
      if (!free)
        free = others;
      moved += others != *free;
      if (HasFatalFailure())
        return;
    }
  }
  EXPECT_GT(moved, 20); // otherwise the test shows nothing
  EXPECT_GT(extended, 5);
}

} // namespace

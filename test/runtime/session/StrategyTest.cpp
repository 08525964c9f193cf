//===- StrategyTest.cpp - How work is divided moves rounding only -----------===//
#include "ScalarKernels.h"
#include "TestForest.h"
#include "attn_rt/HostDevice.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

// Slow enough that small problems are worth cutting.
constexpr GpuModel slowGpu{"slow", 1e9, 1e12, 1};

void expectClose(const TensorMap &got, const TensorMap &expected) {
  for (const char *name : {"o", "lse"}) {
    const std::vector<double> a = got.at(name).toDoubles(), b = expected.at(name).toDoubles();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 2e-5) << name << " " << i;
  }
}

TEST(Strategy, MovesOnlyRounding) {
  Rng rng(61);
  int64_t merged[4] = {};
  for (int round = 0; round < 12; ++round) {
    SampleOptions sample{.ends = {below(rng, 2) ? 1 << 30 : 90}, .bigRows = 64};
    if (round % 3 == 0) {
      sample.ends.push_back(70);
      sample.headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                            {"streaming", visibility(Visibility::Kind::Recent, 1)}};
    }
    const Manifest manifest = scalarManifest(sample);
    const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
    std::unique_ptr<HostDevice> device = makeHostDevice();
    Result<Session> session = Session::create(*device, manifest, {"scalar", {}, {}, kernels});
    ASSERT_TRUE(session) << session.error().message;

    // A prompt behind which everything else branches, or a forest of any shape.
    TestForest forest = randomForest(rng, 1 + below(rng, 12), round % 2 ? 900 : 70);
    if (round % 4 == 1)
      for (TestNode &node : forest)
        node.parent = &node == &forest[0] ? -1 : 0;
    forest.back().rows = 1;
    TensorMap tensors = tensorsOf(manifest, forest, rng);
    if (!sample.headClasses.empty())
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

} // namespace

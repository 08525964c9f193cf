//===- RecordingTest.cpp - One launch for plans of any lengths --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarKernels.h"
#include "TestForest.h"
#include "attn_rt/device/HostDevice.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

// Slow enough that small problems are worth cutting.
constexpr GpuModel slowGpu{"slow", 1e9, 1e12, 1};

struct Fixture {
  Manifest manifest;
  std::vector<host::HostKernel> kernels;
  std::unique_ptr<HostDevice> device = makeHostDevice();
  PlanOptions options;

  explicit Fixture(int32_t window = 1 << 30)
      : manifest(scalarManifest({.ends = {window}, .bigRows = 64})), kernels(scalarKernels(manifest)) {
    options.blocks = 13;
    options.kernel = 0;
    options.gpu = &slowGpu;
  }
  Session session() { return std::move(*Session::create(*device, manifest, {"scalar", {}, {}, kernels})); }
};

/// Pads a batch's tensors to the size of the largest batch, with rows that no sequence has, instances that no
/// row sees, and pages that no table names.
TensorMap padded(const TensorMap &tensors, const TensorMap &largest) {
  TensorMap all = largest;
  for (auto &[name, tensor] : all) {
    const Tensor &part = tensors.at(name);
    if (tensor.dtype == DType::I32)
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), uint8_t{0});
    if (name == "q_start") // the further rows are a sequence that sees nothing
      for (int64_t i = part.elements(); i < tensor.elements(); ++i)
        tensor.set(i, static_cast<double>(largest.at("q").shape[0]));
    if (name == "kv.block_table") {
      for (int64_t i = 0; i < part.shape[0]; ++i)
        for (int64_t j = 0; j < part.shape[1]; ++j)
          tensor.set(i * tensor.shape[1] + j, part.get(i * part.shape[1] + j));
      continue;
    }
    std::copy(part.bytes.begin(), part.bytes.end(), tensor.bytes.begin());
  }
  return all;
}

// Ten steps in which leaves grow and branch. The recorded launch is of a plan with nothing to merge.
TEST(Recording, ServesAGrowingForest) {
  for (int32_t window : {1 << 30, 60}) {
    SCOPED_TRACE("window " + std::to_string(window));
    Rng rng(71);
    Fixture f(window);
    const TestForest small{{0, -1, 30, 1}};
    std::vector<TestForest> steps{{{0, -1, 300, 0}, {1, 0, 40, 1}, {2, 0, 5, 1}, {3, -1, 9, 2}}};
    while (steps.size() < 9) {
      TestForest next = steps.back();
      for (TestNode &node : next)
        if (node.rows > 0)
          node.tokens += static_cast<int32_t>(1 + below(rng, 90));
      steps.push_back(withNeighbours(next, rng, 1 + below(rng, 2), 200));
    }
    TestForest most = steps.back();
    steps.push_back(small);
    most.push_back({1000, -1, 1500, 1}); // room for every table's columns and every page
    const TensorMap largest = tensorsOf(f.manifest, most, rng);
    TensorMap first = padded(tensorsOf(f.manifest, small, rng), largest);
    ASSERT_TRUE(addDefaults(f.manifest, first));
    Result<Batch> parsed = batchFromTensors(f.manifest, first);
    ASSERT_TRUE(parsed) << parsed.error().message;
    Batch batch = *parsed;

    PlanLimits limits;
    limits.rows = limits.groups = batch.rows;
    limits.instancesPerRow = static_cast<int64_t>(most.size());
    limits.sharedInstances = static_cast<int64_t>(most.size());
    limits.sharedRows = limits.sharedInstances * limits.rows;
    const PlanCapacity capacity = planCapacity(f.manifest, limits, f.options);
    Planner planner(f.manifest, f.options, capacity);
    Session session = f.session();
    ASSERT_TRUE(session.bind(first, batch));
    ASSERT_TRUE(session.reserve(capacity));
    Plan plan;
    ASSERT_TRUE(planner.plan(batch, plan));
    EXPECT_TRUE(plan.mergeRows.empty());
    ASSERT_TRUE(session.setPlan(plan));
    ASSERT_TRUE(session.fixLaunch());
    ASSERT_TRUE(f.device->beginRecording());
    ASSERT_TRUE(session.launch());
    Result<std::unique_ptr<Recording>> recording = f.device->endRecording();
    ASSERT_TRUE(recording) << recording.error().message;

    int merged = 0;
    for (const TestForest &step : steps) {
      TensorMap tensors = padded(tensorsOf(f.manifest, step, rng), largest);
      batch = *batchFromTensors(f.manifest, tensors);
      Status bound = session.bind(tensors, batch);
      ASSERT_TRUE(bound) << bound.error().message;
      ASSERT_TRUE(planner.plan(batch, plan));
      merged += !plan.mergeRows.empty();
      ASSERT_TRUE(session.poison());
      Status set = session.setPlan(plan);
      ASSERT_TRUE(set) << set.error().message;
      Status replayed = f.device->replay(**recording);
      ASSERT_TRUE(replayed) << replayed.error().message;
      const TensorMap out = *session.outputs(), expected = attendReference(f.manifest, batch, tensors);
      for (const char *name : {"o", "lse"}) {
        const std::vector<double> a = out.at(name).toDoubles(), b = expected.at(name).toDoubles();
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_NEAR(a[i], b[i], 2e-5) << name << " " << i;
      }
    }
    EXPECT_GT(merged, window > 1000 ? 5 : 0);
  }
}

TEST(Recording, WhatDoesNotFitIsRefused) {
  Rng rng(73);
  Fixture f(70);
  Session session = f.session();
  EXPECT_EQ(session.fixLaunch().error().message, "fixLaunch of 'decode' before a plan was set");
  TensorMap tensors = tensorsOf(f.manifest, {{0, -1, 900, 1}, {1, -1, 40, 1}}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  const PlanCapacity capacity = planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), f.options);
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.reserve(capacity));
  ASSERT_TRUE(session.setPlan(*makePlan(f.manifest, batch, f.options)));
  ASSERT_TRUE(session.fixLaunch());
  const DeviceAddress q = session.address("q");

  PlanOptions other = f.options;
  other.blocks = 7;
  EXPECT_EQ(session.setPlan(*makePlan(f.manifest, batch, other)).error().message,
            "launches of 'decode' were fixed for kernel 'decode_rows16' on 13 blocks, and the plan is for "
            "'decode_rows16' on 7: plan with PlanOptions::kernel = 0 and blocks = 13");
  other = f.options;
  other.kernel = 1;
  EXPECT_NE(
      session.setPlan(*makePlan(f.manifest, batch, other)).error().message.find("'decode_rows64' on 13"),
      std::string::npos);
  Batch narrow = batch;
  narrow.ends = {5};
  EXPECT_EQ(session.setPlan(*makePlan(f.manifest, narrow, f.options)).error().message,
            "launches of 'decode' were fixed with windows and sinks of 70, and the plan has 5");
  PlanCapacity more = capacity;
  more.tasks += 100;
  EXPECT_NE(session.reserve(more).error().message.find("reserve the most before fixLaunch"),
            std::string::npos);
  EXPECT_EQ(
      session.bindAddress("q", 4096).error().message,
      "'q' is the session's own in launches that were fixed: bind the caller's memory before fixLaunch");

  // A larger batch, and one whose tables have as many bytes in other rows.
  TensorMap larger = tensorsOf(f.manifest, {{0, -1, 900, 2}, {1, -1, 40, 1}}, rng);
  EXPECT_NE(
      session.bind(larger, *batchFromTensors(f.manifest, larger)).error().message.find("'q' has 1024 bytes"),
      std::string::npos);
  EXPECT_EQ(session.address("q"), q);
  TensorMap turned = tensors;
  for (const char *name : {"kv.lengths", "kv.pos0"})
    turned[name] = Tensor::ofI32({1}, std::vector<int32_t>{900 * (name[3] == 'l')});
  turned["kv.rows"] = Tensor::ofI32({1, 2}, std::vector<int32_t>{0, 1});
  turned["kv.block_table"].shape = {1, 2 * turned["kv.block_table"].shape[1]};
  const std::string message = session.bind(turned, *batchFromTensors(f.manifest, turned)).error().message;
  EXPECT_EQ(message.find("dimension 'kv.max_pages' is 114, and launches were fixed with 57: "), 0u)
      << message;
}

} // namespace

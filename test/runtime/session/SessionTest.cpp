//===- SessionTest.cpp - Tests: A kernel's buffers on a device ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/Session.h"
#include "SessionFixture.h"
#include "attn_rt/host/Abi.h"
#include "attn_rt/host/TensorMap.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <mutex>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

// Tests planner, session and host device together against the definition: whole and cut, window and full.
TEST(Session, ComputesAttention) {
  Rng rng(23);
  for (int32_t window : {1 << 30, 70}) {
    Fixture f(window);
    Result<Session> session = f.session();
    ASSERT_TRUE(session) << session.error().message;
    int cuts = 0;
    for (int round = 0; round < 6; ++round) {
      std::vector<int32_t> lengths, rows;
      for (size_t s = 1 + below(rng, 4); s > 0; --s) {
        lengths.push_back(static_cast<int32_t>(below(rng, round % 2 ? 1500 : 100)));
        const auto most = std::max(lengths.back(), 1); // with more rows, the first row would see nothing
        rows.push_back(std::min(static_cast<int32_t>(below(rng, 3)) + 1, most));
      }
      TensorMap tensors = problem(f.manifest, lengths, rows, rng);
      ASSERT_TRUE(addDefaults(f.manifest, tensors));
      Result<Batch> batch = batchFromTensors(f.manifest, tensors);
      ASSERT_TRUE(batch) << batch.error().message;
      PlanOptions options;
      options.blocks = static_cast<int>(1 + below(rng, 40));
      options.gpu = &slowGpu;
      Result<Plan> plan = makePlan(f.manifest, *batch, options);
      ASSERT_TRUE(plan);
      cuts += plan->stats.cuts > 0;
      ASSERT_TRUE(session->bind(tensors, *batch));
      ASSERT_TRUE(session->reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, *batch), options)));
      Status ran = session->run(*plan);
      ASSERT_TRUE(ran) << ran.error().message;
      Result<TensorMap> out = session->outputs();
      ASSERT_TRUE(out);
      expectClose(*out, attendReference(f.manifest, *batch, tensors));
      if (HasFatalFailure())
        return;
    }
    if (window > 1000)
      EXPECT_GT(cuts, 0);
  }
}

TEST(Session, RepeatedRunsReuseTheirBuffers) {
  Rng rng(29);
  Fixture f(1 << 30);
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {900, 40}, {1, 1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  PlanOptions options;
  options.blocks = 9;
  options.gpu = &slowGpu;
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), options)));
  const DeviceAddress o = session.address("o"), tasks = session.address("plan.tasks");
  EXPECT_NE(o, 0u);
  ASSERT_TRUE(session.run(*makePlan(f.manifest, batch, options)));
  const TensorMap first = *session.outputs();
  // Another plan of the same batch with other windows at run time, then the first plan again.
  Batch narrow = batch;
  narrow.ends = {5};
  ASSERT_TRUE(session.run(*makePlan(f.manifest, narrow, options)));
  expectClose(*session.outputs(), attendReference(f.manifest, narrow, tensors));
  ASSERT_TRUE(session.run(*makePlan(f.manifest, batch, options)));
  EXPECT_EQ(session.outputs()->at("o").bytes, first.at("o").bytes);
  ASSERT_TRUE(session.bind(tensors, batch));
  EXPECT_EQ(session.address("o"), o);
  EXPECT_EQ(session.address("plan.tasks"), tasks);
}

// Two layers with other heads in their classes run one plan; a layer with other numbers of heads is refused.
TEST(Session, LayersShareAPlan) {
  Rng rng(43);
  Fixture f({.ends = {1 << 30, 70},
             .bigRows = 64,
             .headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                             {"streaming", visibility(Visibility::Kind::Recent, 1)}}});
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {900, 40, 2000}, {1, 2, 1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  PlanOptions options;
  options.blocks = 9;
  options.gpu = &slowGpu;
  std::optional<Plan> plan;
  for (const std::vector<int32_t> &classes : {std::vector<int32_t>{0, 1}, std::vector<int32_t>{1, 0}}) {
    tensors["classes"] = Tensor::ofI32({2}, classes);
    const Batch batch = *batchFromTensors(f.manifest, tensors);
    ASSERT_TRUE(session.bind(tensors, batch));
    if (!plan) {
      plan = *makePlan(f.manifest, batch, options);
      EXPECT_GT(plan->stats.cuts, 0);
      ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), options)));
    }
    ASSERT_TRUE(session.run(*plan));
    expectClose(*session.outputs(), attendReference(f.manifest, batch, tensors));
  }
  // The caller's own permutation, as for a layer of a model.
  Buffer layer = std::move(*Buffer::create(*f.device, 8, "layer"));
  const int32_t slots[] = {0, 1};
  ASSERT_TRUE(f.device->copyIn(layer.address(), slots, 8));
  ASSERT_TRUE(session.bindAddress("ordinal_heads", layer.address()));
  ASSERT_TRUE(session.run(*plan));
  tensors["classes"] = Tensor::ofI32({2}, std::vector<int32_t>{0, 1});
  expectClose(*session.outputs(),
              attendReference(f.manifest, *batchFromTensors(f.manifest, tensors), tensors));

  tensors["classes"] = Tensor::ofI32({2}, std::vector<int32_t>{1, 1});
  ASSERT_TRUE(session.bind(tensors, *batchFromTensors(f.manifest, tensors)));
  EXPECT_EQ(
      session.run(*plan).error().message,
      "the plan of 'decode' was made for 1 retrieval, 1 streaming heads, but 'classes' says 0 retrieval, "
      "2 streaming");
}

// If heads have lengths of their own, the heads of a class matter, not only their number.
TEST(Session, LayersOfRaggedHeadsDoNotShareAPlan) {
  Rng rng(44);
  SampleOptions options{.ends = {1 << 30},
                        .headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                                        {"streaming", visibility(Visibility::Kind::Causal)}},
                        .ragged = true};
  Fixture f(options);
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {100, 40}, {1, 1}, rng);
  tensors["kv.lengths"] = Tensor::ofI32({2, 2}, std::vector<int32_t>{100, 30, 40, 7});
  const auto columns = static_cast<size_t>(tensors["kv.block_table"].shape[1]);
  std::vector<int32_t> table;
  for (size_t i = 0; i < 4; ++i) {
    const auto row = tensors["kv.block_table"].as<int32_t>().subspan(i / 2 * columns, columns);
    table.insert(table.end(), row.begin(), row.end());
  }
  tensors["kv.block_table"] = Tensor::ofI32({2, 2, static_cast<int64_t>(columns)}, table);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  const auto bind = [&](std::vector<int32_t> classes) {
    tensors["classes"] = Tensor::ofI32({2}, classes);
    const Result<Batch> batch = batchFromTensors(f.manifest, tensors);
    EXPECT_TRUE(batch) << batch.error().message;
    EXPECT_TRUE(session.bind(tensors, *batch));
    return *batch;
  };
  const Batch batch = bind({0, 1});
  const Plan plan = *makePlan(f.manifest, batch);
  EXPECT_EQ(plan.ordinalHeads, (std::vector<int32_t>{0, 1}));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  bind({1, 0});
  EXPECT_EQ(
      session.run(plan).error().message,
      "the plan of 'decode' was made for other 'classes': where heads are ragged each has work of its own, "
      "and a layer needs a plan of its own");
  options.operands = 2; // a store of one class counts heads within the class
  options.apart = true;
  EXPECT_FALSE(sampleManifest(options).plansByHead());
}

std::vector<uint32_t> noted; ///< blocks of each launch of the kernel that follows
void noteGrid(host::LaneAbi *lane, void **) {
  if (lane->special[host::CtaidX] == 0 && lane->special[host::TidX] == 0)
    noted.push_back(lane->special[host::NctaidX]);
}

// The runtime knows no such launch: warps that walk the rows to merge once more, two at a time.
TEST(Session, WalksTheListOfLaunches) {
  Rng rng(61);
  Fixture f(1 << 30);
  KernelInfo after = f.manifest.kernels.back();
  after.name = "after_merge";
  after.params.clear();
  after.rowsPerWarp = 2;
  after.warps = 1;
  host::HostKernel &noting = f.kernels.emplace_back();
  noting.name = after.name;
  noting.entry = noteGrid;
  for (bool onlyIfFilled : {true, false}) {
    Manifest &m = f.manifest;
    m.kernels.resize(3);
    m.launches.resize(2);
    m.addKernel(after, {.grid = PlanArray::MergeRows, .onlyIfFilled = onlyIfFilled});
    ASSERT_EQ(m.launches.size(), 3u);
    ASSERT_TRUE(parseManifest(writeManifest(m)));
    Session session = *f.session();
    for (int32_t length : {900, 10}) { // cut, and whole
      TensorMap tensors = problem(m, {length}, {1}, rng);
      ASSERT_TRUE(addDefaults(m, tensors));
      const Batch batch = *batchFromTensors(m, tensors);
      PlanOptions options;
      options.blocks = 9;
      options.gpu = &slowGpu;
      const Plan plan = *makePlan(m, batch, options);
      ASSERT_EQ(plan.mergeRows.empty(), length == 10);
      const PlanCapacity capacity = planCapacity(m, PlanLimits::of(m, batch), options);
      ASSERT_TRUE(session.bind(tensors, batch));
      ASSERT_TRUE(session.reserve(capacity));
      noted.clear();
      ASSERT_TRUE(session.run(plan));
      expectClose(*session.outputs(), attendReference(m, batch, tensors));
      const auto blocks = static_cast<uint32_t>(std::max<size_t>((plan.mergeRows.size() + 1) / 2, 1));
      EXPECT_EQ(noted, plan.mergeRows.empty() && onlyIfFilled ? std::vector<uint32_t>()
                                                              : std::vector<uint32_t>{blocks});
    }
    // A fixed launch is made with or without elements, for as many as there may be.
    noted.clear();
    ASSERT_TRUE(session.fixLaunch());
    ASSERT_TRUE(session.launch());
    ASSERT_EQ(noted.size(), 1u);
    const int64_t resident = int64_t{f.device->properties().multiprocessors} * after.blocksPerSM;
    EXPECT_LE(noted[0], resident);
    EXPECT_GE(noted[0], 1u);
  }
}

TEST(Session, PoisonLeavesNothingOld) {
  Rng rng(31);
  Fixture f(1 << 30);
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {10}, {1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  ASSERT_TRUE(session.run(*makePlan(f.manifest, batch)));
  EXPECT_FALSE(std::isnan(session.outputs()->at("o").get(0)));
  ASSERT_TRUE(session.poison());
  EXPECT_TRUE(std::isnan(session.outputs()->at("o").get(0)));
  EXPECT_TRUE(std::isnan(session.outputs()->at("lse").get(0)));
}

TEST(Session, MemoryOfTheCaller) {
  Rng rng(37);
  Fixture f(1 << 30);
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {10}, {1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  ASSERT_TRUE(session.bind(tensors, batch));
  Buffer mine = std::move(*Buffer::create(*f.device, tensors["q"].bytes.size(), "mine"));
  ASSERT_TRUE(f.device->fill(mine.address(), 0, mine.bytes()));
  ASSERT_TRUE(session.bindAddress("q", mine.address()));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  ASSERT_TRUE(session.run(*makePlan(f.manifest, batch)));
  tensors["q"].fill(0);
  expectClose(*session.outputs(), attendReference(f.manifest, batch, tensors));
  EXPECT_EQ(session.bindAddress("kv.k", 0).error().message, "no kernel of 'decode' has a buffer 'kv.k'");
}

// The scalar kernels with a tensor map as a further parameter, which they record, in the threads of all
// blocks.
host::TensorMapBits seenMap;
void noteMap(host::LaneAbi *, void **args) {
  static std::mutex guard;
  const std::scoped_lock lock(guard);
  std::memcpy(&seenMap, args[16], sizeof seenMap);
}

struct MapFixture : Fixture {
  Buffer memory;
  MapFixture() : Fixture(1 << 30) {
    manifest.tensorMaps.push_back(
        sampleTensorMap({.kvHeads = manifest.kvHeads, .dim = manifest.keyDim}, manifest.dtype));
    for (size_t i = 0; i < manifest.kernels.size(); ++i)
      if (manifest.kernels[i].role == KernelInfo::Role::Attend) {
        manifest.kernels[i].params.push_back({Parameter::Kind::Map, "kv.k.map0", 0});
        kernels[i].entry = noteMap;
      }
  }
};

TEST(Session, TensorMapsFollowAddressesAndDimensions) {
  Rng rng(43);
  MapFixture f;
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {10, 40}, {1, 1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  Plan plan = *makePlan(f.manifest, batch);
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  ASSERT_TRUE(session.run(plan));
  const auto pages = static_cast<uint64_t>(tensors["kv.k_pages"].shape[0]);
  EXPECT_EQ(seenMap.mark, host::TensorMapBits::kMark);
  EXPECT_EQ(seenMap.base, session.address("kv.k_pages"));
  EXPECT_EQ(seenMap.rank, 3);
  EXPECT_EQ(seenMap.extents[0], 16u);
  EXPECT_EQ(seenMap.extents[1], pages * 16);
  EXPECT_EQ(seenMap.extents[2], 2u);
  EXPECT_EQ(seenMap.strides[0], 4u);
  EXPECT_EQ(seenMap.strides[1], 128u);
  EXPECT_EQ(seenMap.strides[2], 64u);
  EXPECT_EQ(seenMap.box[0], 16);
  EXPECT_EQ(seenMap.boxBytes(), 512u);
  EXPECT_EQ(seenMap.swizzle, 64);

  session.setDim("kv.pages", 2);
  ASSERT_TRUE(session.run(plan));
  EXPECT_EQ(seenMap.extents[1], 32u);
  Buffer mine = std::move(*Buffer::create(*f.device, 4096, "mine"));
  ASSERT_TRUE(session.bindAddress("kv.k_pages", mine.address()));
  ASSERT_TRUE(session.run(plan));
  EXPECT_EQ(seenMap.base, mine.address());
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.run(plan));
  EXPECT_EQ(seenMap.base, session.address("kv.k_pages"));
  EXPECT_EQ(seenMap.extents[1], pages * 16);
}

// Without any pages, the kernel runs, and its copies read zeros.
TEST(Session, TensorMapOfACacheWithoutPages) {
  Rng rng(47);
  MapFixture f;
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {0}, {1}, rng);
  for (const char *name : {"kv.k_pages", "kv.v_pages"})
    tensors[name] = Tensor(f.manifest.dtype, {0, 16, f.manifest.kvHeads, f.manifest.keyDim});
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Result<Batch> batch = batchFromTensors(f.manifest, tensors);
  ASSERT_TRUE(batch) << batch.error().message;
  ASSERT_TRUE(session.bind(tensors, *batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, *batch), {})));
  seenMap = {};
  Status ran = session.run(*makePlan(f.manifest, *batch));
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(seenMap.rank, 3);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(seenMap.extents[i], 1u);
  EXPECT_NE(seenMap.base, session.address("kv.k_pages"));
  uint8_t bytes[16];
  ASSERT_TRUE(f.device->copyOut(bytes, seenMap.base, sizeof bytes));
  for (uint8_t byte : bytes)
    EXPECT_EQ(byte, 0);
}

TEST(Session, TensorMapErrors) {
  Rng rng(53);
  MapFixture f;
  Session session = *f.session();
  TensorMap tensors = problem(f.manifest, {10}, {1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  Plan plan = *makePlan(f.manifest, batch);
  ASSERT_TRUE(session.bind(tensors, batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  const auto error = [&] {
    Status status = session.run(plan);
    return status ? "no error" : status.error().message;
  };
  session.setDim("kv.pages", 5);
  EXPECT_EQ(error(), "tensor map 'kv.k.map0': reaches over 10240 bytes of 'kv.k_pages', which has 8192");
  session.setDim("kv.pages", -5);
  EXPECT_EQ(error(), "tensor map 'kv.k.map0': dimension 'kv.pages' is -5");
  Buffer mine = std::move(*Buffer::create(*f.device, 8192, "mine"));
  ASSERT_TRUE(session.bindAddress("kv.k_pages", mine.address() + 8));
  session.setDim("kv.pages", 4);
  EXPECT_NE(error().find("expected a base address that is a multiple of 16"), std::string::npos) << error();
  ASSERT_TRUE(session.bindAddress("kv.k_pages", mine.address()));
  session.setDim("kv.pages", 1 << 30);
  EXPECT_EQ(error(),
            "kv: expected pages that lie within 2^31 tokens, got 1073741824 of them 16 tokens apart");
  session.setDim("kv.pages", 4); // an error has no lasting effect
  EXPECT_EQ(error(), "no error");

  f.manifest.kernels[0].params.back().name = "kv.k.map1";
  EXPECT_EQ(f.session().error().message,
            "kernel 'decode_rows16' needs tensor map 'kv.k.map1', which the manifest has not");
  f.manifest.kernels[0].params.back().name = "kv.k.map0";
  f.manifest.tensorMaps[0].dims[1].of = {"kv.pagez"};
  Session other = *f.session();
  ASSERT_TRUE(other.bind(tensors, batch));
  ASSERT_TRUE(other.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  EXPECT_EQ(other.run(plan).error().message, "tensor map 'kv.k.map0': dimension 'kv.pagez' is not set");
}

TEST(Session, Errors) {
  Rng rng(41);
  Fixture f(1 << 30);
  std::vector<host::HostKernel> few(f.kernels.begin(), f.kernels.end() - 1);
  EXPECT_EQ(Session::create(*f.device, f.manifest, {"scalar", {}, {}, few}).error().message,
            "host: module 'scalar' has no kernel 'decode_merge'");
  EXPECT_EQ(Session::create(*f.device, f.manifest, {"scalar", ".version 7.0", {}, {}}).error().message,
            "host: module 'scalar' has no code for this device");
  Session session = *f.session();
  EXPECT_EQ(session.launch().error().message, "launch of 'decode' before a plan was set");
  EXPECT_EQ(session.outputs().error().message, "'o' is not bound");
  TensorMap tensors = problem(f.manifest, {10}, {1}, rng);
  ASSERT_TRUE(addDefaults(f.manifest, tensors));
  Batch batch = *batchFromTensors(f.manifest, tensors);
  Plan plan = *makePlan(f.manifest, batch);
  EXPECT_EQ(session.run(plan).error().message,
            "the plan fills 3 elements of 'plan.block_tasks', but the session has reserved 1");
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  EXPECT_EQ(session.run(plan).error().message, "kernel 'decode_rows16' needs buffer 'q', which is not bound");
  ASSERT_TRUE(session.bind(tensors, batch));
  EXPECT_TRUE(session.run(plan));
  Plan other = plan;
  other.kernel = 2;
  EXPECT_EQ(session.run(other).error().message, "the plan was made for another kernel than 'decode'");
  Plan large = plan;
  large.tasks.resize(1000);
  EXPECT_EQ(session.run(large).error().message,
            "the plan fills 1000 elements of 'plan.tasks', but the session has reserved 266");
  Session unset = *f.session();
  ASSERT_TRUE(unset.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, batch), {})));
  TensorMap partial = tensors;
  partial.erase("kv.block_table");
  ASSERT_TRUE(unset.bind(partial, batch));
  ASSERT_TRUE(unset.bindAddress("kv.block_table", session.address("kv.block_table")));
  EXPECT_EQ(unset.run(plan).error().message,
            "kernel 'decode_rows16' needs dimension 'kv.max_pages', which is not set");
  unset.setDim("kv.max_pages", 1);
  EXPECT_TRUE(unset.run(plan));
}

} // namespace

//===- SlotsTest.cpp - Sessions over memory of the caller's ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SessionFixture.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The data of a problem, in device memory of the caller's.
struct Data {
  std::map<std::string, Buffer> buffers;
  TensorMap results;

  Data(Device &device, const Manifest &manifest, const TensorMap &tensors, const Batch &batch) {
    results["o"] = Tensor(manifest.dtype, {batch.rows, manifest.qHeads, manifest.valueDim});
    results["lse"] = Tensor(DType::F32, {batch.rows, manifest.qHeads});
    for (const TensorMap *map : {&tensors, static_cast<const TensorMap *>(&results)})
      for (const auto &[name, tensor] : *map) {
        buffers[name] = std::move(*Buffer::create(device, tensor.bytes.size(), name));
        if (map == &tensors)
          EXPECT_TRUE(device.copyIn(buffers[name].address(), tensor.bytes.data(), tensor.bytes.size()));
      }
  }
  void bind(Session &session) {
    for (const char *name : {"q", "kv.k_pages", "kv.v_pages", "o", "lse", "sink_logits"})
      if (Result<int> slot = session.slot(name))
        session.bind(*slot, buffers[name].address());
  }
  const TensorMap &read(Device &device) {
    for (auto &[name, tensor] : results)
      EXPECT_TRUE(device.copyOut(tensor.bytes.data(), buffers[name].address(), tensor.bytes.size()));
    return results;
  }
};

/// A problem that the kernels can run.
struct Problem {
  TensorMap tensors;
  Batch batch;
  PlanOptions options;
  Plan plan;

  Problem(const Fixture &f, const std::vector<int32_t> &lengths, const std::vector<int32_t> &rows, Rng &rng)
      : tensors(problem(f.manifest, lengths, rows, rng)) {
    EXPECT_TRUE(addDefaults(f.manifest, tensors));
    batch = *batchFromTensors(f.manifest, tensors);
    options.blocks = 9;
    options.gpu = &slowGpu;
    plan = *makePlan(f.manifest, batch, options);
  }
};

// The scalar kernels take no strides, so the test inspects the launch's dimensions.
TEST(Slots, StridesAreDimensionsOfTheNextLaunch) {
  Rng rng(72);
  Fixture f(1 << 30);
  for (KernelInfo &kernel : f.manifest.kernels)
    for (const char *name : {"q.stride0", "q.stride1", "kv.k_pages.stride1", "kv.outer_slots"})
      kernel.params.push_back({Parameter::Kind::Dim, name, 0});
  Problem p(f, {100, 7}, {1, 2}, rng);
  Data data(*f.device, f.manifest, p.tensors, p.batch);
  Session session = *f.session();
  ASSERT_TRUE(session.bindTables(p.batch));
  ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, p.batch), p.options)));
  ASSERT_TRUE(session.setPlan(p.plan));
  data.bind(session);
  ASSERT_TRUE(session.launch());

  const int64_t head = f.manifest.keyDim * 4, row = head * f.manifest.qHeads;
  const int q = *session.slot("q");
  const DeviceAddress address = data.buffers["q"].address();
  const std::vector<int64_t> dense = {row, head, 4}, fused = {3 * row, head, 4}, odd = {row + 4, head, 4};
  session.bind(q, address, fused);
  ASSERT_TRUE(session.checkStrides());
  EXPECT_EQ(session.slotSpan(q), (p.batch.rows - 1) * 3 * row + row);
  session.bind(q, address, odd);
  EXPECT_NE(session.launch().error().message.find("q: expected strides that are multiples of 16 bytes"),
            std::string::npos);
  session.bind(q, address, dense);
  ASSERT_TRUE(session.launch());
  session.bind(q, address);
  ASSERT_TRUE(session.launch());
  EXPECT_EQ(session.slotSpan(q), 0);
  session.bind(*session.slot("lse"), data.buffers["lse"].address(), std::vector<int64_t>{64, 4});
  EXPECT_EQ(session.launch().error().message,
            "lse: expected dense memory, got strides; kernels take those of queries, gates, the "
            "output, unified pages, and of keys and values without metadata by token");
}

TEST(Slots, SessionsOfOneModuleComputeFromTheCallersMemory) {
  Rng rng(71);
  Fixture f(1 << 30);
  std::shared_ptr<Module> module = std::move(*f.device->load({"scalar", {}, {}, f.kernels}));
  for (int round = 0; round < 2; ++round) {
    Session session = *Session::create(*f.device, f.manifest, module);
    // Batches that are larger, smaller, and have other tables of the same size.
    for (const std::vector<int32_t> &lengths :
         {std::vector<int32_t>{300, 40}, {900, 40, 77}, {5}, {6}, {900, 39, 78}}) {
      Problem p(f, lengths, std::vector<int32_t>(lengths.size(), 1), rng);
      ASSERT_TRUE(session.bindTables(p.batch));
      ASSERT_TRUE(session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, p.batch), p.options)));
      ASSERT_TRUE(session.setPlan(p.plan));
      // Two layers with one plan: only addresses change.
      TensorMap other = p.tensors;
      for (int64_t i = 0; i < other["q"].elements(); ++i)
        other["q"].set(i, -other["q"].get(i));
      for (const TensorMap *tensors :
           {static_cast<const TensorMap *>(&p.tensors), static_cast<const TensorMap *>(&other)}) {
        Data data(*f.device, f.manifest, *tensors, p.batch);
        data.bind(session);
        Status launched = session.launch();
        ASSERT_TRUE(launched) << launched.error().message;
        expectClose(data.read(*f.device), attendReference(f.manifest, p.batch, *tensors));
      }
    }
  }
}

TEST(Slots, TablesStayWhereTheyAreUntilTheyMustGrow) {
  Rng rng(73);
  Fixture f(1 << 30);
  Session session = *f.session();
  Problem large(f, {900, 40, 77}, {1, 1, 1}, rng), small(f, {30}, {1}, rng), larger(f, {2000}, {1}, rng);
  ASSERT_TRUE(session.bindTables(large.batch));
  const DeviceAddress table = session.tableAddress("kv.block_table");
  EXPECT_NE(table, 0u);
  EXPECT_EQ(session.address("kv.block_table"), table);
  ASSERT_TRUE(session.bindTables(small.batch));
  EXPECT_EQ(session.tableAddress("kv.block_table"), table);
  EXPECT_EQ(session.tableAddress("nothing"), 0u);
  // Fixed launches allow no address to move.
  ASSERT_TRUE(
      session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, large.batch), large.options)));
  ASSERT_TRUE(session.setPlan(small.plan));
  ASSERT_TRUE(session.fixLaunch());
  Problem many(f, {900, 40, 77, 900}, {1, 1, 1, 1}, rng);
  Status status = session.bindTables(many.batch);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("at an address that launches were fixed with"), std::string::npos)
      << status.error().message;
}

TEST(Slots, TablesHaveTheRoomThatIsReserved) {
  Rng rng(74);
  Fixture f(1 << 30);
  Session session = *f.session();
  Problem small(f, {30}, {1}, rng), longer(f, {900}, {1}, rng), longest(f, {4000}, {1}, rng);
  session.reserveTables({0, 0, 1, 200});
  ASSERT_TRUE(session.bindTables(small.batch));
  const DeviceAddress table = session.tableAddress("kv.block_table");
  ASSERT_TRUE(
      session.reserve(planCapacity(f.manifest, PlanLimits::of(f.manifest, longer.batch), longer.options)));
  ASSERT_TRUE(session.setPlan(small.plan));
  ASSERT_TRUE(session.fixLaunch());
  EXPECT_TRUE(session.bindTables(longer.batch));
  EXPECT_EQ(session.tableAddress("kv.block_table"), table);
  EXPECT_EQ(
      session.bindTables(longest.batch).error().message,
      "'kv.block_table' has room for 200 pages of an instance, as launches were fixed with, and the batch's "
      "have up to 250: plan with limits={'pages': 250} or more (Kernel.plan) before plan.fix()");
}

TEST(Slots, WhatNobodyReadsHasNone) {
  Fixture f(1 << 30);
  Session session = *f.session();
  Result<int> slot = session.slot("nothing");
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().message, "no kernel of 'decode' has a buffer 'nothing'");
  EXPECT_EQ(*session.slot("q"), *session.slot("q"));
}

} // namespace

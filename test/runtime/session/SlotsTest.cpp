//===- SlotsTest.cpp - Sessions over memory of the caller's ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SessionFixture.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The data of a problem, in memory of the device that is the caller's.
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
        session.bindSlot(*slot, buffers[name].address());
  }
  const TensorMap &read(Device &device) {
    for (auto &[name, tensor] : results)
      EXPECT_TRUE(device.copyOut(tensor.bytes.data(), buffers[name].address(), tensor.bytes.size()));
    return results;
  }
};

/// A problem of the kernels that can be planned.
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

TEST(Slots, SessionsOfOneModuleComputeFromTheCallersMemory) {
  Rng rng(71);
  Fixture f(1 << 30);
  std::shared_ptr<Module> module = std::move(*f.device->load({"scalar", {}, {}, f.kernels}));
  for (int round = 0; round < 2; ++round) {
    Session session = *Session::create(*f.device, f.manifest, module);
    // Larger, smaller, and other tables of the same size.
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
  // In launches that were fixed nothing may move.
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

TEST(Slots, WhatNobodyReadsHasNone) {
  Fixture f(1 << 30);
  Session session = *f.session();
  Result<int> slot = session.slot("nothing");
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().message, "no kernel of 'decode' has a buffer 'nothing'");
  EXPECT_EQ(*session.slot("q"), *session.slot("q"));
}

} // namespace

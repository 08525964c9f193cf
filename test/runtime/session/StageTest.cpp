//===- StageTest.cpp - Steps that are refused -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "SessionFixture.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

struct Step {
  TensorMap tensors;
  Batch batch;
  Plan plan;

  Step(const Fixture &f, const std::vector<int32_t> &lengths, const PlanOptions &options, Rng &rng)
      : tensors(problem(f.manifest, lengths, std::vector<int32_t>(lengths.size(), 1), rng)) {
    EXPECT_TRUE(addDefaults(f.manifest, tensors));
    batch = *batchFromTensors(f.manifest, tensors);
    plan = *makePlan(f.manifest, batch, options);
  }
};

// A recording reads tables and plan at fixed addresses. A step that has room for only some of them is refused
// before the first copy, so that replays give the same bits as before.
TEST(Stage, ARecordingNeverReplaysHalfAStep) {
  Rng rng(81);
  Fixture f(1 << 30);
  PlanOptions options;
  options.blocks = 9;
  options.kernel = 0;
  options.gpu = &slowGpu;
  const Step first(f, {300, 40, 77}, options, rng);
  Session session = *f.session();
  session.reserveTables({.rows = 4, .sequences = 4, .instances = 3, .pages = 20});
  const PlanCapacity room = planCapacity(f.manifest, PlanLimits::of(f.manifest, first.batch), options);
  bool begun = false;
  Status taken = session.take(first.batch, {}, first.plan, &room, begun);
  ASSERT_TRUE(taken) << taken.error().message;
  std::map<std::string, Buffer> data;
  for (const char *name : {"q", "kv.k_pages", "kv.v_pages", "sink_logits"})
    if (Result<int> slot = session.slot(name)) {
      const Tensor &tensor = first.tensors.at(name);
      data[name] = std::move(*Buffer::create(*f.device, tensor.bytes.size(), name));
      ASSERT_TRUE(f.device->copyIn(data[name].address(), tensor.bytes.data(), tensor.bytes.size()));
      session.bind(*slot, data[name].address());
    }
  Tensor out(f.manifest.dtype, {3, f.manifest.qHeads, f.manifest.valueDim});
  for (const char *name : {"o", "lse"}) {
    data[name] = std::move(*Buffer::create(*f.device, out.bytes.size(), name));
    session.bind(*session.slot(name), data[name].address());
  }
  ASSERT_TRUE(session.fixLaunch());
  ASSERT_TRUE(f.device->beginRecording());
  ASSERT_TRUE(session.launch());
  const std::unique_ptr<Recording> recording = std::move(*f.device->endRecording());
  const auto replayed = [&] {
    EXPECT_TRUE(f.device->poison(data["o"].address(), out.bytes.size()));
    EXPECT_TRUE(f.device->replay(*recording));
    EXPECT_TRUE(f.device->copyOut(out.bytes.data(), data["o"].address(), out.bytes.size()));
    return out.bytes;
  };
  const std::vector<uint8_t> before = replayed();

  PlanOptions other = options;
  other.blocks = 7;
  Step fourth(f, {300, 40, 77, 5}, options, rng), wide(f, {600, 40, 77}, options, rng),
      elsewhere(f, {299, 40, 77}, other, rng), sized(f, {299, 40, 77}, options, rng);
  const Session::DimValue dim{"q.dim1", 1};
  const struct {
    const char *message;
    const Step &step;
    const PlanCapacity *room;
  } refused[] = {{"has room for 3 instances", fourth, nullptr},
                 {"'kv.block_table' has room for 20 pages", wide, nullptr},
                 {"on 9 blocks, and the plan is for 'decode_rows16' on 7", elsewhere, nullptr}};
  for (const auto &each : refused) {
    SCOPED_TRACE(each.message);
    const Status status = session.take(each.step.batch, {&dim, 1}, each.step.plan, each.room, begun);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find(each.message), std::string::npos) << status.error().message;
    EXPECT_FALSE(begun);
    EXPECT_EQ(replayed(), before);
  }
  PlanCapacity more = room;
  more.tasks += 1;
  EXPECT_FALSE(session.take(sized.batch, {}, sized.plan, &more, begun));
  EXPECT_FALSE(begun);
  EXPECT_EQ(replayed(), before);
  // A step that fits is accepted after all these refusals.
  taken = session.take(sized.batch, {}, sized.plan, nullptr, begun);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_NE(replayed(), before);
}

} // namespace

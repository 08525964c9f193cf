//===- DevicePlanTest.cpp - Plans of the planning kernel ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Compiled.h"
#include "attn_rt/batch/Batch.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/Session.h"
#include "plan/PlanChecks.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Returns an attention over a paged cache, and over a second one with the visibility `second`.
std::string textOf(const std::string &see, const std::string &second = "", bool sinks = false) {
  const bool two = !second.empty();
  std::string text = R"(
!query = tensor<?x4x32xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 32, key = bf16, value = bf16>
func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
    %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]})";
  if (two)
    text += R"(, %more: !cache {attn.name = "more", attn.dims = ["batch_2", "more_len"]})";
  if (sinks)
    text += R"(, %sinks: tensor<4xf32> {attn.name = "sink_logits"})";
  text += ") -> (!query, tensor<?x4xf32>) attributes {attn.device_plan} {\n  %o, %lse = attn.attend %q over "
          "(%kv see ";
  text +=
      see + (two ? "), (%more see " + second : "") + ")" + " scale 0.125" + (sinks ? " sinks %sinks" : "");
  return text + " : !query, !cache" + (two ? ", !cache" : "") + (sinks ? ", tensor<4xf32>" : "") +
         " -> !query, tensor<?x4xf32>\n  return %o, %lse : !query, tensor<?x4xf32>\n}\n";
}

struct Shape {
  std::vector<int32_t> lengths, rows;
};

Shape randomShape(Rng &rng, size_t most, int32_t tokens, int32_t mostRows) {
  Shape shape;
  for (size_t s = 1 + below(rng, most); s > 0; --s) {
    const bool isLong = below(rng, 4) == 0;
    shape.rows.push_back(
        static_cast<int32_t>(below(rng, 5) == 0 ? 0 : 1 + below(rng, isLong ? mostRows : 3)));
    const auto length = static_cast<int32_t>(below(rng, isLong ? tokens : tokens / 5 + 1));
    shape.lengths.push_back(std::max(length, below(rng, 6) == 0 ? 0 : shape.rows.back()));
  }
  shape.rows.back() = std::max(shape.rows.back(), 1);
  return shape;
}

TensorMap tensorsOf(const Manifest &m, const Shape &shape, Rng &rng) {
  TensorMap tensors;
  std::normal_distribution<double> normal;
  const auto fill = [&](const std::string &name, DType dtype, std::vector<int64_t> dims) {
    Tensor &tensor = tensors[name] = Tensor(dtype, std::move(dims));
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, normal(rng));
  };
  std::vector<int32_t> starts{0};
  for (const int32_t rows : shape.rows)
    starts.push_back(starts.back() + rows);
  const auto sequences = std::ssize(shape.lengths);
  fill("q", m.dtype, {starts.back(), m.qHeads, m.keyDim});
  tensors["q_start"] = Tensor::ofI32({sequences + 1}, starts);
  if (m.sinkLogits)
    fill("sink_logits", DType::F32, {m.qHeads});
  int32_t pos0 = 0;
  for (const OperandInfo &operand : m.operands) {
    const std::string prefix = operand.argument + ".";
    std::vector<int32_t> lengths = shape.lengths, table;
    for (int32_t &length : lengths) // the first of two instances precedes the second
      length = pos0 == 0 && m.operands.size() == 2 ? length / 3 : length;
    const int32_t columns = *std::max_element(lengths.begin(), lengths.end()) / 16 + 1;
    table.resize(static_cast<size_t>(sequences * columns));
    std::vector<int32_t> starts(lengths.size() + 1);
    std::partial_sum(lengths.begin(), lengths.end(), starts.begin() + 1);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), rng);
    tensors[prefix + "lengths"] = Tensor::ofI32({sequences}, lengths);
    tensors[prefix + "pos0"] = Tensor::ofI32({sequences}, std::vector<int32_t>(lengths.size(), pos0));
    pos0 += 700;
    if (m.argumentOf(operand).store == StoreKind::Packed) {
      tensors[prefix + "start"] = Tensor::ofI32({sequences + 1}, starts);
      for (const char *part : {"k", "v"})
        fill(prefix + part, m.dtype, {starts.back(), m.kvHeads, m.keyDim});
      continue;
    }
    tensors[prefix + "block_table"] = Tensor::ofI32({sequences, columns}, table);
    for (const char *part : {"k_pages", "v_pages"})
      fill(prefix + part, m.dtype, {std::ssize(table), 16, m.kvHeads, m.keyDim});
  }
  return tensors;
}

template <class T>
std::vector<T> read(HostDevice &device, const Session &session, PlanArray array, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  Status status = device.copyOut(values.data(), session.address(std::string(planArrayName(array))),
                                 values.size() * sizeof(T));
  EXPECT_TRUE(status) << status.error().message;
  return values;
}

/// Returns the kernel's result in the form of a host plan.
Plan planOf(HostDevice &device, const Session &session, const DevicePlan &made) {
  Plan plan;
  plan.kernel = made.kernel;
  plan.blocks = made.blocks;
  plan.blockTasks = read<int32_t>(device, session, PlanArray::BlockTasks, made.blocks + 1);
  plan.tasks = read<PlanTask>(device, session, PlanArray::Tasks, plan.blockTasks.back());
  plan.segments = read<PlanSegment>(device, session, PlanArray::Segments, made.capacity.segments);
  const int32_t merged = read<int32_t>(device, session, PlanArray::MergeStart, 1)[0];
  plan.mergeStart = read<int32_t>(device, session, PlanArray::MergeStart, merged + 2);
  plan.mergeStart.erase(plan.mergeStart.begin());
  plan.mergeRows = read<int32_t>(device, session, PlanArray::MergeRows, merged);
  plan.partialRows = plan.mergeStart.back();
  plan.mergePartials = read<int32_t>(device, session, PlanArray::MergePartials, plan.partialRows);
  return plan;
}

/// Expects that every block starts with a copy of its first task and of that task's first segment.
void expectStarts(HostDevice &device, const Session &session, const Plan &plan) {
  const auto starts = read<PlanStart>(device, session, PlanArray::Starts, plan.blocks);
  const auto words = [](const auto &record) { return fieldsOf(record); };
  for (size_t block = 0; block < starts.size(); ++block) {
    const PlanStart &start = starts[block];
    const int32_t begin = plan.blockTasks[block], end = plan.blockTasks[block + 1];
    if (begin == end) {
      EXPECT_EQ(start.tasksBegin, start.tasksEnd);
      continue;
    }
    const PlanTask &task = plan.tasks[static_cast<size_t>(begin)];
    EXPECT_EQ(start.tasksBegin, begin);
    EXPECT_EQ(start.tasksEnd, end);
    EXPECT_EQ(words(start.task), words(task));
    if (task.segmentBegin < task.segmentEnd)
      EXPECT_EQ(words(start.segment), words(plan.segments[static_cast<size_t>(task.segmentBegin)]));
  }
}

class Planned {
public:
  explicit Planned(const std::string &text) : compiled(text) {}

  const Manifest &manifest() const { return compiled.manifest; }

  Session session(const TensorMap &tensors, const Batch &batch) {
    Session session = std::move(*Session::create(*device, manifest(), compiled.source()));
    Status bound = session.bind(tensors, batch);
    EXPECT_TRUE(bound) << bound.error().message;
    return session;
  }

  /// Plans a batch here and there, and expects equal plans, to the bit if splits are fixed. Returns the
  /// number of merged rows.
  int64_t expectPlanned(const Shape &shape, const PlanOptions &options, Rng &rng) {
    TensorMap tensors = tensorsOf(manifest(), shape, rng);
    EXPECT_TRUE(addDefaults(manifest(), tensors));
    Result<Batch> batch = batchFromTensors(manifest(), tensors);
    EXPECT_TRUE(batch) << batch.error().message;
    const DevicePlanLimits limits{
        .rows = batch->rows, .sequences = std::ssize(shape.rows), .rowsPerSequence = 1, .tokens = 16 * 200};
    Result<DevicePlan> made = makeDevicePlan(manifest(), limits, options);
    EXPECT_TRUE(made) << made.error().message;
    Session there = session(tensors, *batch);
    EXPECT_TRUE(device->fill(there.address("q_pos"), 0x55, batch->qPos.size() * 4));
    expectOk(there.useDevicePlan(*made));
    expectOk(there.launchPlan());
    EXPECT_EQ(*there.planFault(), "");
    std::vector<int32_t> positions(batch->qPos.size());
    EXPECT_TRUE(device->copyOut(positions.data(), there.address("q_pos"), positions.size() * 4));
    EXPECT_EQ(positions, batch->qPos);
    const Plan plan = last = planOf(*device, there, *made);
    expectRight(manifest(), *batch, plan, made->capacity, false);
    expectStarts(*device, there, plan);
    if (testing::Test::HasFailure())
      return 0;
    expectOk(there.poison());
    expectOk(there.launch());

    Session here = session(tensors, *batch);
    PlanOptions byQuery = options;
    byQuery.strategy = Strategy::ByQuery;
    byQuery.kernel = made->kernel;
    expectOk(here.reserve(planCapacity(manifest(), PlanLimits::of(manifest(), *batch), byQuery)));
    expectOk(here.run(*makePlan(manifest(), *batch, byQuery)));
    const TensorMap a = *there.outputs(), b = *here.outputs();
    for (const char *name : {"o", "lse"}) {
      if (options.fixedSplit > 0)
        EXPECT_EQ(a.at(name).bytes, b.at(name).bytes) << name;
      const std::vector<double> x = a.at(name).toDoubles(), y = b.at(name).toDoubles();
      for (size_t i = 0; i < x.size() && !testing::Test::HasFailure(); ++i)
        if (!(std::isinf(x[i]) && x[i] == y[i]))
          EXPECT_NEAR(x[i], y[i], 2e-2) << name << " " << i;
    }
    return std::ssize(plan.mergeRows);
  }

  static void expectOk(const Status &status) { EXPECT_TRUE(status) << status.error().message; }

  Compiled compiled;
  std::unique_ptr<HostDevice> device = makeHostDevice();
  Plan last; ///< the device's last plan
};

void expectBatches(const std::string &text, int rounds, uint64_t seed) {
  Rng rng(seed);
  Planned planned(text);
  int64_t merged = 0;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    PlanOptions options;
    options.gpu = &slowGpu;
    options.blocks = static_cast<int>(1 + below(rng, 40));
    options.kernel = round % 5 == 4 ? 1 : 0;
    const int keys = planned.manifest().kernels[static_cast<size_t>(options.kernel)].keys;
    options.fixedSplit = round % 2 ? keys * static_cast<int>(1 + below(rng, 4)) : 0;
    SCOPED_TRACE("round " + std::to_string(round) + ", fixed " + std::to_string(options.fixedSplit));
    merged += planned.expectPlanned(randomShape(rng, 12, 3000, 90), options, rng);
  }
  EXPECT_GT(merged, 0);
}

TEST(DevicePlan, CausalBatches) { expectBatches(textOf("causal"), 16, 1); }
TEST(DevicePlan, Windows) { expectBatches(textOf("window(100)"), 8, 2); }
TEST(DevicePlan, SinksAndWindows) { expectBatches(textOf("causal and (sink(40) | recent(300))"), 10, 3); }
TEST(DevicePlan, TwoOperands) { expectBatches(textOf("all", "causal"), 10, 4); }
TEST(DevicePlan, PackedStores) {
  std::string text = textOf("causal");
  text.replace(text.find("paged<16>"), 9, "packed");
  expectBatches(text, 6, 9);
}
TEST(DevicePlan, SinkLogits) { expectBatches(textOf("causal", "", true), 8, 5); }

// Lines of 64 bytes, in a number of blocks that the heads divide, and in one more. Split tasks run in
// lockstep.
TEST(DevicePlan, HeadsOfShortLinesGoInLockstep) {
  Rng rng(10);
  Planned planned(textOf("causal"));
  PlanOptions options;
  options.gpu = &slowGpu;
  for (const auto &[blocks, lockstep] : {std::pair(12, true), std::pair(40, true), std::pair(13, false)}) {
    SCOPED_TRACE(std::to_string(blocks) + " blocks");
    options.blocks = blocks;
    const Shape shape{{2900, 800, 5, 1700, 0, 2100}, {1, 1, 1, 2, 0, 1}};
    EXPECT_GT(planned.expectPlanned(shape, options, rng), 0);
    EXPECT_EQ(goesInLockstep(planned.last, planned.manifest().kvHeads), lockstep);
  }
}

// Shares of many rows must be long, and fill half of the blocks. One task is too long for each round to be
// even.
TEST(DevicePlan, TasksStayWholeWhereSharesAreFewerThanBlocks) {
  Rng rng(11);
  Planned planned(textOf("causal"));
  PlanOptions options;
  options.blocks = 6, options.kernel = 1;
  Shape shape{std::vector<int32_t>(12, 600), std::vector<int32_t>(13, 1)};
  shape.lengths.push_back(1500);
  EXPECT_EQ(planned.expectPlanned(shape, options, rng), 0);
  const Plan &plan = planned.last;
  const int keys = planned.manifest().kernels[1].keys, heads = static_cast<int>(planned.manifest().kvHeads);
  ASSERT_EQ(std::ssize(plan.tasks), 13 * heads);
  const int longest = (1500 + keys - 1) / keys, all = (12 * ((600 + keys - 1) / keys) + longest) * heads;
  for (size_t block = 0; block < 6; ++block) {
    int tiles = 0;
    for (auto t = plan.blockTasks[block]; t < plan.blockTasks[block + 1]; ++t) {
      const PlanSegment &segment =
          plan.segments[static_cast<size_t>(plan.tasks[static_cast<size_t>(t)].segmentBegin)];
      tiles += (segment.kvEnd - segment.kvBegin + keys - 1) / keys;
    }
    EXPECT_LE(tiles, (all + 5) / 6 + longest) << "block " << block;
  }
}

// Tasks of equal length are cut into as many pieces each, where nearly all blocks then have one: in lockstep
// and not. In the third case a fifth of the blocks would have none, and in the last one task is shorter:
// pieces begin anywhere.
TEST(DevicePlan, EqualTasksAreCutIntoAsManyPieces) {
  Rng rng(12);
  Planned planned(textOf("causal"));
  PlanOptions options;
  options.gpu = &slowGpu;
  const int keys = planned.manifest().kernels[0].keys, tokens = 2400;
  struct Case {
    int blocks, pieces, last;
  };
  for (const auto &[blocks, pieces, last] :
       {Case{16, 2, tokens}, Case{33, 4, tokens}, Case{21, 2, tokens}, Case{16, 2, tokens / 8}}) {
    SCOPED_TRACE(std::to_string(blocks) + " blocks");
    options.blocks = blocks;
    const Shape shape{{tokens, tokens, tokens, last}, std::vector<int32_t>(4, 1)};
    EXPECT_GT(planned.expectPlanned(shape, options, rng), 0);
    const Plan &plan = planned.last;
    const auto isPiece = [&, pieces = pieces](const PlanTask &task) {
      const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
      return std::abs(segment.kvEnd - segment.kvBegin - tokens / pieces) <= keys;
    };
    const bool even = std::ssize(plan.tasks) == 8 * pieces && std::ranges::all_of(plan.tasks, isPiece);
    EXPECT_EQ(even, blocks != 21 && last == tokens);
  }
}

// More sequences, work tiles and parts than one iteration has threads.
TEST(DevicePlan, ManySequences) {
  Rng rng(6);
  Planned planned(textOf("causal"));
  Shape shape;
  for (int s = 0; s < 1500; ++s) {
    shape.rows.push_back(static_cast<int32_t>(below(rng, 3)));
    shape.lengths.push_back(static_cast<int32_t>(2 + below(rng, 40)));
  }
  PlanOptions options;
  options.blocks = 64;
  for (const int split : {0, 64}) {
    options.fixedSplit = split;
    planned.expectPlanned(shape, options, rng);
  }
}

// A fault leaves a plan without tasks, and describes itself and its location.
TEST(DevicePlan, FaultsLeaveAnEmptyPlan) {
  Rng rng(7);
  Planned planned(textOf("causal"));
  TensorMap tensors = tensorsOf(planned.manifest(), {{300, 40, 7, 900}, {1, 2, 1, 3}}, rng);
  ASSERT_TRUE(addDefaults(planned.manifest(), tensors));
  const Batch batch = *batchFromTensors(planned.manifest(), tensors);
  PlanOptions options;
  options.blocks = 9;
  options.fixedSplit = 64;
  const DevicePlanLimits limits{.rows = 7, .sequences = 4, .rowsPerSequence = 1, .tokens = 928};
  const DevicePlan made = *makeDevicePlan(planned.manifest(), limits, options);
  Session session = planned.session(tensors, batch);
  Planned::expectOk(session.useDevicePlan(made));
  const struct {
    const char *table;
    std::vector<int32_t> values;
    PlanFault fault;
    int32_t sequence;
  } cases[] = {{"q_start", {0, 1, 3, 4, 7}, PlanFault::None, 0},
               {"q_start", {0, 1, 3, 2, 7}, PlanFault::RowsUnsorted, 2},
               {"q_start", {0, 1, 3, 4, 8}, PlanFault::RowsUnsorted, 3},
               {"q_start", {1, 1, 3, 4, 7}, PlanFault::RowsUnsorted, 0},
               {"q_start", {0, -1, 3, 4, 7}, PlanFault::RowsUnsorted, 0},
               {"q_start", {0, 2147483647, -2147483647, 4, 7}, PlanFault::RowsUnsorted, 0},
               {"q_start", {0, 1, 3, 4, 7}, PlanFault::None, 0},
               {"kv.lengths", {300, -40, 7, -1}, PlanFault::LengthOutside, 1},
               {"kv.lengths", {300, 40, 7, 929}, PlanFault::LengthOutside, 3},
               {"kv.lengths", {300, 40, 2147483647, 900}, PlanFault::LengthOutside, 2},
               {"kv.lengths", {300, 40, 7, 900}, PlanFault::None, 0},
               {"kv.pos0", {0, 0, 0, 2147483647}, PlanFault::LengthOutside, 3}};
  for (const auto &each : cases) {
    SCOPED_TRACE(std::string(each.table) + " of sequence " + std::to_string(each.sequence));
    ASSERT_TRUE(
        planned.device->copyIn(session.address(each.table), each.values.data(), each.values.size() * 4));
    Planned::expectOk(session.launchPlan());
    const PlanFinding found = *session.planFinding();
    EXPECT_EQ(static_cast<PlanFault>(found.fault), each.fault);
    EXPECT_EQ(found.sequence, each.sequence);
    const Plan plan = planOf(*planned.device, session, made);
    EXPECT_EQ(plan.tasks.empty(), each.fault != PlanFault::None);
    EXPECT_EQ(plan.mergeRows.empty(), each.fault != PlanFault::None);
    expectStarts(*planned.device, session, plan);
    Planned::expectOk(session.launch());
  }
  EXPECT_NE(session.planFault()->find("sequence 3: a length is negative"), std::string::npos);
}

// Packed instances also need checks of their starts: below the store's tokens, and at least their length
// before its end.
TEST(DevicePlan, FaultsOfPackedStores) {
  Rng rng(7);
  std::string text = textOf("causal");
  text.replace(text.find("paged<16>"), 9, "packed");
  Planned planned(text);
  TensorMap tensors = tensorsOf(planned.manifest(), {{300, 40, 7, 900}, {1, 2, 1, 3}}, rng);
  ASSERT_TRUE(addDefaults(planned.manifest(), tensors));
  const Batch batch = *batchFromTensors(planned.manifest(), tensors);
  PlanOptions options;
  options.blocks = 9;
  const DevicePlanLimits limits{.rows = 7, .sequences = 4, .rowsPerSequence = 1, .tokens = 928};
  const DevicePlan made = *makeDevicePlan(planned.manifest(), limits, options);
  Session session = planned.session(tensors, batch);
  Planned::expectOk(session.useDevicePlan(made));
  const struct {
    std::vector<int32_t> starts;
    int32_t sequence; ///< -1: none
  } cases[] = {{{0, 300, 340, 347, 1247}, -1},          {{0, 300, -1, 347, 1247}, 2},
               {{0, 300, 340, 348, 1247}, 3},           {{0, 2147483647, 340, 347, 1247}, 1},
               {{-2147483647, 300, 340, 347, 1247}, 0}, {{0, 300, 340, 347, 1247}, -1}};
  for (const auto &each : cases) {
    SCOPED_TRACE("starts of sequence " + std::to_string(each.sequence));
    ASSERT_TRUE(
        planned.device->copyIn(session.address("kv.start"), each.starts.data(), each.starts.size() * 4));
    Planned::expectOk(session.launchPlan());
    const PlanFinding found = *session.planFinding();
    EXPECT_EQ(static_cast<PlanFault>(found.fault),
              each.sequence < 0 ? PlanFault::None : PlanFault::LengthOutside);
    EXPECT_EQ(found.sequence, std::max(each.sequence, 0));
    EXPECT_EQ(planOf(*planned.device, session, made).tasks.empty(), each.sequence >= 0);
    Planned::expectOk(session.launch());
  }
}

// A session with smaller limits than its batch reports it, and writes nothing.
TEST(DevicePlan, WhatIsBeyondItsLimitsIsNotPlanned) {
  Rng rng(8);
  Planned planned(textOf("causal"));
  TensorMap tensors = tensorsOf(planned.manifest(), {{300, 40, 7, 900}, {1, 2, 1, 3}}, rng);
  ASSERT_TRUE(addDefaults(planned.manifest(), tensors));
  const Batch batch = *batchFromTensors(planned.manifest(), tensors);
  PlanOptions options;
  options.blocks = 9;
  options.fixedSplit = 64;
  const DevicePlanLimits limits{.rows = 2, .sequences = 4, .rowsPerSequence = 1, .tokens = 100};
  Session session = planned.session(tensors, batch);
  EXPECT_NE(session.launchPlan().error().message.find("before useDevicePlan"), std::string::npos);
  Planned::expectOk(session.useDevicePlan(*makeDevicePlan(planned.manifest(), limits, options)));
  Planned::expectOk(session.launchPlan());
  EXPECT_EQ(static_cast<PlanFault>(session.planFinding()->fault), PlanFault::CapacityExceeded);
  EXPECT_NE(session.setPlan(*makePlan(planned.manifest(), batch, options))
                .error()
                .message.find("makes its plans on the device"),
            std::string::npos);
}

// 128 heads over latents in e4m3 have eight work tiles for each row under a mask of two sizes, which no
// kernel of 64 rows has, and steps of vLLM's graphs twice as many rows as sequences, whose lengths may be
// those of DeepSeek-V3.
TEST(DevicePlan, ManyHeadsOverLongLatentsAreCounted) {
  const Compiled compiled(R"(
!query = tensor<?x128x576xbf16>
!cache = !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
func.func @decode(%q: !query {attn.name = "q", attn.dims = ["rows"]},
    %kv: !cache {attn.name = "kv", attn.dims = ["batch", "kv_len"]}) -> tensor<?x128x512xbf16> attributes {attn.device_plan} {
  %o = attn.attend %q over (%kv see sink(4) | window(163840)) scale 0.0721 : !query, !cache -> tensor<?x128x512xbf16>
  return %o : tensor<?x128x512xbf16>
})");
  const DevicePlanLimits limits{.rows = 256, .sequences = 128, .rowsPerSequence = 2, .tokens = 163840};
  const Result<DevicePlan> made = makeDevicePlan(compiled.manifest, limits, {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(compiled.manifest.kernels[static_cast<size_t>(made->kernel)].rows, 16);
}

TEST(DevicePlan, OptionsThatNoPlanFollowsAreRefused) {
  Planned planned(textOf("causal"));
  const DevicePlanLimits limits{.rows = 2, .sequences = 2, .rowsPerSequence = 1, .tokens = 100};
  const auto error = [&](DevicePlanLimits given, const PlanOptions &options) {
    Result<DevicePlan> plan = makeDevicePlan(planned.manifest(), given, options);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(error(limits, {}), "");
  EXPECT_NE(error({.rows = 0, .sequences = 2, .tokens = 100}, {}).find("rows, got 0"), std::string::npos);
  EXPECT_NE(
      error({.rows = 1 << 25, .sequences = 1 << 20, .tokens = 1 << 20}, {}).find("more than it can count"),
      std::string::npos);
  EXPECT_NE(error(limits, {.fixedSplit = 7}).find("a fixed split of 7 tokens"), std::string::npos);
  EXPECT_NE(error(limits, {.strategy = Strategy::ByNode}).find("by query"), std::string::npos);
  EXPECT_NE(error(limits, {.kernel = 9}).find("no attend kernel"), std::string::npos);
}

} // namespace

//===- plan_time.cpp - How long planning takes ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ragged decode batches of growing size, a prefill, shared prompts, streaming
// heads, heads with lengths of their own and trees of speculated tokens, on the blocks of an H200, and the
// accounting of forests (attn-plan). `per_1000_items` is the time for 1,000 tasks
// of the plan (of verify: tokens of a KV head) in seconds; the budget is 50 us,
// whatever the size, and 10 us for a step that only appends.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/artifact/VisibilityTerms.h"
#include "attn_rt/forest/Forest.h"
#include "attn_rt/plan/Plan.h"

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <random>

using namespace attn::rt;

namespace {

/// Llama-3.1-8B's heads, causal; with `classes` some of them keep a sink of 64 and the last 256 tokens.
Manifest llama(bool classes) {
  Manifest m;
  m.entry = "decode";
  m.qHeads = 32;
  m.kvHeads = 8;
  m.keyDim = m.valueDim = 128;
  m.results = {{"o", m.dtype, {{"rows", 0}, {"", m.qHeads}, {"", m.valueDim}}},
               {"lse", DType::F32, {{"rows", 0}, {"", m.qHeads}}}};
  for (int rows : {16, 128}) {
    KernelInfo kernel;
    kernel.name = "decode_rows" + std::to_string(rows);
    kernel.rows = rows;
    kernel.keys = 64;
    kernel.blocksPerSM = rows == 16 ? 2 : 1;
    m.addKernel(kernel, {.grid = PlanArray::Starts});
  }
  KernelInfo merge;
  merge.role = KernelInfo::Role::Merge;
  merge.warps = 4;
  merge.rowsPerWarp = 1;
  m.addKernel(merge, {.grid = PlanArray::MergeRows, .onlyIfFilled = true, .overlapsPrevious = true});
  for (const char *name : {"kv", "prompt"}) {
    Argument kv;
    kv.name = name;
    kv.role = Argument::Role::KV;
    kv.page = 16;
    kv.kvHeads = 8;
    kv.keyDim = kv.valueDim = 128;
    m.arguments.push_back(kv);
    Visibility causal;
    causal.kind = Visibility::Kind::Causal;
    m.operands.push_back({name, static_cast<int>(m.arguments.size()) - 1, causal});
  }
  if (classes) {
    using Kind = Visibility::Kind;
    m.ends = {64, 256};
    m.headClasses = {{"retrieval", {}},
                     {"streaming", {Kind::Or, -1, {{Kind::Sink, 0, {}}, {Kind::Recent, 1, {}}}}}};
  }
  return m;
}

/// Sequences of `rows` rows over 100 to 8,000 tokens each, behind a prompt for every `sharing` of them (0:
/// none).
Batch ragged(int sequences, int rows, int sharing) {
  std::mt19937 rng(1);
  std::uniform_int_distribution<int32_t> lengths(std::max(100, rows), std::max(8000, rows));
  Batch batch;
  batch.qStart = {0};
  batch.operands.resize(2);
  OperandBatch &kv = batch.operands[0], &prompt = batch.operands[1];
  const int32_t promptTokens = sharing ? 2048 : 0;
  for (int s = 0; s < sequences; ++s) {
    const int32_t length = lengths(rng);
    for (int r = 0; r < rows; ++r)
      batch.qPos.push_back(promptTokens + length - rows + r);
    kv.lengths.push_back(length);
    kv.pos0.push_back(promptTokens);
    kv.rowFirst.push_back(batch.qStart.back());
    batch.qStart.push_back(batch.qStart.back() + rows);
    kv.rowLast.push_back(batch.qStart.back());
    if (sharing && s % sharing == 0) {
      prompt.lengths.push_back(promptTokens);
      prompt.pos0.push_back(0);
      prompt.rowFirst.push_back(kv.rowFirst.back());
      prompt.rowLast.push_back(std::min(kv.rowFirst.back() + sharing * rows, sequences * rows));
    }
  }
  batch.rows = batch.qStart.back();
  return batch;
}

void tell(benchmark::State &state, double items, double balance) {
  state.counters["items"] = items;
  state.counters["balance"] = balance;
  state.counters["per_1000_items"] = benchmark::Counter(
      items / 1000, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// Times plans of one batch, and gives the last; what could not be planned is said by `state`.
Plan timePlans(benchmark::State &state, const Manifest &m, const Batch &batch) {
  const PlanOptions options;
  Planner planner(m, options, planCapacity(m, PlanLimits::of(m, batch), options));
  Plan plan;
  for (auto _ : state)
    if (Status status = planner.plan(batch, plan); !status) {
      state.SkipWithError(status.error().message.c_str());
      break;
    }
  return plan;
}

void plan(benchmark::State &state) {
  const auto streaming = static_cast<int32_t>(state.range(3));
  const Manifest m = llama(streaming > 0);
  Batch batch = ragged(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
                       static_cast<int>(state.range(2)));
  for (int32_t head = 0; head < m.kvHeads; ++head)
    batch.classes.push_back(head < streaming);
  const Plan plan = timePlans(state, m, batch);
  const auto items = static_cast<double>(plan.tasks.size());
  state.counters["cuts"] = static_cast<double>(plan.stats.cuts);
  tell(state, items, plan.stats.balance);
}

BENCHMARK(plan)
    ->ArgNames({"sequences", "rows", "sharing", "streaming"})
    ->Args({8, 1, 0, 0})
    ->Args({17, 1, 0, 0})
    ->Args({64, 1, 0, 0})
    ->Args({256, 1, 0, 0})
    ->Args({1024, 1, 0, 0})
    ->Args({4096, 1, 0, 0})
    ->Args({64, 37, 0, 0})
    ->Args({2, 8192, 0, 0})
    ->Args({256, 1, 16, 0})
    ->Args({1024, 1, 32, 0})
    ->Args({64, 1, 0, 4})
    ->Args({1024, 1, 0, 4})
    ->Args({2, 8192, 0, 4})
    ->Args({1024, 1, 32, 6})
    ->Unit(benchmark::kMicrosecond);

/// Heads with lengths of their own: every head has its own units.
void planHeads(benchmark::State &state) {
  Manifest m = llama(false);
  for (const OperandInfo &operand : m.operands)
    m.arguments[static_cast<size_t>(operand.argumentIndex)].ragged = true;
  Batch batch = ragged(static_cast<int>(state.range(0)), 1, static_cast<int>(state.range(1)));
  std::mt19937 rng(2);
  for (OperandBatch &operand : batch.operands) {
    operand.heads = m.kvHeads;
    const std::vector<int32_t> whole = std::move(operand.lengths);
    operand.lengths.clear();
    for (int32_t length : whole)
      for (int32_t head = 0; head < m.kvHeads; ++head)
        operand.lengths.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(length + 1)));
  }
  const Plan plan = timePlans(state, m, batch);
  tell(state, static_cast<double>(plan.tasks.size()), plan.stats.balance);
}

BENCHMARK(planHeads)
    ->ArgNames({"sequences", "sharing"})
    ->Args({8, 0})
    ->Args({64, 0})
    ->Args({1024, 0})
    ->Args({1024, 32})
    ->Unit(benchmark::kMicrosecond);

/// Trees of speculated tokens behind contexts of 1,000, a row on each token: its path is an instance in pages
/// of one token. Tokens branch off the path before them at random.
Batch drafts(int trees, int tokens) {
  std::mt19937 rng(1);
  Batch batch;
  batch.qStart = {0};
  batch.operands.resize(2);
  OperandBatch &context = batch.operands[0], &draft = batch.operands[1];
  draft.maxPages = tokens;
  for (int tree = 0; tree < trees; ++tree) {
    std::vector<int32_t> path;
    for (int token = 0; token < tokens; ++token) {
      const auto row = static_cast<int32_t>(batch.rows++);
      if (rng() % 2 && !path.empty())
        path.resize(rng() % path.size());
      path.push_back(row);
      draft.lengths.push_back(static_cast<int32_t>(path.size()));
      draft.pos0.push_back(1000);
      draft.rowFirst.push_back(row);
      draft.rowLast.push_back(row + 1);
      draft.blockTable.insert(draft.blockTable.end(), path.begin(), path.end());
      draft.blockTable.resize(static_cast<size_t>(batch.rows) * static_cast<size_t>(tokens));
      batch.qPos.push_back(999 + static_cast<int32_t>(path.size()));
    }
    context.lengths.push_back(1000);
    context.pos0.push_back(0);
    context.rowFirst.push_back(batch.qStart.back());
    context.rowLast.push_back(static_cast<int32_t>(batch.rows));
    batch.qStart.push_back(static_cast<int32_t>(batch.rows));
  }
  draft.pages = batch.rows;
  return batch;
}

/// Items are the tokens of each KV head, as they are where nothing joins them.
void verify(benchmark::State &state) {
  Manifest m = llama(false);
  m.arguments[1].page = 1;
  m.kernels[1].params.push_back({Parameter::Kind::Buffer, "plan.slots", 0});
  const Batch batch = drafts(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const Plan plan = timePlans(state, m, batch);
  const auto items = static_cast<double>(batch.rows * m.kvHeads);
  state.counters["tasks"] = static_cast<double>(plan.tasks.size());
  tell(state, items, plan.stats.balance);
}

BENCHMARK(verify)
    ->ArgNames({"trees", "tokens"})
    ->Args({1, 64})
    ->Args({1, 256})
    ->Args({32, 64})
    ->Unit(benchmark::kMicrosecond);

/// Steps that append a token to every sequence: the mean of as many as keep the plan as of those that make a
/// new one. `replans` is how many of 100 do.
void update(benchmark::State &state) {
  const auto streaming = static_cast<int32_t>(state.range(2));
  const Manifest m = llama(streaming > 0);
  Batch batch = ragged(static_cast<int>(state.range(0)), 1, static_cast<int>(state.range(1)));
  for (int32_t head = 0; head < m.kvHeads; ++head)
    batch.classes.push_back(head < streaming);
  const PlanOptions options;
  Planner planner(m, options, planCapacity(m, PlanLimits::of(m, batch), options));
  Plan plan;
  (void)planner.plan(batch, plan);
  const Batch first = batch;
  int64_t steps = 0, replans = 0;
  for (auto _ : state) {
    if (++steps % 1000 == 0)
      batch = first;
    for (size_t s = 0; s < batch.qPos.size(); ++s) {
      ++batch.qPos[s];
      ++batch.operands[0].lengths[s];
    }
    replans += !*planner.update(batch, plan);
  }
  const auto items = static_cast<double>(plan.tasks.size());
  state.counters["replans"] = 100 * static_cast<double>(replans) / static_cast<double>(steps);
  tell(state, items, plan.stats.balance);
}

BENCHMARK(update)
    ->ArgNames({"sequences", "sharing", "streaming"})
    ->Args({8, 0, 0})
    ->Args({17, 0, 0})
    ->Args({64, 0, 0})
    ->Args({256, 0, 0})
    ->Args({1024, 0, 0})
    ->Args({4096, 0, 0})
    ->Args({1024, 32, 0})
    ->Args({1024, 0, 4})
    ->Args({1024, 32, 6})
    ->Unit(benchmark::kMicrosecond);

/// A tree of the shape of a reasoning run: a prompt, then levels of ten branches each.
void forest(benchmark::State &state) {
  const auto nodes = static_cast<size_t>(state.range(0));
  std::mt19937 rng(1);
  std::uniform_int_distribution<int32_t> tokens(1, 1400);
  std::vector<ForestNode> tree{{-1, 1100, 0}};
  for (int32_t inner = 0; tree.size() < nodes;) {
    if (tree.size() % 11 == 1) {
      tree.push_back({0, tokens(rng), 0});
      inner = static_cast<int32_t>(tree.size()) - 1;
    } else {
      tree.push_back({inner, tokens(rng), 1});
    }
  }
  const Workload workload{32, 8, 128, 1, 512, {}};
  ForestPlanner planner(workload, {static_cast<Strategy>(state.range(1)), 132});
  ForestStats stats;
  for (auto _ : state)
    stats = *planner.plan(tree);
  const auto items = static_cast<double>(stats.tasks);
  tell(state, items, stats.balance());
}

BENCHMARK(forest)
    ->ArgNames({"nodes", "strategy"})
    ->ArgsProduct({{20, 100, 1000, 10000, 100000}, {0, 1, 2, 3}})
    ->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();

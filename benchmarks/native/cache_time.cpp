//===- cache_time.cpp - How long the cache's bookkeeping takes --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A forest of a given number of nodes: prompts of 1,000 tokens, ten thoughts
// below each, ten answers below each thought, in pages of 16; `streaming` adds a
// class with 64 + 256 tokens. Times are of one call, or where a counter says so,
// of 1,000 leaves or rows.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/cache/CacheBatch.h"

#include <benchmark/benchmark.h>

using namespace attn::rt;

namespace {

struct Forest {
  Cache cache;
  std::vector<NodeId> leaves;

  Forest(int64_t nodes, bool streaming) : cache(std::move(*Cache::create(options(streaming)))) {
    const auto grow = [&](NodeId node, int32_t children, int32_t tokens) {
      return cache.apply({{}, {}, {{node, children, tokens}}})->children;
    };
    while (cache.nodeCount() < nodes) {
      const NodeId root = cache.createRoot();
      (void)*cache.append(root, 1000);
      for (NodeId thought : grow(root, 10, 100)) {
        const std::vector<NodeId> answers = grow(thought, 10, 20);
        leaves.insert(leaves.end(), answers.begin(), answers.end());
        if (cache.nodeCount() >= nodes)
          break;
      }
    }
  }

  static CacheOptions options(bool streaming) {
    CacheOptions options;
    options.draftPage = 1;
    options.classes = {{"all", 1 << 20, 0, 0, 0}};
    if (streaming)
      options.classes.push_back({"streaming", 1 << 20, 256, 64, 64});
    return options;
  }

  static CacheBatchOptions batchOptions(bool streaming) {
    CacheBatchOptions options;
    options.operands = {{0, true, false}};
    if (streaming)
      options.operands.push_back({1, true, false});
    return options;
  }

  /// A row on every leaf.
  std::vector<RowGroup> rows() const {
    std::vector<RowGroup> rows;
    for (NodeId leaf : leaves)
      rows.push_back({leaf});
    return rows;
  }
};

void perThousand(benchmark::State &state, size_t items) {
  state.counters["per_1000"] =
      benchmark::Counter(static_cast<double>(items) / 1000,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// A decoding step: one token for every leaf, in one change.
void appendToAll(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  CacheStep step;
  for (NodeId leaf : forest.leaves)
    step.append.push_back({leaf, 1});
  for (auto _ : state)
    if (auto change = forest.cache.apply(step); !change) {
      forest = Forest(state.range(0), state.range(1)); // a full pool starts again
      benchmark::DoNotOptimize(forest.cache.apply(step));
    }
  perThousand(state, forest.leaves.size());
}

void appendToOne(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 7919) % forest.leaves.size();
    benchmark::DoNotOptimize(*forest.cache.append(forest.leaves[next], 1));
  }
}

void branchAndPrune(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 7919) % forest.leaves.size();
    const CacheChange change = *forest.cache.apply({{}, {}, {{forest.leaves[next], 2, 1}}});
    benchmark::DoNotOptimize(forest.cache.apply({change.children, {}, {}}));
  }
}

void forkAndPrune(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 7919) % forest.leaves.size();
    const Cache::Fork fork = *forest.cache.fork(forest.leaves[next]);
    benchmark::DoNotOptimize(forest.cache.prune(fork.twin));
  }
}

/// 64 tokens in the shape of a tree that is drafted, four of them accepted every time, the page pruned.
void speculateAndCommit(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  std::vector<int32_t> parents;
  for (int32_t t = 0; t < 64; ++t)
    parents.push_back(t < 4 ? -1 : t / 4 - 1);
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 7919) % forest.leaves.size();
    benchmark::DoNotOptimize(*forest.cache.speculate(forest.leaves[next], parents));
    benchmark::DoNotOptimize(*forest.cache.commit(forest.leaves[next], 20));
  }
}

/// Rows, instances and tables of a row on every leaf.
void buildBatch(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  BatchBuilder builder(Forest::batchOptions(state.range(1)));
  CacheBatch made;
  const std::vector<RowGroup> rows = forest.rows();
  for (auto _ : state)
    if (Status status = builder.build(forest.cache, rows, made); !status) {
      state.SkipWithError(status.error().message.c_str());
      return;
    }
  perThousand(state, rows.size());
}

/// Times an update after every leaf has grown by a token; the growth itself is not timed.
void updateBatch(benchmark::State &state) {
  Forest forest(state.range(0), state.range(1));
  BatchBuilder builder(Forest::batchOptions(state.range(1)));
  CacheBatch made;
  const std::vector<RowGroup> rows = forest.rows();
  CacheStep step;
  for (NodeId leaf : forest.leaves)
    step.append.push_back({leaf, 1});
  (void)builder.build(forest.cache, rows, made);
  for (int i = 0; state.KeepRunning(); ++i) {
    state.PauseTiming();
    if (i % 100 == 99)
      forest = Forest(state.range(0), state.range(1));
    benchmark::DoNotOptimize(forest.cache.apply(step));
    if (i % 100 == 99)
      (void)builder.build(forest.cache, rows, made);
    state.ResumeTiming();
    if (!builder.update(forest.cache, made)) {
      state.PauseTiming();
      (void)builder.build(forest.cache, rows, made);
      state.ResumeTiming();
    }
  }
  perThousand(state, rows.size());
}

void arguments(benchmark::internal::Benchmark *benchmark) {
  benchmark->ArgNames({"nodes", "streaming"})
      ->ArgsProduct({{1000, 10000}, {0, 1}})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(appendToOne)->Apply(arguments);
BENCHMARK(appendToAll)->Apply(arguments);
BENCHMARK(branchAndPrune)->Apply(arguments);
BENCHMARK(forkAndPrune)->Apply(arguments);
BENCHMARK(speculateAndCommit)->Apply(arguments);
BENCHMARK(buildBatch)->Apply(arguments);
BENCHMARK(updateBatch)->Apply(arguments);

} // namespace

BENCHMARK_MAIN();

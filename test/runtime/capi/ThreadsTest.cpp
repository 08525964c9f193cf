//===- ThreadsTest.cpp - Objects of the C API that threads share ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of the API may be called from any thread, and calls on one object are
// serialized. Results say little about that; ThreadSanitizer does, under which these
// tests also run. Kernels go to a fake driver.
//
//===----------------------------------------------------------------------===//
#include "Samples.h"
#include "attn-c/Cache.h"
#include "attn_rt/artifact/Artifact.h"

#include <array>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr int32_t pages = 256, pageTokens = 16;

/// Whether a call succeeded; `mayRefuse` is the error that it may have instead.
bool ok(AttnStatus status, const char *mayRefuse = nullptr) {
  const std::string message = status.message ? status.message : "";
  attnStatusFree(status);
  EXPECT_TRUE(status.kind == AttnStatusOk || (mayRefuse && message.find(mayRefuse) != std::string::npos))
      << message;
  return status.kind == AttnStatusOk;
}

void onThreads(std::initializer_list<std::function<void()>> works) {
  std::vector<std::thread> threads;
  for (const std::function<void()> &work : works)
    threads.emplace_back(work);
  for (std::thread &thread : threads)
    thread.join();
}

void append(AttnCache *cache, AttnNode node, int32_t tokens) {
  AttnMovement *movement = nullptr;
  ASSERT_TRUE(ok(attnCacheAppend(cache, node, tokens, &movement)));
  EXPECT_EQ(attnMovementRows(movement), tokens);
  attnMovementDestroy(movement);
}

AttnCache *makeCache() {
  const AttnCacheClass whole = {"kv", pages, 0, 0, 0};
  AttnCache *cache = nullptr;
  EXPECT_TRUE(ok(attnCacheCreate(pageTokens, 0, &whole, 1, &cache)));
  return cache;
}

/// A sequence that grows, forks, speculates, branches and is pruned.
void liveAndDie(AttnCache *cache, int32_t tokens) {
  AttnNode root, twin, children[2];
  AttnMovement *movement = nullptr;
  ASSERT_TRUE(ok(attnCacheCreateRoot(cache, &root)));
  append(cache, root, tokens);
  ASSERT_TRUE(ok(attnCacheFork(cache, root, &twin, &movement)));
  attnMovementDestroy(movement);
  const int32_t parents[] = {-1, 0, 0};
  ASSERT_TRUE(ok(attnCacheSpeculate(cache, twin, parents, 3, &movement)));
  attnMovementDestroy(movement);
  ASSERT_TRUE(ok(attnCacheCommit(cache, twin, 2, &movement)));
  EXPECT_EQ(attnMovementRows(movement), 0);
  attnMovementDestroy(movement);
  ASSERT_TRUE(ok(attnCacheBranch(cache, twin, 2, children)));
  append(cache, children[1], 3);
  AttnNodeInfo info;
  ASSERT_TRUE(ok(attnCacheNode(cache, children[1], &info)));
  EXPECT_EQ(info.position, tokens + 2);
  EXPECT_TRUE(ok(attnCacheCheckInvariants(cache)));
  ASSERT_TRUE(ok(attnCachePrune(cache, root)));
  ASSERT_TRUE(ok(attnCachePrune(cache, twin)));
  EXPECT_FALSE(attnCacheContains(cache, children[0]));
}

TEST(CapiThreads, ACacheOfMany) {
  AttnCache *cache = makeCache();
  const auto work = [&](int32_t tokens) {
    for (int32_t i = 0; i < 100; ++i)
      liveAndDie(cache, tokens + i % 17);
  };
  onThreads({[&] { work(1); }, [&] { work(16); }, [&] { work(30); }, [&] { work(100); }});
  int32_t left = 0;
  EXPECT_TRUE(ok(attnCacheFreePages(cache, 0, &left)));
  EXPECT_EQ(left, pages);
  EXPECT_TRUE(ok(attnCacheCheckInvariants(cache)));
  attnCacheDestroy(cache);
}

struct SharedKernel : testing::Test {
  AttnDevice *device = nullptr;
  AttnKernel *kernel = nullptr;
  AttnCache *cache = makeCache();
  AttnNode node{};
  AttnBatchBuilder *builder = nullptr;
  AttnBatch *batch = nullptr;
  AttnPlan *plan = nullptr;
  AttnMemory *memory = nullptr;

  void SetUp() override {
    Artifact artifact;
    artifact.manifest = sampleManifest();
    artifact.manifest.contentHash = computeContentHash(artifact.manifest);
    for (const KernelInfo &info : artifact.manifest.kernels)
      artifact.ptx += ".entry " + info.name + "(\n";
    const std::string bytes = writeArtifacts({&artifact, 1});
    ASSERT_TRUE(ok(attnDeviceOpenCuda(0, ATTN_FAKE_CUDA, &device)));
    ASSERT_TRUE(ok(attnKernelLoad(device, bytes.data(), bytes.size(), "sample", nullptr, &kernel)));
    ASSERT_TRUE(ok(attnCacheCreateRoot(cache, &node)));
    append(cache, node, 20);
    const AttnCacheOperand operand = {0, true, true};
    const AttnRowGroup group = {node, 1, false};
    ASSERT_TRUE(ok(attnBatchBuilderCreate(kernel, &operand, 1, pages, &builder)));
    ASSERT_TRUE(ok(attnBatchBuilderBuild(builder, cache, &group, 1, nullptr, 0, nullptr, 0, &batch)));
    ASSERT_TRUE(ok(attnPlanCreate(kernel, batch, nullptr, 0, &plan)));
    ASSERT_TRUE(ok(attnMemoryCreate(device, 3 << 16, "memory", &memory)));
  }
  void TearDown() override {
    attnMemoryDestroy(memory);
    attnPlanDestroy(plan);
    attnBatchDestroy(batch);
    attnBatchBuilderDestroy(builder);
    attnCacheDestroy(cache);
    attnKernelDestroy(kernel);
    attnDeviceDestroy(device);
  }

  /// Runs the plan with memory of its own for each slot; false if it was refused as outdated.
  bool run() {
    std::array<uint64_t, 3> addresses{};
    std::array<size_t, 3> sizes{};
    EXPECT_EQ(attnKernelSlotCount(kernel), addresses.size());
    for (size_t i = 0; i < addresses.size(); ++i) {
      addresses[i] = attnMemoryAddress(memory) + (i << 16);
      sizes[i] = 1 << 16;
    }
    return ok(attnPlanRun(plan, addresses.data(), sizes.data(), addresses.size(), 0), "update the");
  }
};

TEST_F(SharedKernel, RunsWhileItsBatchGrows) {
  std::atomic<bool> done = false;
  const auto grow = [&] {
    for (int step = 0; step < 300; ++step) {
      bool updated = false, extended = false;
      append(cache, node, 1);
      ok(attnBatchBuilderUpdate(builder, cache, batch, &updated));
      EXPECT_TRUE(updated);
      ok(attnPlanUpdate(plan, batch, 0, &extended));
    }
    done = true;
  };
  const auto runs = [&] {
    while (!done)
      run();
  };
  const auto asks = [&] {
    while (!done) {
      AttnBytes *text = nullptr;
      AttnTensors *tables = nullptr;
      if (ok(attnPlanExplain(plan, &text), "update the"))
        attnBytesDestroy(text);
      if (ok(attnBatchTables(kernel, batch, &tables)))
        attnTensorsDestroy(tables);
      EXPECT_EQ(attnPlanRows(plan), 1);
      EXPECT_EQ(attnBatchRows(batch), 1);
      EXPECT_GT(attnPlanStats(plan).tasks, 0);
    }
  };
  onThreads({grow, runs, asks});
  EXPECT_TRUE(run());
}

TEST_F(SharedKernel, PlansOfOneBatchAndDevice) {
  const auto plans = [&] {
    for (int i = 0; i < 50; ++i) {
      AttnPlan *own = nullptr;
      AttnMemory *more = nullptr;
      ASSERT_TRUE(ok(attnMemoryCreate(device, 4096, "more", &more)));
      ASSERT_TRUE(ok(attnPlanCreate(kernel, batch, nullptr, 0, &own)));
      bool extended = false;
      ASSERT_TRUE(ok(attnPlanUpdate(own, batch, 0, &extended)));
      EXPECT_TRUE(run());
      attnPlanDestroy(own);
      attnMemoryDestroy(more);
    }
  };
  onThreads({plans, plans, plans});
}

} // namespace

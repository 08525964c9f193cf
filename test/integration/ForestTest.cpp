//===- ForestTest.cpp - Compiled kernels over a cache's forest ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Compiled.h"
#include "cache/ForestDecoder.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Nodes on pages of 16, drafts in the same memory as pages of one token.
std::string problem(const std::string &visibility) {
  return R"(
    !query = tensor<?x8x64xbf16>
    !nodes = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
    !drafts = !attn.kv<paged<1>, heads = 2, dim = 64, key = bf16, value = bf16>
    func.func @forest(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                      %kv: !nodes {attn.name = "kv", attn.dims = ["nodes", "node_len"]},
                      %draft: !drafts {attn.name = "draft", attn.dims = ["chains", "chain_len"]})
        -> (!query, tensor<?x8xf32>) {
      %o, %lse = attn.attend %q over (%kv see )" +
         visibility + "), (%draft see " + visibility + R"() scale 0.125
          : !query, !nodes, !drafts -> !query, tensor<?x8xf32>
      return %o, %lse : !query, tensor<?x8xf32>
    })";
}

/// Returns an operation on that cache: its slots are equal in pages of 16 tokens and of one.
std::string cacheOperation(const std::string &name) {
  const std::string types = R"(
    !rows = tensor<?x?x2x64xbf16>
    !slots = tensor<?xi32>
    !cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>)";
  return types + (name == "append" ? R"(
    func.func @append(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %kv: !cache {attn.name = "kv"},
                      %slots: !slots {attn.name = "slots"}) {
      attn.append %k, %v to %kv at %slots : !rows, !rows, !cache, !slots
      return
    })"
                                   : R"(
    func.func @move(%kv: !cache {attn.name = "kv"}, %from: !slots {attn.name = "from"},
                    %to: !slots {attn.name = "to"}) {
      attn.move %kv from %from to %to : !cache, !slots, !slots
      return
    })");
}

enum class Pages { OfTheHost, OfTheDevice };

void decodeForest(const std::string &visibility, const CacheClass &info, uint64_t seed, bool record = false,
                  Pages pages = Pages::OfTheHost) {
  const Compiled compiled(problem(visibility));
  CacheBatchOptions shown;
  shown.operands = {{0, true, false}, {0, false, true}};
  shown.maxPages = record ? 16 : 0;
  ForestDecoder decoder(compiled.manifest, compiled.source(), {16, 1, {info}}, shown, 8e-3);
  if (record)
    decoder.record();
  std::optional<Compiled> append, move;
  if (pages == Pages::OfTheDevice) {
    append.emplace(cacheOperation("append"));
    move.emplace(cacheOperation("move"));
    auto appends = CacheKernel::create(*decoder.device, append->manifest, append->source());
    auto moves = CacheKernel::create(*decoder.device, move->manifest, move->source());
    ASSERT_TRUE(appends && moves);
    decoder.keepOnDevice(std::move(*CacheKernels::create(std::move(*appends), std::move(*moves))));
  }
  decoder.decodeForest(seed, 10);
  const host::Report &report = decoder.device->report();
  EXPECT_TRUE(report.clean()) << report.describe();
}

TEST(Forest, growsOverTenSteps) { decodeForest("causal", {"all", 400, 0, 0, 0}, 3); }

TEST(Forest, growsUnderOneRecordedLaunch) { decodeForest("causal", {"all", 400, 0, 0, 0}, 5, true); }

/// Attention, append and move over the same pages, which no other launch has written: a read before the write
/// is detected.
TEST(Forest, livesOnTheDevice) {
  decodeForest("causal", {"all", 400, 0, 0, 0}, 5, true, Pages::OfTheDevice);
  decodeForest("causal and (sink(20) | recent(50))", {"streaming", 400, 50, 20, 12}, 4, false,
               Pages::OfTheDevice);
}

TEST(Forest, streams) {
  decodeForest("causal and (sink(20) | recent(50))", {"streaming", 400, 50, 20, 12}, 4);
}

/// DuoAttention's classes with a store each: the cache of streaming heads is short.
const char duo[] = R"(
    !query = tensor<?x8x64xbf16>
    !nodes = !attn.kv<paged<16>, heads = ?, dim = 64, key = bf16, value = bf16>
    !drafts = !attn.kv<paged<1>, heads = ?, dim = 64, key = bf16, value = bf16>
    func.func @forest(%q: !query {attn.name = "q", attn.dims = ["rows"]},
                      %full: !nodes {attn.name = "full", attn.dims = ["nodes", "node_len"]},
                      %full_draft: !drafts {attn.name = "full_draft", attn.dims = ["chains", "chain_len"]},
                      %recent: !nodes {attn.name = "recent", attn.dims = ["runs", "run_len"]},
                      %recent_draft: !drafts {attn.name = "recent_draft", attn.dims = ["chains", "chain_len"]},
                      %classes: tensor<4xi32> {attn.name = "classes"}) -> (!query, tensor<?x8xf32>) {
      %o, %lse = attn.attend %q over
          (%full see causal for retrieval), (%full_draft see causal for retrieval),
          (%recent see causal for streaming), (%recent_draft see causal for streaming)
          heads %classes {retrieval: see all, streaming: see sink(20) | recent(50)} scale 0.125
          : !query, !nodes, !drafts, !nodes, !drafts, tensor<4xi32> -> !query, tensor<?x8xf32>
      return %o, %lse : !query, tensor<?x8xf32>
    })";

TEST(Forest, classesHaveStoresOfTheirOwn) {
  const Compiled compiled(duo);
  const std::vector<CacheClass> classes = {{"retrieval", 900, 0, 0, 0}, {"streaming", 400, 50, 20, 12}};
  CacheBatchOptions shown;
  shown.operands = {{0, true, false}, {0, false, true}, {1, true, false}, {1, false, true}};
  ForestDecoder decoder(compiled.manifest, {"forest", {}, {}, compiled.code->kernels()}, {16, 1, classes},
                        shown, 8e-3, {1, 0, 1, 1});
  decoder.decodeForest(5, 10);
  ASSERT_FALSE(HasFatalFailure());

  // A private sequence fills its ring: two pages of sink, four of the last 50 + 12 tokens.
  Mirror &m = decoder.mirror;
  const int32_t before[] = {m.cache.freePages(0), m.cache.freePages(1)};
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 170));
  decoder.decode({{root, 170}});
  Rng rng(8);
  for (int step = 0; step < 8; ++step) {
    ASSERT_TRUE(m.append(root, step == 3 ? 40 : 1));
    ASSERT_TRUE(m.speculate(root, randomTree(rng, 12)));
    decoder.decode({{root, 1, true}});
    ASSERT_FALSE(HasFatalFailure()) << "step " << step;
    ASSERT_TRUE(m.commit(root, 0));
  }
  EXPECT_GT(m.cache.end(root), 220);
  EXPECT_GE(before[0] - m.cache.freePages(0), 220 / 16);
  EXPECT_LE(before[1] - m.cache.freePages(1), 2 + 4 + 2 + 1); // boundaries, and the draft's own page
  m.verify();
  const host::Report &report = decoder.device->report();
  EXPECT_TRUE(report.clean()) << report.describe();
}

} // namespace

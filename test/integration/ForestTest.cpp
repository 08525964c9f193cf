//===- ForestTest.cpp - Compiled kernels over a cache's forest ------------===//
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

/// The operations on that cache: a slot is a slot, in pages of 16 tokens and of one.
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

/// Attention, append and move over the same pages, which nothing else has written: what is read before it was
/// is found.
TEST(Forest, livesOnTheDevice) {
  decodeForest("causal", {"all", 400, 0, 0, 0}, 5, true, Pages::OfTheDevice);
  decodeForest("causal and (sink(20) | recent(50))", {"streaming", 400, 50, 20, 12}, 4, false,
               Pages::OfTheDevice);
}

TEST(Forest, streams) {
  decodeForest("causal and (sink(20) | recent(50))", {"streaming", 400, 50, 20, 12}, 4);
}

} // namespace

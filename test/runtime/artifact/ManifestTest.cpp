//===- ManifestTest.cpp - All there is to know of a compiled kernel -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fuzz.h"
#include "Samples.h"
#include "attn_rt/artifact/Artifact.h"

#include <functional>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::string sampleText() {
  return writeManifest(sampleManifest(
      {.visibility =
           both(visibility(Visibility::Kind::Causal),
                either(visibility(Visibility::Kind::Sink, 0), visibility(Visibility::Kind::Recent, 1))),
       .ends = {64, 256},
       .operands = 2,
       .sinkLogits = true,
       .keyAlign = 16,
       .headClasses = {{"retrieval", visibility(Visibility::Kind::All)},
                       {"streaming", visibility(Visibility::Kind::Window, 0)}},
       .tensorMap = true}));
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Manifest, RoundTrip) {
  Result<Manifest> manifest = parseManifest(sampleText());
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(writeManifest(*manifest), sampleText());
  EXPECT_EQ(manifest->operands[0].visibility.of[1].of[1].end, 1);
  EXPECT_EQ(manifest->argumentOf(manifest->operands[1]).name, "kv1");
  EXPECT_EQ(manifest->headClasses[1].name, "streaming");
  EXPECT_EQ(manifest->visibilityOf(0, 0).kind, Visibility::Kind::And);
  EXPECT_EQ(manifest->visibilityOf(0, 1).of[1].kind, Visibility::Kind::Window);
  EXPECT_EQ(manifest->visibilityOf(1, 1).kind, Visibility::Kind::Window); // kv1 shows everything
  EXPECT_EQ(manifest->findKernel("decode_merge")->rowsPerWarp, 1);
  EXPECT_EQ(manifest->findKernel("decode_rows16")->keyAlign, 16);
  EXPECT_EQ(manifest->findKernel("nothing"), nullptr);
  const TensorMapInfo *map = manifest->findTensorMap("kv.k.map0");
  ASSERT_NE(map, nullptr);
  EXPECT_EQ(map->dims[1].value, 16);
  EXPECT_EQ(map->dims[1].of, std::vector<std::string>{"kv.pages"});
  EXPECT_EQ(map->strides, (std::vector<int64_t>{256, 128}));
  EXPECT_EQ(manifest->findTensorMap("kv.k.map1"), nullptr);
}

TEST(Manifest, KernelsSayWhatThePlannersCostsDependOn) {
  Manifest m = sampleManifest();
  m.kernels[1].schedule = KernelInfo::Schedule::Wgmma;
  Result<Manifest> read = parseManifest(writeManifest(m));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->kernels[0].schedule, KernelInfo::Schedule::Mma);
  EXPECT_EQ(read->kernels[1].schedule, KernelInfo::Schedule::Wgmma);
}

TEST(Manifest, UnknownFieldsAreIgnored) {
  EXPECT_TRUE(parseManifest(replaced(sampleText(), "\"format\": 5", "\"format\": 5, \"later\": [1, {}]")));
}

TEST(Manifest, TensorMapsAreOptional) {
  EXPECT_EQ(writeManifest(sampleManifest()).find("tensor_maps"), std::string::npos);
  EXPECT_TRUE(parseManifest(writeManifest(sampleManifest()))->tensorMaps.empty());
}

// Everything that the hardware would refuse or misread.
TEST(Manifest, TensorMapErrors) {
  const std::string at = "manifest.tensor_maps[0].";
  struct Case {
    std::function<void(Manifest &, TensorMapInfo &)> change;
    std::string message;
  };
  const Case cases[] = {
      {[](auto &, auto &map) { map.name = "kv.k.map1"; },
       "manifest.kernels[0].params[6].name: unknown tensor map 'kv.k.map0'"},
      {[](auto &m, auto &map) { m.tensorMaps.push_back(map); },
       "manifest.tensor_maps[1].name: duplicate tensor map 'kv.k.map0'"},
      {[](auto &, auto &map) { map.buffer = "kv.k"; }, at + "buffer: unknown buffer 'kv.k'"},
      {[](auto &, auto &map) { map.dims[1].of = {"kv.pages", "kv.pagez"}; },
       at + "dims[1].of[1]: unknown dimension 'kv.pagez' of a tensor"},
      {[](auto &, auto &map) { map.dims[0].value = 0; },
       at + "dims[0].value: expected an integer between 1 and 4294967296, got 0"},
      {[](auto &, auto &map) { map.dtype = DType::F64; },
       at + "dtype: expected a dtype of 1, 2 or 4 bytes, got f64"},
      {[](auto &, auto &map) { map.dims.clear(); }, at + "dims: expected 1 to 5 dimensions, got 0"},
      {[](auto &, auto &map) { map.dims.resize(6); }, at + "dims: expected 1 to 5 dimensions, got 6"},
      {[](auto &, auto &map) { map.strides.pop_back(); },
       at + "strides: expected one for each dimension but the innermost, 2, got 1"},
      {[](auto &, auto &map) { map.box.push_back(1); },
       at + "box: expected one extent for each dimension, 3, got 4"},
      {[](auto &, auto &map) { map.strides[1] = 120; },
       at + "strides[1]: expected a multiple of 16 bytes below 2^40, got 120"},
      {[](auto &, auto &map) { map.strides[0] = 0; },
       at + "strides[0]: expected a multiple of 16 bytes below 2^40, got 0"},
      {[](auto &, auto &map) { map.strides[0] = int64_t{1} << 40; },
       at + "strides[0]: expected a multiple of 16 bytes below 2^40, got 1099511627776"},
      {[](auto &, auto &map) { map.box[2] = 0; }, at + "box[2]: expected 1 to 256 elements, got 0"},
      {[](auto &, auto &map) { map.box[1] = 257; }, at + "box[1]: expected 1 to 256 elements, got 257"},
      {[](auto &, auto &map) { map.box[0] = 60; }, at + "box[0]: expected a multiple of 16 bytes, got 120"},
      {[](auto &, auto &map) { map.swizzle = 128; },
       at + "box[0]: expected as many bytes as the swizzle, 128, got 64"},
      {[](auto &, auto &map) { map.swizzle = 48; }, at + "swizzle: expected 0, 32, 64 or 128 bytes, got 48"},
  };
  for (const Case &c : cases) {
    Manifest m = sampleManifest({.tensorMap = true});
    c.change(m, m.tensorMaps[0]);
    Result<Manifest> result = parseManifest(writeManifest(m));
    EXPECT_EQ(result ? "no error" : result.error().message, c.message);
  }
  Manifest plain = sampleManifest({.tensorMap = true});
  plain.tensorMaps[0].swizzle = 0;
  plain.tensorMaps[0].box[0] = 256;
  EXPECT_TRUE(parseManifest(writeManifest(plain)));
}

TEST(Manifest, StoresOfAClass) {
  const std::string text =
      writeManifest(sampleManifest({.ends = {4, 9}, .operands = 2, .headClasses = duo, .apart = true}));
  const Result<Manifest> read = parseManifest(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(writeManifest(*read), text);
  EXPECT_TRUE(read->isSeenBy(1, 1));
  EXPECT_FALSE(read->isSeenBy(1, 0));
  EXPECT_EQ(parseManifest(replaced(text, "\"head_class\": \"streaming\"", "\"head_class\": \"steaming\""))
                .error()
                .message,
            "manifest.arguments[2].head_class: no head class is named 'steaming'");
  EXPECT_EQ(parseManifest(replaced(text, "\"head_class\": \"streaming\"", "\"kv_heads\": 0")).error().message,
            "manifest.operands[1].argument: argument 'kv1' has kv_heads 0, but the attention has 2");
}

TEST(Manifest, Errors) {
  struct Case {
    const char *from, *to, *message;
  } cases[] = {
      {"\"format\": 5", "\"format\": 1",
       "manifest.format: expected format 5, which this runtime reads, got 1"},
      {"\"entry\"", "\"entri\"", "manifest.entry: missing"},
      {"\"q_heads\": 8", "\"q_heads\": \"8\"",
       "manifest.q_heads: expected an integer between 1 and 1048576, got \"8\""},
      {"\"q_heads\": 8", "\"q_heads\": 7", "manifest.q_heads: expected a multiple of kv_heads = 2, got 7"},
      {"\"kv_heads\": 2,\n   \"name\": \"kv\"", "\"kv_heads\": 4,\n   \"name\": \"kv\"",
       "manifest.operands[0].argument: argument 'kv' has kv_heads 4, but the attention has 2"},
      {"\"page\": 16", "\"page\": 24",
       "manifest.arguments[1].page: expected 1 to 8 or a multiple of 16 up to 2048, got 24; nearest legal: "
       "16 or 32"},
      {"\"key_format\": \"bf16\"", "\"key_format\": \"fp7\"",
       "manifest.arguments[1].key_format: expected a format (bf16, f8e4m3fn per head, i4 per 64, …)"},
      {"\"key_format\": \"bf16\"", "\"key_format\": \"i8 per 20\"",
       "manifest.arguments[1].key_format: expected a group of 16, 32, 64 or 128 features"},
      {"\"store\": \"paged\"", "\"store\": \"heap\"",
       "manifest.arguments[1].store: expected one of \"dense\", \"packed\", \"paged\", \"unified\", got "
       "\"heap\""},
      {"\"argument\": \"kv\"", "\"argument\": \"kw\"",
       "manifest.operands[0].argument: no KV argument is named 'kw'"},
      {"\"name\": \"sink_logits\"", "\"name\": \"kv\"",
       "manifest.arguments[3].name: duplicate argument 'kv'"},
      {"\"end\": 1", "\"end\": 2",
       "manifest.operands[0].visibility.of[1].of[1].end: end 2 does not exist; the manifest has 2"},
      {"\"scale\": 0.125", "\"scale\": \"x\"", "manifest.scale: expected a number, got \"x\""},
      {"\"name\": \"q_pos\"", "\"name\": \"q_poz\"",
       "manifest.kernels[0].params[1].name: unknown buffer 'q_poz'"},
      {"\"name\": \"rows\"", "\"name\": \"rowz\"",
       "manifest.kernels[2].params[2].name: unknown dimension 'rowz'"},
      {"\"index\": 0", "\"index\": 5", "manifest.kernels[0].params[6].index: end 5 does not exist"},
      {"\"type\": \"f32\"", "\"type\": \"f64\"",
       "manifest.kernels[0].params[7].type: expected \"f32\", got \"f64\""},
      {"\"threads\": 128", "\"threads\": 2048",
       "manifest.kernels[0].threads: expected an integer between 1 and 1024, got 2048"},
      {"\"key_align\": 16", "\"key_align\": 48",
       "manifest.kernels[0].key_align: expected a divisor of the tile's 64 keys, got 48"},
      {"\"key_align\": 16", "\"key_align\": 0", "manifest.kernels[0].key_align: expected"},
      {"\"schedule\": \"mma\"", "\"schedule\": \"simd\"",
       "manifest.kernels[0].schedule: expected one of \"mma\", \"wgmma\", got \"simd\""},
      {"decode_rows128", "decode_rows16", "manifest.kernels[1].name: duplicate kernel 'decode_rows16'"},
      {"\"name\": \"streaming\"", "\"name\": \"retrieval\"",
       "manifest.head_classes[1].name: duplicate head class 'retrieval'"},
      {"\"end\": 0,\n    \"kind\": \"window\"", "\"end\": 7,\n    \"kind\": \"window\"",
       "manifest.head_classes[1].visibility.end: end 7 does not exist; the manifest has 2"},
      {"\"role\": \"classes\"", "\"role\": \"tensor\"",
       "manifest.head_classes: expected one argument of role \"classes\", i32[2]"},
      {"{", "{\"format\": 5, ", "manifest: duplicate key \"format\""},
      {"{", "[", "manifest: parse error"},
  };
  for (const Case &c : cases) {
    Result<Manifest> result = parseManifest(replaced(sampleText(), c.from, c.to));
    const std::string message = result ? "no error" : result.error().message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected " << c.message;
  }
  Manifest none = sampleManifest();
  none.operands.clear();
  EXPECT_NE(parseManifest(writeManifest(none))
                .error()
                .message.find("manifest.operands: expected at least one operand"),
            std::string::npos);
  Manifest hollow = sampleManifest();
  hollow.operands[0].visibility = {Visibility::Kind::Or, -1, {visibility(Visibility::Kind::All)}};
  EXPECT_NE(parseManifest(replaced(writeManifest(hollow), "{\n      \"kind\": \"all\"\n     }", ""))
                .error()
                .message.find("expected at least one visibility"),
            std::string::npos);
}

struct Refusal {
  const char *from, *to, *message;
};
void expectRefused(std::span<const Refusal> cases) {
  for (const Refusal &c : cases) {
    Result<Manifest> result = parseManifest(replaced(sampleText(), c.from, c.to));
    EXPECT_EQ(result ? "no error" : result.error().message, c.message);
  }
}

// A kernel that was compiled against other records than this runtime's, by the kind of difference.
TEST(Manifest, PlanLayoutErrors) {
  const Refusal cases[] = {
      {"\"packedCount\"", "\"rowCount\"",
       "manifest.plan.arrays[0].fields[1]: expected \"packedCount\", as in 'plan.tasks' of this runtime's "
       "plans, got \"rowCount\""},
      {"\"packedCount\",\n     \"ordinal\"", "\"ordinal\",\n     \"packedCount\"",
       "manifest.plan.arrays[0].fields[1]: expected \"packedCount\", as in 'plan.tasks' of this runtime's "
       "plans, got \"ordinal\""},
      {"\"headClass\"", "\"headClass\", \"priority\"",
       "manifest.plan.arrays[0].fields[8]: 'plan.tasks' has no field 'priority' in this runtime's plans"},
      {",\n     \"headClass\"", "",
       "manifest.plan.arrays[0].fields: 'plan.tasks' has a field 'headClass' in this runtime's plans, which "
       "the "
       "kernels do not know"},
      {"\"words\": 8", "\"words\": 16",
       "manifest.plan.arrays[0].words: expected 8 words from a record of 'plan.tasks' to the next, got 16"},
      {"\"name\": \"plan.tasks\",\n    \"words\"", "\"name\": \"plan.jobs\", \"words\"",
       "manifest.plan.arrays[0].name: this runtime's plans have no array 'plan.jobs'"},
      {"\"dtype\": \"i32\",\n    \"name\": \"plan.merge_start\"",
       "\"dtype\": \"i64\", \"name\": \"plan.merge_start\"",
       "manifest.plan.arrays[1].dtype: expected \"i32\", of which 'plan.merge_start' is, got \"i64\""},
      {"\"dtype\": \"f32\",\n    \"name\": \"partial.o\"", "\"dtype\": \"f32\", \"name\": \"partial.lse\"",
       "manifest.plan.arrays: a kernel reads 'partial.o', which is not described"},
  };
  expectRefused(cases);
}

TEST(Manifest, Launches) {
  const Manifest m = *parseManifest(sampleText());
  ASSERT_EQ(m.launches.size(), 2u);
  EXPECT_EQ(m.launches[0].kernels, (std::vector<int>{0, 1}));
  EXPECT_EQ(m.launches[0].gridName(), "plan.starts");
  EXPECT_EQ(m.launches[0].kernelFor(1), 1);
  EXPECT_FALSE(m.launches[0].onlyIfFilled || m.launches[0].overlapsPrevious);
  EXPECT_EQ(m.launches[1].kernels, std::vector<int>{2});
  EXPECT_EQ(m.launches[1].gridName(), "plan.merge_rows");
  EXPECT_EQ(m.launches[1].kernelFor(1), 2);
  EXPECT_TRUE(m.launches[1].onlyIfFilled && m.launches[1].overlapsPrevious);
  EXPECT_EQ(m.findLaunch(PlanArray::MergeRows), &m.launches[1]);
  EXPECT_EQ(m.findLaunch(PlanArray::Slots), nullptr);
  EXPECT_TRUE(m.isPlanned(0) && m.isPlanned(1) && !m.isPlanned(2) && !m.isPlanned(-1));

  const Refusal cases[] = {
      {"\"decode_merge\"\n   ]", "\"decode_merg\"]",
       "manifest.launches[1].kernels[0]: unknown kernel 'decode_merg'"},
      {"\"grid\": \"plan.merge_rows\"", "\"grid\": \"plan.merged\"",
       "manifest.launches[1].grid: unknown grid 'plan.merged': expected an array of a plan, or \"rows\""},
      {"\"grid\": \"plan.merge_rows\"", "\"grid\": \"rows\"",
       "manifest.launches[1].grid: expected an array of the attention's plan, got \"rows\""},
      {"\"grid\": \"plan.merge_rows\"", "\"grid\": \"plan.tasks\"",
       "manifest.launches: expected one over 'plan.merge_rows'"},
      {"\"grid\": \"plan.merge_rows\"", "\"grid\": \"plan.starts\"",
       "manifest.launches[1].kernels[0]: kernel 'decode_merge' walks and has no tiles: it cannot be launched "
       "over 'plan.starts'"},
      {"\"rows_per_warp\": 1", "\"schedule\": \"mma\", \"rows\": 1, \"keys\": 1",
       "manifest.launches[1].kernels[0]: kernel 'decode_merge' has tiles: it cannot be launched over "
       "'plan.merge_rows'"},
      {"\"rows_per_warp\": 1", "\"rows_per_warp\": 0",
       "manifest.kernels[2].rows_per_warp: expected an integer between 1 and 1048576, got 0"},
      {"\"decode_rows16\",\n    \"decode_rows128\"", "\"decode_rows16\"",
       "manifest.launches: kernel 'decode_rows128' is in none of them"},
      {"\"decode_rows16\",\n    \"decode_rows128\"",
       "\"decode_rows16\", \"decode_rows128\", \"decode_merge\"",
       "manifest.launches[0].kernels[2]: kernel 'decode_merge' is of another role than the first"},
      {"\"decode_merge\"\n   ]", "\"decode_merge\", \"decode_merge\", \"decode_merge\"]",
       "manifest.launches[1].kernels: expected one kernel, or one for each of the 2 among which plans "
       "choose, "
       "got 3"},
      {"\"decode_merge\"\n   ]", "]",
       "manifest.launches[1].kernels: expected at least one kernel, got an array of 0"},
      {"\"when\": \"filled\"", "\"when\": \"never\"",
       "manifest.launches[1].when: expected one of \"always\", \"filled\", got \"never\""},
      {"\"overlaps_previous\": true", "\"overlaps_previous\": 1",
       "manifest.launches[1].overlaps_previous: expected true or false, got 1"},
  };
  expectRefused(cases);
}

TEST(Manifest, Results) {
  const Manifest m = *parseManifest(sampleText());
  ASSERT_EQ(m.results.size(), 2u);
  EXPECT_EQ(*m.findResult("o")->shape({{"rows", 7}}), (std::vector<int64_t>{7, 8, 64}));
  EXPECT_EQ(*m.findResult("lse")->shape({{"rows", 7}}), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(m.findResult("lse")->shape({}).error().message,
            "result 'lse' has a dimension 'rows', which is not set");
  EXPECT_EQ(m.findResult("significance"), nullptr);
  EXPECT_EQ(m.resultBytes({{"rows", 7}}), 7 * 8 * (64 * 2 + 4));
  const Refusal cases[] = {
      {"\"name\": \"lse\"\n  }\n ],", "\"name\": \"kv\"\n  }\n ],",
       "manifest.results[1].name: an argument or another result is named 'kv'"},
      {"\"name\": \"lse\"\n  }\n ],", "\"name\": \"o\"\n  }\n ],",
       "manifest.results[1].name: an argument or another result is named 'o'"},
      {"\"dtype\": \"f32\",\n   \"name\": \"lse\"", "\"dtype\": \"f33\", \"name\": \"lse\"",
       "manifest.results[1].dtype: expected the name of a dtype (f16, bf16, f32, i32, …), got \"f33\""},
      {"\"rows\",\n    8\n   ],", "\"tokens\", 8],",
       "manifest.results[1].dims[0]: unknown dimension 'tokens' of a result"},
  };
  expectRefused(cases);
}

TEST(Manifest, OperationsOnACache) {
  using Role = KernelInfo::Role;
  for (Role role : {Role::Append, Role::Move, Role::Gather}) {
    const std::string text = writeManifest(cacheManifest(role));
    Result<Manifest> back = parseManifest(text);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(writeManifest(*back), text);
    ASSERT_TRUE(back->rowCopy());
    EXPECT_EQ(back->rowCopy()->role, role);
    EXPECT_EQ(back->rowCopy()->pieces, 2);
    EXPECT_EQ(back->rowCopy()->rowsPerWarp, 8);
    EXPECT_EQ(back->results.size(), role == Role::Gather ? 2u : 0u);
    ASSERT_EQ(back->launches.size(), 1u);
    EXPECT_EQ(back->launches[0].gridName(), "rows");
    EXPECT_TRUE(back->plannedKernels().empty());
  }
  EXPECT_FALSE(parseManifest(sampleText())->rowCopy());

  const std::string move = writeManifest(cacheManifest(Role::Move));
  struct Case {
    const char *from, *to, *message;
  } cases[] = {
      {"\"pieces\": 2", "\"piece\": 2", "manifest.kernels[0].pieces: missing"},
      {"\"pieces\": 2", "\"pieces\": 0", "manifest.kernels[0].pieces: expected an integer between 1"},
      {"\"name\": \"kv.k_pages\"", "\"name\": \"kv.k\"",
       "manifest.kernels[0].params[1].name: unknown buffer 'kv.k'"},
      {"\"name\": \"kv.k_layer\"", "\"name\": \"kv.pages\"",
       "manifest.kernels[0].params[6].name: unknown dimension 'kv.pages'"},
      {"\"grid\": \"rows\"", "\"grid\": \"plan.tasks\"",
       "manifest.launches[0].grid: expected \"rows\", which operations on a cache are given"},
      {"\"name\": \"row_count\"", "\"name\": \"plan.tasks\"",
       "manifest.kernels[0].params[0].name: unknown buffer 'plan.tasks'"},
      {"\"store\": \"paged\"", "\"store\": \"dense\"",
       "manifest.arguments: expected one paged or packed cache with the heads and dims of the manifest"},
      {"\"value_dim\": 32,\n   \"value_format\"", "\"value_dim\": 64,\n   \"value_format\"",
       "manifest.arguments: expected one paged or packed cache with the heads and dims of the manifest"},
  };
  for (const Case &c : cases) {
    Result<Manifest> result = parseManifest(replaced(move, c.from, c.to));
    const std::string message = result ? "no error" : result.error().message;
    EXPECT_NE(message.find(c.message), std::string::npos) << message << "\n  expected " << c.message;
  }
  Manifest two = cacheManifest(Role::Move);
  two.kernels.push_back(two.kernels[0]);
  two.kernels.back().name = "move2";
  EXPECT_NE(parseManifest(writeManifest(two))
                .error()
                .message.find("expected one kernel where the first is of role"),
            std::string::npos);
  // An operation on a cache after an attention's kernels is refused.
  Manifest mixed = sampleManifest();
  mixed.kernels.push_back(cacheManifest(Role::Move).kernels[0]);
  EXPECT_EQ(parseManifest(writeManifest(mixed)).error().message,
            "manifest.kernels[3].role: expected no operation on a cache beside the kernels of an attention");
}

TEST(Manifest, MutatedInput) {
  Rng rng(5);
  const std::string manifest = sampleText();
  int manifests = 0;
  for (int i = 0; i < rounds(3000); ++i)
    if (const Result<Manifest> read = parseManifest(mutate(manifest, rng)); answered(read)) {
      ++manifests;
      const std::string text = writeManifest(*read);
      const Result<Manifest> again = parseManifest(text);
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(writeManifest(*again), text);
    }
  EXPECT_GT(manifests, 20);
}

} // namespace

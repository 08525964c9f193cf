//===- MergeTest.cpp - Merges of states in a kernel -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The canonicalizer turns merges into chains of updates, so kernels of users' texts have no merges. Kernels
// still support them: here functions at the online level are compiled without canonicalization, and have the
// results of attend.
//
//===----------------------------------------------------------------------===//
#include "OnlineKernels.h"

#include <gtest/gtest.h>

using namespace attn;

namespace {

const std::string arguments = R"(
    !q = tensor<?x8x64xbf16>
    !pages = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
    !dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
    !lse = tensor<?x8xf32>
    !s = !attn.state<heads = 8, value_dim = 64>
    func.func @merged(%q: !q {attn.name = "q", attn.dims = ["rows"]},
                      %a: !pages {attn.name = "a", attn.dims = ["batch", "a_len"]},
                      %b: !dense {attn.name = "b", attn.dims = ["batch", "b_len"]},
                      %sinks: tensor<8xf32> {attn.name = "sink_logits"}) -> (!q, !lse) {
)";

const std::string problem = arguments + R"(
      %o, %l = attn.attend %q over (%a see causal), (%b see causal) scale 0.125 sinks %sinks
          : !q, !pages, !dense, tensor<8xf32> -> !q, !lse
      return %o, %l : !q, !lse
    })";

std::string online(const std::string &body) {
  return arguments + body + R"(
      %o, %l = attn.finish %state : !s -> !q, !lse
      return %o, %l : !q, !lse
    })";
}

const std::string twoChains = online(R"(
      %0 = attn.init %q sinks %sinks : !q, tensor<8xf32> -> !s
      %1 = attn.update %0, %q, %a see causal scale 0.125 : !q, !pages -> !s
      %2 = attn.init %q : !q -> !s
      %3 = attn.update %2, %q, %b see causal scale 0.125 : !q, !dense -> !s
      %state = attn.merge %1, %3 : !s)");

/// The sink is a separate state, and a merge is updated.
const std::string updatedMerge = online(R"(
      %0 = attn.init %q sinks %sinks : !q, tensor<8xf32> -> !s
      %1 = attn.init %q : !q -> !s
      %2 = attn.update %1, %q, %a see causal scale 0.125 : !q, !pages -> !s
      %3 = attn.merge %0, %2 : !s
      %state = attn.update %3, %q, %b see causal scale 0.125 : !q, !dense -> !s)");

// One quantized region: merged states are in the units of one scale.
const std::string argumentsOfCodes = R"(
    !q = tensor<?x8x64xbf16>
    !codes = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.quantized<f8E4M3FN, per = head>, value = !attn.quantized<f8E4M3FN, per = head>>
    !lse = tensor<?x8xf32>
    !s = !attn.state<heads = 8, value_dim = 64>
    func.func @merged(%q: !q {attn.name = "q", attn.dims = ["rows"]},
                      %a: !codes {attn.name = "a", attn.dims = ["batch", "a_len"]},
                      %sinks: tensor<8xf32> {attn.name = "sink_logits"}) -> (!q, !lse) {
)";

const std::string problemOfCodes = argumentsOfCodes + R"(
      %o, %l = attn.attend %q over (%a see causal) scale 0.125 sinks %sinks
          : !q, !codes, tensor<8xf32> -> !q, !lse
      return %o, %l : !q, !lse
    })";

const std::string mergedCodes = argumentsOfCodes + R"(
      %0 = attn.init %q sinks %sinks : !q, tensor<8xf32> -> !s
      %1 = attn.init %q : !q -> !s
      %2 = attn.update %1, %q, %a see causal scale 0.125 : !q, !codes -> !s
      %state = attn.merge %2, %0 : !s
      %o, %l = attn.finish %state : !s -> !q, !lse
      return %o, %l : !q, !lse
    })";

/// One case: the request, the schedule, and whether a second region `b` exists.
struct Case {
  std::string problem, online;
  bool twoRegions;
};

class Merge : public testing::TestWithParam<Case> {
protected:
  void check(const std::string &dims, const rt::PlanOptions &options) {
    test::OnlineResults results;
    kernels->run(GetParam().problem, dims, options, results);
    if (!HasFatalFailure())
      expectNear(results);
  }

  std::unique_ptr<test::OnlineKernels> kernels = test::OnlineKernels::with<>();
};

TEST_P(Merge, isWhatAttendGives) {
  kernels->compile(GetParam().online, "mma");
  if (HasFatalFailure())
    return;
  rt::PlanOptions options;
  options.gpu = &rt::defaultGpu();
  auto dims = [](const std::string &others, const std::string &ofB) {
    return GetParam().twoRegions ? others + " b_len=" + ofB : others;
  };
  check(dims("batch=2 q_len=3 a_len=40..300", "1..90"), options);
  check(dims("batch=2 q_len=40 a_len=70..200", "90"), options);
  options.fixedSplit = 128; // a multiple of every tile; results are parts, merged by the merge kernel
  check(dims("batch=2 q_len=2 a_len=300", "200"), options);
}

INSTANTIATE_TEST_SUITE_P(Online, Merge,
                         testing::Values(Case{problem, twoChains, true}, Case{problem, updatedMerge, true},
                                         Case{problemOfCodes, mergedCodes, false}));

} // namespace

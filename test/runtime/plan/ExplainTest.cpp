//===- ExplainTest.cpp - What a plan says of itself -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

TEST(Explain, SaysWhatBoundsIt) {
  const Manifest m = sampleManifest();
  const Batch decode = [] {
    Batch b = simpleBatch({4096}, {1});
    b.operands[0].maxPages = 256;
    b.operands[0].blockTable.resize(256);
    for (int32_t i = 0; i < 256; ++i)
      b.operands[0].blockTable[static_cast<size_t>(i)] = i;
    return b;
  }();
  const std::string text = explainPlan(m, decode, *makePlan(m, decode));
  for (const char *part :
       {"decode_rows16", "on H200 (4.8 TB/s, 989 TFLOP/s): bound by memory", "balance", "K/V 2.00 MiB"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in\n" << text;
  EXPECT_NE(explainPlan(m, decode, *makePlan(m, decode), *findGpu("A100")).find("on A100"),
            std::string::npos);
  EXPECT_EQ(findGpu("Voodoo"), nullptr);
}

} // namespace

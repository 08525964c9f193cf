//===- ChipsTest.cpp - Which chip's code a GPU takes ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Chips.h"

#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

TEST(Chips, AGpuTakesItsOwnOrTheNewestOlderOneThatGoesOn) {
  EXPECT_EQ(targetOfGpu(80), "sm_80");
  EXPECT_EQ(targetOfGpu(86), "sm_86");
  EXPECT_EQ(targetOfGpu(87), "sm_86");
  EXPECT_EQ(targetOfGpu(89), "sm_89");
  EXPECT_EQ(targetOfGpu(90), "sm_90a");
  EXPECT_EQ(targetOfGpu(103), "sm_89"); // sm_90a and sm_100a each run on one generation only
  EXPECT_EQ(targetOfGpu(120), "sm_120a");
  EXPECT_EQ(targetOfGpu(75), "sm_80"); // sm_80 does not run there
}

TEST(Chips, AreFoundByName) {
  ASSERT_NE(findChip("sm_90a"), nullptr);
  EXPECT_TRUE(findChip("sm_90a")->hasWgmma);
  EXPECT_EQ(findChip("sm_90"), nullptr);
  EXPECT_EQ(listChips(), "sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a");
}

} // namespace

//===- LayoutTest.cpp - Structs of the C API stay as they are -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A program that was compiled with these structs runs with later libraries: none may grow or change. What a
// call needs beside one comes as a new function with a struct of its own.
//
//===----------------------------------------------------------------------===//
#include "attn-c/Cache.h"
#include "attn-c/Compiler.h"
#include "attn-c/Pages.h"
#include "attn-c/Runtime.h"

#include <gtest/gtest.h>

namespace {

TEST(CapiLayout, StructsDoNotGrow) {
// The struct and its bytes; the last field and where it begins.
#define ATTN_LAYOUT(type, bytes, last, begins)                                                               \
  EXPECT_EQ(sizeof(type), size_t{bytes});                                                                    \
  EXPECT_EQ(offsetof(type, last), size_t{begins}) << #type;
  ATTN_LAYOUT(AttnStatus, 16, message, 8)
  ATTN_LAYOUT(AttnTensor, 32, data, 24)
  ATTN_LAYOUT(AttnBuildInfo, 40, hostVersion, 32)
  ATTN_LAYOUT(AttnSource, 48, schedule, 40)
  ATTN_LAYOUT(AttnAsks, 56, numerics, 48)
  ATTN_LAYOUT(AttnHostOptions, 24, leaveSignals, 16)
  ATTN_LAYOUT(AttnDeviceInfo, 64, memoryBytes, 56)
  ATTN_LAYOUT(AttnArtifactInfo, 40, cubin, 34)
  ATTN_LAYOUT(AttnArtifactPart, 24, note, 16)
  ATTN_LAYOUT(AttnStore, 48, value, 40)
  ATTN_LAYOUT(AttnRows, 72, scale, 64)
  ATTN_LAYOUT(AttnPlanLimits, 64, pages, 56)
  ATTN_LAYOUT(AttnPlanOptions, 88, limits, 24)
  ATTN_LAYOUT(AttnPlanStats, 104, seconds, 96)
  ATTN_LAYOUT(AttnCacheClass, 24, draft, 20)
  ATTN_LAYOUT(AttnTokenCopy, 24, tokens, 20)
  ATTN_LAYOUT(AttnTokenWrite, 20, tokens, 16)
  ATTN_LAYOUT(AttnAppend, 16, tokens, 8)
  ATTN_LAYOUT(AttnBranch, 16, tokens, 12)
  ATTN_LAYOUT(AttnNodeInfo, 24, draftTokens, 20)
  ATTN_LAYOUT(AttnTokenSpan, 16, slot, 12)
  ATTN_LAYOUT(AttnCacheOperand, 8, drafts, 5)
  ATTN_LAYOUT(AttnRowGroup, 16, draft, 12)
  ATTN_LAYOUT(AttnPageMemory, 72, rowsLayerBytes, 64)
  ATTN_LAYOUT(AttnDevicePages, 128, vScaleLayerBytes, 120)
  ATTN_LAYOUT(AttnStridedPages, 224, vMeta, 200)
  ATTN_LAYOUT(AttnPrologue, 112, rotatedHeadBytes, 104)
  ATTN_LAYOUT(AttnDeviceRows, 48, layers, 44)
  ATTN_LAYOUT(AttnStepOperand, 12, pages, 8)
#undef ATTN_LAYOUT
}

} // namespace

//===- DecodeTest.cpp - Planner, session and cache together ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ForestDecoder.h"
#include "session/ScalarKernels.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

// Planner, session, host device and cache together; the kernels are plain C++.
TEST(Decode, aForestOverTwelveSteps) {
  for (int32_t window : {1 << 30, 50}) {
    SCOPED_TRACE("window " + std::to_string(window));
    const Manifest manifest = scalarManifest({.ends = {window}, .bigRows = 64});
    const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
    ForestDecoder decoder(manifest, {"scalar", {}, {}, kernels}, {16, 0, {{"all", 400, 0, 0, 0}}}, {}, 1e-5);
    decoder.decodeForest(11, 12);
  }
}

// A window over a class that keeps exactly the window: no row misses a freed token.
TEST(Decode, aStreamingForest) {
  const Manifest manifest = scalarManifest({.ends = {50}, .bigRows = 64});
  const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
  ForestDecoder decoder(manifest, {"scalar", {}, {}, kernels}, {16, 0, {{"window", 400, 50, 0, 12}}}, {},
                        1e-5);
  decoder.decodeForest(12, 12);
}

// One launch, recorded before the first step: all growth, branches and deaths are in the plan's buffers.
TEST(Decode, aForestByOneRecordedLaunch) {
  const Manifest manifest = scalarManifest({.ends = {1 << 30}, .bigRows = 64});
  const std::vector<host::HostKernel> kernels = scalarKernels(manifest);
  CacheBatchOptions shown;
  shown.maxPages = 12;
  ForestDecoder decoder(manifest, {"scalar", {}, {}, kernels}, {16, 0, {{"all", 400, 0, 0, 0}}}, shown, 1e-5);
  decoder.record();
  decoder.decodeForest(13, 12);
}

} // namespace

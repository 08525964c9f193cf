//===- PropertyTest.cpp - Random operations against a model ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A failure prints its seed; ATTN_FUZZ=20 runs twenty times as many.
//
//===----------------------------------------------------------------------===//
#include "Mirror.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// Counts of operations that were done and refused: a test that only ever refuses shows nothing.
struct Counts {
  int done = 0, refused = 0, exhausted = 0;
  void operator+=(const Status &status) {
    done += static_cast<bool>(status);
    refused += !status && status.error().kind == ErrorKind::Input;
    exhausted += !status && status.error().kind == ErrorKind::Memory;
  }
};

TEST(CacheProperty, randomOperationsAgreeWithTheModel) {
  Counts counts;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(rounds(150)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Mirror m(randomOptions(rng));
    for (int i = 0; i < 150; ++i) {
      counts += randomOperation(m, rng);
      const Status invariants = m.cache.checkInvariants();
      ASSERT_TRUE(invariants) << invariants.error().message;
      if (i % 8 == 0)
        m.verify();
      if (HasFailure())
        return;
    }
    m.verify();
    // Once all sequences are freed, all pages are free.
    ASSERT_TRUE(m.apply({m.cache.roots(), {}, {}}));
    EXPECT_EQ(m.cache.nodeCount(), 0);
    for (int32_t c = 0; c < std::ssize(m.cache.options().classes); ++c)
      EXPECT_EQ(m.cache.freePages(c), m.cache.options().classes[static_cast<size_t>(c)].pages);
  }
  EXPECT_GT(counts.done, 5000);
  EXPECT_GT(counts.refused, 500);
  EXPECT_GT(counts.exhausted, 500);
}

/// Beams: forks and deaths at every step, so that joints come and go.
TEST(CacheProperty, beams) {
  int cut = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(rounds(30)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    CacheOptions options = randomOptions(rng);
    for (CacheClass &info : options.classes)
      info.pages = 2000;
    Mirror m(options);
    std::vector<NodeId> beams{m.createRoot()};
    ASSERT_TRUE(m.append(beams[0], static_cast<int32_t>(1 + below(rng, 100))));
    for (int i = 0; i < 60; ++i) {
      while (beams.size() < 6)
        beams.push_back(*m.fork(beams[below(rng, beams.size())]));
      CacheStep step;
      while (beams.size() > 2 && below(rng, 3)) {
        const size_t victim = below(rng, beams.size());
        step.prune.push_back(beams[victim]);
        beams.erase(beams.begin() + static_cast<int64_t>(victim));
      }
      // Some are truncated before they grow, across tokens that they share with others.
      for (NodeId beam : beams)
        if (below(rng, 4) == 0)
          cut += static_cast<bool>(
              m.truncate(beam, static_cast<int32_t>(1 + below(rng, m.at(beam).path.size()))));
      for (NodeId beam : beams)
        step.append.push_back({beam, 1});
      ASSERT_TRUE(m.apply(step));
      // The tree's depth follows its leaves, not its history.
      EXPECT_LT(m.cache.nodeCount(), 2 * std::ssize(beams));
      m.verify();
      if (HasFailure())
        return;
    }
  }
  EXPECT_GT(cut, 500);
}

} // namespace

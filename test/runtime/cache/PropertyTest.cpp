//===- PropertyTest.cpp - Random operations against a model ---------------===//
//
// A failure prints its seed; ATTN_FUZZ=20 runs twenty times as many.
//
//===----------------------------------------------------------------------===//
#include "Mirror.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

CacheOptions randomOptions(Rng &rng) {
  CacheOptions options;
  options.pageTokens = int32_t{1} << below(rng, 5);
  options.draftPage = options.pageTokens >> below(rng, 5);
  options.classes.clear();
  options.classes.push_back({"all", static_cast<int32_t>(20 + below(rng, 400)), 0, 0, 0});
  while (options.classes.size() < 3 && below(rng, 2))
    options.classes.push_back({"streaming" + std::to_string(options.classes.size()),
                               static_cast<int32_t>(20 + below(rng, 300)),
                               static_cast<int32_t>(1 + below(rng, 40)), static_cast<int32_t>(below(rng, 30)),
                               static_cast<int32_t>(below(rng, 12))});
  return options;
}

/// What was done how often, and what was refused: a test that only ever refuses shows nothing.
struct Counts {
  int done = 0, refused = 0, exhausted = 0;
  void operator+=(const Status &status) {
    done += static_cast<bool>(status);
    refused += !status && status.error().kind == ErrorKind::Input;
    exhausted += !status && status.error().kind == ErrorKind::Memory;
  }
};

Status randomStep(Mirror &m, Rng &rng) {
  CacheStep step;
  for (size_t i = below(rng, 3); i > 0; --i)
    step.prune.push_back(m.pick(rng));
  for (size_t i = below(rng, 5); i > 0; --i)
    step.append.push_back({m.pick(rng), static_cast<int32_t>(1 + below(rng, 9))});
  for (size_t i = below(rng, 3); i > 0; --i)
    step.branch.push_back(
        {m.pick(rng), static_cast<int32_t>(1 + below(rng, 3)), static_cast<int32_t>(below(rng, 5))});
  return m.apply(step);
}

Status randomOperation(Mirror &m, Rng &rng) {
  if (m.nodes.empty() || below(rng, 20) == 0)
    return m.createRoot(), Status();
  const NodeId node = m.pick(rng);
  switch (below(rng, 12)) {
  case 0:
  case 1:
  case 2:
    return m.append(node, static_cast<int32_t>(1 + below(rng, below(rng, 4) ? 4 : 90)));
  case 3:
    return m.apply(
        {{}, {}, {{node, static_cast<int32_t>(1 + below(rng, 4)), static_cast<int32_t>(below(rng, 3))}}});
  case 4:
    return below(rng, 3) ? Status() : m.apply({{node}, {}, {}});
  case 5: {
    const Result<NodeId> twin = m.fork(node);
    return twin ? Status() : Status(twin.error());
  }
  case 6:
    return below(rng, 3) ? Status() : m.evict(node);
  case 7:
    return m.speculate(node, randomTree(rng, 30));
  case 8:
  case 9: {
    const TokenTree *draft = m.cache.draft(node);
    return m.commit(node,
                    draft ? static_cast<int32_t>(below(rng, static_cast<size_t>(draft->size()) + 1)) - 1 : 0);
  }
  default:
    return randomStep(m, rng);
  }
}

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
    // All sequences freed, all pages are back.
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
      for (NodeId beam : beams)
        step.append.push_back({beam, 1});
      ASSERT_TRUE(m.apply(step));
      // The tree is as deep as its leaves need, not as the history is long.
      EXPECT_LT(m.cache.nodeCount(), 2 * std::ssize(beams));
      m.verify();
      if (HasFailure())
        return;
    }
  }
}

} // namespace

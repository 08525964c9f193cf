//===- VisibilityTest.cpp - Tests: Who sees a token, as intervals ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Visibility.h"
#include "Fuzz.h"
#include "Samples.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

Visibility randomVisibility(Rng &rng, int depth) {
  Visibility result;
  result.kind = static_cast<Visibility::Kind>(below(rng, depth > 0 ? 7 : 5));
  if (result.kind >= Visibility::Kind::Or) {
    for (size_t i = 1 + below(rng, 3); i > 0; --i)
      result.of.push_back(randomVisibility(rng, depth - 1));
  } else if (result.kind >= Visibility::Kind::Window) {
    result.end = static_cast<int>(below(rng, 3));
  }
  return result;
}

bool contains(const IntervalList &list, int64_t p) {
  for (const Interval &interval : list)
    if (interval.begin <= p && p < interval.end)
      return true;
  return false;
}

void expectCanonical(const IntervalList &list) {
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_LT(list[i].begin, list[i].end);
    if (i)
      EXPECT_LT(list[i - 1].end, list[i].begin);
  }
}

// Against brute force over rows and positions: possible holds the union, certain is inside the intersection,
// and a single row is answered exactly.
TEST(Visibility, AgainstBruteForce) {
  Rng rng(7);
  IntervalList possible, certain;
  for (int round = 0; round < 4000; ++round) {
    const Visibility visibility = randomVisibility(rng, 3);
    const int32_t ends[3] = {static_cast<int32_t>(below(rng, 4)), static_cast<int32_t>(below(rng, 12)),
                             static_cast<int32_t>(below(rng, 30))};
    const int64_t qMin = static_cast<int64_t>(below(rng, 30)) - 4;
    const int64_t qMax = qMin + static_cast<int64_t>(round % 4 ? below(rng, 10) : 0);
    possiblePositions(visibility, ends, qMin, qMax, possible);
    certainPositions(visibility, ends, qMin, qMax, certain);
    expectCanonical(possible);
    expectCanonical(certain);
    EXPECT_LE(possible.size(), static_cast<size_t>(intervalBound(visibility)));
    for (int64_t p = -10; p < 50; ++p) {
      bool some = false, all = true;
      for (int64_t q = qMin; q <= qMax; ++q) {
        some |= isVisible(visibility, ends, q, p);
        all &= isVisible(visibility, ends, q, p);
      }
      if (some)
        EXPECT_TRUE(contains(possible, p));
      if (contains(certain, p))
        EXPECT_TRUE(all);
      if (qMin == qMax) {
        EXPECT_EQ(contains(possible, p), some);
        EXPECT_EQ(contains(certain, p), all);
      }
    }
  }
}

TEST(Visibility, SinkAndRecentLeaveAGap) {
  const Visibility duo =
      both(visibility(Visibility::Kind::Causal),
           either(visibility(Visibility::Kind::Sink, 0), visibility(Visibility::Kind::Recent, 1)));
  const int32_t ends[] = {4, 8};
  IntervalList list;
  possiblePositions(duo, ends, 100, 102, list);
  toTokens(list, 0, 1000);
  EXPECT_EQ(list, (IntervalList{{0, 4}, {93, 103}}));
  certainPositions(duo, ends, 100, 102, list);
  toTokens(list, 0, 1000);
  EXPECT_EQ(list, (IntervalList{{0, 4}, {95, 101}}));
  EXPECT_EQ(totalSize(list), 10);
}

TEST(Visibility, TokensOfAnInstanceThatStartsLater) {
  IntervalList list{{leastPosition, 5}, {90, 103}};
  toTokens(list, 95, 6);
  EXPECT_EQ(list, (IntervalList{{0, 6}}));
  toTokens(list, 0, 0);
  EXPECT_TRUE(list.empty());
}

} // namespace

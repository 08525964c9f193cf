//===- VisibilityTest.cpp - Tests: Who sees a token, as intervals ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Visibility.h"
#include "Fuzz.h"
#include "Samples.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

Visibility randomVisibility(Rng &rng, int depth) {
  Visibility result;
  result.kind = static_cast<Visibility::Kind>(below(rng, std::size(visibilityTerms)));
  if (isConnective(result.kind)) {
    if (depth == 0)
      return visibility(Visibility::Kind::Causal);
    for (size_t i = 1 + below(rng, 3); i > 0; --i)
      result.of.push_back(randomVisibility(rng, depth - 1));
  } else if (const int sizes = termOf(result.kind).sizeCount(); sizes > 0) {
    result.end = static_cast<int>(below(rng, 4 - static_cast<uint64_t>(sizes)));
  }
  return result;
}

/// Defines the terms without VisibilityTerms.h.
bool isShown(const Visibility &term, std::span<const int32_t> ends, int64_t q, int64_t p) {
  const auto size = [&](int i) { return ends[static_cast<size_t>(term.end + i)]; };
  switch (term.kind) {
  case VisibilityKind::Causal:
    return p <= q;
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return p <= q && q - p < size(0);
  case VisibilityKind::Sink:
    return p < size(0);
  case VisibilityKind::TwoSided:
    return q - p <= size(0) && p - q <= size(1);
  case VisibilityKind::Chunk:
    return std::floor(double(p) / size(0)) == std::floor(double(q) / size(0));
  case VisibilityKind::All:
  case VisibilityKind::Or:
  case VisibilityKind::And:
    break;
  }
  return true;
}

TEST(Visibility, TermsAreWhatTheySay) {
  for (size_t k = 0; k < std::size(visibilityTerms); ++k) {
    const auto kind = static_cast<VisibilityKind>(k);
    if (isConnective(kind))
      continue;
    const VisibilityTerm &term = termOf(kind);
    EXPECT_EQ(findTerm(term.word, term.sizeCount()), kind);
    const Visibility one = visibility(kind, term.sizeCount() ? 0 : -1);
    for (int32_t a = term.leastSize; a < 6; ++a)
      for (int32_t c = 0; c < 4; ++c)
        for (int64_t q = -9; q < 20; ++q)
          for (int64_t p = -30; p < 40; ++p)
            ASSERT_EQ(isVisible(one, std::array{a, c}, q, p), isShown(one, std::array{a, c}, q, p))
                << term.word << " " << a << " " << c << " row " << q << " position " << p;
  }
}

// Tests implication over sizes of both terms.
TEST(Visibility, WhatIsImpliedIsSeen) {
  for (size_t i = 0; i < std::size(visibilityTerms); ++i)
    for (size_t j = 0; j < std::size(visibilityTerms); ++j) {
      const auto a = static_cast<VisibilityKind>(i), b = static_cast<VisibilityKind>(j);
      if (isConnective(a) || isConnective(b) || !implies(a, b))
        continue;
      const Visibility inner = visibility(a, 0), outer = visibility(b, 2);
      for (int32_t size : {1, 2, 5})
        for (int32_t other : {1, 3, 7})
          for (int64_t q = 0; q < 16; ++q)
            for (int64_t p = -8; p < 32; ++p)
              if (isVisible(inner, std::array{size, other, other, size}, q, p))
                ASSERT_TRUE(isVisible(outer, std::array{size, other, other, size}, q, p));
    }
  EXPECT_TRUE(implies(VisibilityKind::Window, VisibilityKind::Causal));
  EXPECT_TRUE(implies(VisibilityKind::Chunk, VisibilityKind::All));
  EXPECT_FALSE(implies(VisibilityKind::Window, VisibilityKind::Recent));
  EXPECT_FALSE(implies(VisibilityKind::TwoSided, VisibilityKind::Causal));
  EXPECT_FALSE(implies(VisibilityKind::Causal, VisibilityKind::Chunk));
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

int32_t leastOf(const Visibility &visibility, int end) {
  const VisibilityTerm &term = termOf(visibility.kind);
  int32_t least = visibility.end <= end && end < visibility.end + term.sizeCount() ? term.leastSize : 0;
  for (const Visibility &part : visibility.of)
    least = std::max(least, leastOf(part, end));
  return least;
}

// Compares with brute force over rows and positions: possible holds the union, certain is inside the
// intersection, and both are exact for a single row.
TEST(Visibility, AgainstBruteForce) {
  Rng rng(7);
  IntervalList possible, certain;
  for (int round = 0; round < 4000; ++round) {
    const Visibility visibility = randomVisibility(rng, 3);
    int32_t ends[4] = {};
    for (size_t i = 0; i < 4; ++i)
      ends[i] =
          std::max(leastOf(visibility, static_cast<int>(i)), static_cast<int32_t>(below(rng, 4 + 10 * i)));
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

//===- VisibilityTerms.h - What each term of a visibility is ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A visibility is an expression of terms, joined by `or` and `and`. A term lets a
// row at position q see one interval of positions, [begin(q), end(q)). This file
// alone defines every term: its word, its sizes, its interval.
//
// `intervalOf` is written over an abstract arithmetic. Code that needs the interval
// brings its own arithmetic:
//
//
//   the planner on the host     64-bit integers
//   the planner on the device   operations on i32
//   the mask of a kernel        operations on i32, measured from a lane's column
//   the reference               64-bit integers
//   `implies` below             linear forms of q and the sizes
//
// Every term keeps these rules, because all of the above rely on them:
//
//   Both ends are non-decreasing in q. Then the rows of a tile see nothing outside
//   of [begin(first row), end(last row)), and all of them see everything inside of
//   [begin(last row), end(first row)).
//
// A term that shows nothing to one row shows nothing to any row, whatever its
// position: a window of size 0.
//
//   Sizes are run-time values: the term is compiled, and another size recompiles
//   nothing. A fact about a term must hold for all its sizes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_ARTIFACT_VISIBILITYTERMS_H
#define ATTN_RT_ARTIFACT_VISIBILITYTERMS_H

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace attn::rt {

/// The text form of a term.
struct VisibilityTerm {
  std::string_view word;  ///< two terms may share it if the numbers of their sizes differ
  std::string_view sizes; ///< names of its sizes, separated by ", "
  int32_t leastSize = 0;

  constexpr int sizeCount() const {
    int count = !sizes.empty();
    for (char c : sizes)
      count += c == ',';
    return count;
  }
};

/// The terms and connectives.
// clang-format off
enum class VisibilityKind : uint8_t { All, Or, And, Causal, Window, Recent, Sink, TwoSided, Chunk };
inline constexpr VisibilityTerm visibilityTerms[] = {
    {"all", ""},
    {"or", ""},
    {"and", ""},
    {"causal", ""},
    {"window", "n"},
    {"recent", "n"},
    {"sink", "n"},
    {"window", "left, right"},
    {"chunk", "n", 1},
};
// clang-format on

constexpr const VisibilityTerm &termOf(VisibilityKind kind) {
  return visibilityTerms[static_cast<size_t>(kind)];
}

/// The term with this word and number of sizes; empty if there is none.
constexpr std::optional<VisibilityKind> findTerm(std::string_view word, int sizeCount) {
  for (size_t i = 0; i < std::size(visibilityTerms); ++i)
    if (visibilityTerms[i].word == word && visibilityTerms[i].sizeCount() == sizeCount)
      return static_cast<VisibilityKind>(i);
  return std::nullopt;
}

constexpr bool isConnective(VisibilityKind kind) {
  return kind == VisibilityKind::Or || kind == VisibilityKind::And;
}

/// The most intervals of a visibility: 1 for a term, else a bound from its parts, whose bounds `boundOf`
/// gives. A union has the sum of its parts' intervals; an intersection of lists of m and n intervals has at
/// most m + n - 1.
template <typename Parts, typename BoundOf>
int intervalBound(VisibilityKind kind, const Parts &parts, BoundOf boundOf) {
  if (parts.empty())
    return 1;
  int bound = kind == VisibilityKind::Or ? 0 : 1 - static_cast<int>(parts.size());
  for (const auto &part : parts)
    bound += boundOf(part);
  return bound;
}

/// Positions [begin, end). An absent end is infinite.
template <typename Position> struct PositionBounds {
  std::optional<Position> begin, end;
};

/// The interval of positions that a term shows to the row at position `q`. `sizes[i]` is its i-th size. An
/// arithmetic has these functions of a position p and a size n:
///
///   next(p)         p + 1
///   plus(p, n)      p + n
///   minus(p, n)     p - n
///   at(n)           the position n
///   chunkOf(p, n)   the greatest multiple of n that is at most p
template <typename Arithmetic, typename Position, typename Sizes>
PositionBounds<Position> intervalOf(VisibilityKind kind, Arithmetic &&a, Position q, const Sizes &sizes) {
  switch (kind) {
  case VisibilityKind::Causal:
    return {{}, a.next(q)};
  case VisibilityKind::Window:
  case VisibilityKind::Recent: {
    Position next = a.next(q);
    return {a.minus(next, sizes[0]), next};
  }
  case VisibilityKind::Sink:
    return {{}, a.at(sizes[0])};
  case VisibilityKind::TwoSided:
    return {a.minus(q, sizes[0]), a.plus(a.next(q), sizes[1])};
  case VisibilityKind::Chunk: {
    Position begin = a.chunkOf(q, sizes[0]);
    return {begin, a.plus(begin, sizes[0])};
  }
  case VisibilityKind::All:
  case VisibilityKind::Or:
  case VisibilityKind::And:
    break;
  }
  return {};
}

/// The arithmetic of integers.
struct IntegerPositions {
  static int64_t next(int64_t p) { return p + 1; }
  static int64_t plus(int64_t p, int64_t n) { return p + n; }
  static int64_t minus(int64_t p, int64_t n) { return p - n; }
  static int64_t at(int64_t n) { return n; }
  static int64_t chunkOf(int64_t p, int64_t n) {
    const int64_t quotient = p / n;
    return (quotient - (p % n < 0)) * n;
  }
};

/// A position as a sum of q, constants and sizes: what holds of the sum holds for every q and every size.
struct LinearPosition {
  bool moves = false; ///< whether the sum contains q
  bool exact = true;  ///< whether the position equals the sum
  int64_t constant = 0;
  std::array<int, 2> sizes = {};

  /// Whether `this` is at least `other` everywhere, with independent sizes.
  constexpr bool isNowhereLess(const LinearPosition &other) const {
    bool known = exact && other.exact && moves == other.moves && constant >= other.constant;
    for (size_t i = 0; i < sizes.size(); ++i)
      known = known && sizes[i] >= 0 && other.sizes[i] <= 0;
    return known;
  }
};

/// The arithmetic of linear positions. A size is given by its index.
struct LinearPositions {
  static LinearPosition next(LinearPosition p) {
    ++p.constant;
    return p;
  }
  static LinearPosition plus(LinearPosition p, int n) {
    ++p.sizes[static_cast<size_t>(n)];
    return p;
  }
  static LinearPosition minus(LinearPosition p, int n) {
    --p.sizes[static_cast<size_t>(n)];
    return p;
  }
  static LinearPosition at(int n) { return plus({}, n); }
  static LinearPosition chunkOf(LinearPosition p, int) {
    p.exact = false;
    return p;
  }
};

inline PositionBounds<LinearPosition> linearInterval(VisibilityKind kind) {
  return intervalOf(kind, LinearPositions(), LinearPosition{.moves = true}, std::array{0, 1});
}

/// Whether term `b` shows everything that term `a` shows, for every row and all sizes of both.
inline bool implies(VisibilityKind a, VisibilityKind b) {
  const PositionBounds<LinearPosition> inner = linearInterval(a), outer = linearInterval(b);
  return (!outer.begin || (inner.begin && inner.begin->isNowhereLess(*outer.begin))) &&
         (!outer.end || (inner.end && outer.end->isNowhereLess(*inner.end)));
}

/// Whether the interval of a term begins at a distance from the row that sees it.
inline bool beginsWithRow(VisibilityKind kind) {
  const PositionBounds<LinearPosition> bounds = linearInterval(kind);
  return bounds.begin && bounds.begin->moves;
}

/// Whether the interval of a term depends on the row's position.
inline bool dependsOnRow(VisibilityKind kind) {
  const PositionBounds<LinearPosition> bounds = linearInterval(kind);
  return beginsWithRow(kind) || (bounds.end && bounds.end->moves);
}

} // namespace attn::rt

#endif

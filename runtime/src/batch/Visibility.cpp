//===- Visibility.cpp - Who sees a token, as intervals --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Visibility.h"

#include <algorithm>
#include <memory>

namespace attn::rt {

using Kind = Visibility::Kind;

namespace {

bool isLeaf(const Visibility &visibility) { return visibility.of.empty(); }

/// A leaf or an intersection of leaves: one interval.
bool isTerm(const Visibility &visibility) {
  return isLeaf(visibility) ||
         (visibility.kind == Kind::And && std::all_of(visibility.of.begin(), visibility.of.end(), isLeaf));
}

constexpr size_t mostTerms = 8;

/// The terms whose union the visibility is; empty if they are too many.
std::vector<Visibility> termsOf(const Visibility &visibility) {
  std::vector<Visibility> terms;
  if (visibility.kind == Kind::Or) {
    for (const Visibility &part : visibility.of) {
      const std::vector<Visibility> more = termsOf(part);
      if (more.empty() || terms.size() + more.size() > mostTerms)
        return {};
      terms.insert(terms.end(), more.begin(), more.end());
    }
    return terms;
  }
  if (visibility.kind != Kind::And)
    return {visibility};
  terms.push_back({Kind::And, -1, {}});
  for (const Visibility &part : visibility.of) {
    const std::vector<Visibility> factors = termsOf(part);
    if (factors.empty() || terms.size() * factors.size() > mostTerms)
      return {};
    std::vector<Visibility> products;
    for (const Visibility &term : terms)
      for (const Visibility &factor : factors) {
        Visibility &product = products.emplace_back(term);
        if (isLeaf(factor))
          product.of.push_back(factor);
        else
          product.of.insert(product.of.end(), factor.of.begin(), factor.of.end());
      }
    terms = std::move(products);
  }
  for (Visibility &term : terms) {
    std::vector<Visibility> kept;
    for (const Visibility &leaf : term.of) {
      const bool isImplied = std::any_of(term.of.begin(), term.of.end(), [&](const Visibility &other) {
        return other.kind != leaf.kind && implies(other.kind, leaf.kind);
      });
      if (leaf.kind != Kind::All && !isImplied)
        kept.push_back(leaf);
    }
    term.of = std::move(kept);
    if (term.of.size() < 2)
      term = term.of.empty() ? Visibility() : Visibility(term.of[0]);
  }
  return terms;
}

} // namespace

Visibility simplified(const Visibility &visibility) {
  std::vector<Visibility> terms = termsOf(visibility);
  if (terms.empty())
    return visibility;
  return terms.size() == 1 ? terms[0] : Visibility{Kind::Or, -1, std::move(terms)};
}

Interval termInterval(const Visibility &term, std::span<const int32_t> ends, int64_t position) {
  const auto sizes = ends.subspan(term.end < 0 ? 0 : static_cast<size_t>(term.end));
  const PositionBounds<int64_t> bounds = intervalOf(term.kind, IntegerPositions(), position, sizes);
  return {bounds.begin.value_or(leastPosition), bounds.end.value_or(greatestPosition)};
}

bool isVisible(const Visibility &visibility, std::span<const int32_t> ends, int64_t q, int64_t p) {
  const auto sees = [&](const Visibility &part) { return isVisible(part, ends, q, p); };
  if (visibility.kind == Kind::Or)
    return std::any_of(visibility.of.begin(), visibility.of.end(), sees);
  if (visibility.kind == Kind::And)
    return std::all_of(visibility.of.begin(), visibility.of.end(), sees);
  const Interval shown = termInterval(visibility, ends, q);
  return shown.begin <= p && p < shown.end;
}

void unite(const IntervalList &a, const IntervalList &b, IntervalList &out) {
  out.clear();
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool left = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    const Interval next = left ? a[i++] : b[j++];
    if (!out.empty() && touches(out.back(), next))
      out.back() = joined(out.back(), next);
    else
      out.push_back(next);
  }
}

void intersect(const IntervalList &a, const IntervalList &b, IntervalList &out) {
  out.clear();
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common = commonOf(a[i], b[j]);
    if (!common.isEmpty())
      out.push_back(common);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
}

namespace {

/// Scratch memory for the parts of a union or intersection at each depth: a plan evaluates thousands of
/// times.
struct Scratch {
  IntervalList part, whole;
};
thread_local std::vector<std::unique_ptr<Scratch>> scratchByDepth;

/// `low` and `high` are the rows that decide the lower and the upper end: (qMin, qMax) for possible
/// positions, (qMax, qMin) for certain ones.
Interval leafInterval(const Visibility &leaf, std::span<const int32_t> ends, int64_t low, int64_t high) {
  const Interval lower = termInterval(leaf, ends, low);
  return rangeOfRows(lower, low == high ? lower : termInterval(leaf, ends, high));
}

Interval productInterval(const Visibility &term, std::span<const int32_t> ends, int64_t low, int64_t high) {
  if (isLeaf(term))
    return leafInterval(term, ends, low, high);
  Interval all{leastPosition, greatestPosition};
  for (const Visibility &leaf : term.of)
    all = commonOf(all, leafInterval(leaf, ends, low, high));
  return all;
}

/// Adds an interval to a short list, in place.
void insert(Interval next, IntervalList &list) {
  if (next.isEmpty())
    return;
  if (list.empty() || !touches(list.back(), next))
    return list.push_back(next);
  size_t at = list.size();
  while (at > 0 && touches(list[at - 1], next))
    --at;
  size_t behind = at;
  for (; behind < list.size() && touches(next, list[behind]); ++behind)
    next = joined({std::min(next.begin, list[behind].begin), next.end}, list[behind]);
  if (behind == at) {
    list.insert(list.begin() + static_cast<int64_t>(at), next);
    return;
  }
  list[at] = next;
  list.erase(list.begin() + static_cast<int64_t>(at) + 1, list.begin() + static_cast<int64_t>(behind));
}

void evaluate(const Visibility &visibility, std::span<const int32_t> ends, int64_t low, int64_t high,
              IntervalList &out, size_t depth = 0) {
  out.clear();
  if (isTerm(visibility))
    return insert(productInterval(visibility, ends, low, high), out);
  if (visibility.kind == Kind::Or && std::all_of(visibility.of.begin(), visibility.of.end(), isTerm)) {
    for (const Visibility &term : visibility.of)
      insert(productInterval(term, ends, low, high), out);
    return;
  }
  if (depth == scratchByDepth.size())
    scratchByDepth.push_back(std::make_unique<Scratch>());
  auto &[part, whole] = *scratchByDepth[depth];
  evaluate(visibility.of[0], ends, low, high, out, depth + 1);
  for (size_t i = 1; i < visibility.of.size(); ++i) {
    evaluate(visibility.of[i], ends, low, high, part, depth + 1);
    (visibility.kind == Kind::Or ? unite : intersect)(out, part, whole);
    std::swap(out, whole);
  }
}

} // namespace

void possiblePositions(const Visibility &visibility, std::span<const int32_t> ends, int64_t qMin,
                       int64_t qMax, IntervalList &out) {
  evaluate(visibility, ends, qMin, qMax, out);
}

void certainPositions(const Visibility &visibility, std::span<const int32_t> ends, int64_t qMin, int64_t qMax,
                      IntervalList &out) {
  evaluate(visibility, ends, qMax, qMin, out);
}

void toTokens(IntervalList &list, int64_t pos0, int64_t length) {
  size_t kept = 0;
  for (const Interval &interval : list) {
    const Interval cut = tokensOf(interval, pos0, length);
    if (!cut.isEmpty())
      list[kept++] = cut;
  }
  list.resize(kept);
}

int64_t totalSize(const IntervalList &list) {
  int64_t total = 0;
  for (const Interval &interval : list)
    total += interval.size();
  return total;
}

bool beginsWithRow(const Visibility &visibility) {
  return beginsWithRow(visibility.kind) ||
         std::any_of(visibility.of.begin(), visibility.of.end(),
                     [](const Visibility &part) { return beginsWithRow(part); });
}

static int32_t leastSize(const Visibility &visibility, int end) {
  const VisibilityTerm &term = termOf(visibility.kind);
  int32_t least = visibility.end <= end && end < visibility.end + term.sizeCount() ? term.leastSize : 0;
  for (const Visibility &part : visibility.of)
    least = std::max(least, leastSize(part, end));
  return least;
}

int32_t leastSize(const Manifest &manifest, size_t i) {
  int32_t least = 0;
  for (const OperandInfo &operand : manifest.operands)
    least = std::max(least, leastSize(operand.visibility, static_cast<int>(i)));
  for (const HeadClassInfo &headClass : manifest.headClasses)
    least = std::max(least, leastSize(headClass.visibility, static_cast<int>(i)));
  return least;
}

int intervalBound(const Visibility &visibility) {
  return intervalBound(visibility.kind, visibility.of,
                       [](const Visibility &part) { return intervalBound(part); });
}

} // namespace attn::rt

#include "attn_rt/Visibility.h"

#include <algorithm>
#include <memory>

namespace attn::rt {

using Kind = Visibility::Kind;

bool isVisible(const Visibility &visibility, std::span<const int32_t> ends, int64_t q, int64_t p) {
  const auto sees = [&](const Visibility &part) { return isVisible(part, ends, q, p); };
  switch (visibility.kind) {
  case Kind::All:
    return true;
  case Kind::Causal:
    return p <= q;
  case Kind::Window:
  case Kind::Recent:
    return p <= q && q - p < ends[static_cast<size_t>(visibility.end)];
  case Kind::Sink:
    return p < ends[static_cast<size_t>(visibility.end)];
  case Kind::Or:
    return std::any_of(visibility.of.begin(), visibility.of.end(), sees);
  case Kind::And:
    return std::all_of(visibility.of.begin(), visibility.of.end(), sees);
  }
  return false;
}

void unite(const IntervalList &a, const IntervalList &b, IntervalList &out) {
  out.clear();
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool left = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    const Interval next = left ? a[i++] : b[j++];
    if (!out.empty() && next.begin <= out.back().end)
      out.back().end = std::max(out.back().end, next.end);
    else
      out.push_back(next);
  }
}

void intersect(const IntervalList &a, const IntervalList &b, IntervalList &out) {
  out.clear();
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.begin < common.end)
      out.push_back(common);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
}

namespace {

/// Room for the parts of a union or intersection at each depth: a plan asks thousands of times.
struct Scratch {
  IntervalList part, whole;
};
thread_local std::vector<std::unique_ptr<Scratch>> scratchByDepth;

// `low` and `high` are the rows that decide the lower and the upper end: (qMin, qMax) for what is possible,
// (qMax, qMin) for what is certain.
void evaluate(const Visibility &visibility, std::span<const int32_t> ends, int64_t low, int64_t high,
              IntervalList &out, size_t depth = 0) {
  out.clear();
  const auto push = [&](int64_t begin, int64_t end) {
    if (begin < end)
      out.push_back({begin, end});
  };
  switch (visibility.kind) {
  case Kind::All:
    return push(leastPosition, greatestPosition);
  case Kind::Causal:
    return push(leastPosition, high + 1);
  case Kind::Window:
  case Kind::Recent:
    // A window of nothing is empty for every row, although its two ends, taken from two rows, would hold
    // something.
    if (const int64_t size = ends[static_cast<size_t>(visibility.end)]; size > 0)
      push(low - size + 1, high + 1);
    return;
  case Kind::Sink:
    return push(leastPosition, ends[static_cast<size_t>(visibility.end)]);
  case Kind::Or:
  case Kind::And:
    break;
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
    const Interval cut{std::max<int64_t>(interval.begin - pos0, 0), std::min(interval.end - pos0, length)};
    if (cut.begin < cut.end)
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

int intervalBound(const Visibility &visibility) {
  if (visibility.of.empty())
    return 1;
  // Each part adds its own intervals to a union; an intersection of lists of m and n holds at most m + n - 1.
  int bound = visibility.kind == Kind::Or ? 0 : 1 - static_cast<int>(visibility.of.size());
  for (const Visibility &part : visibility.of)
    bound += intervalBound(part);
  return bound;
}

} // namespace attn::rt

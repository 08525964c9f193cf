//===- Visibility.h - Who sees a token, as intervals ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No mask is ever stored. Each term lets a row at position q see one interval of
// positions (attn_rt/artifact/VisibilityTerms.h), and `|` and `&` unite and
// intersect such sets, so that what one row sees is always a short list of
// intervals. A tile holds many rows, at positions between qMin and qMax, and asks
// two questions:
//
//     possible   a set that holds everything that some row of the tile sees:
//                tokens outside of it need not be loaded
//     certain    a set of what every row of the tile sees: tokens inside of it
//                need no mask
//
// Both are the row's interval with its ends at the worst of qMin and qMax: the
// possible window is [qMin - w + 1, qMax], the certain one [qMax - w + 1, qMin].
// Union and intersection carry over part by part. One of the four ways is exact
// (possible of a union, certain of an intersection), the other two err on the
// safe side: the possible set may be too large and the certain set too small, never the reverse.
//
// A few compares against these ends tell whether a token is full, partial or out of
// sight. A causal tile above the diagonal, the middle of a window and the gap between
// sink and recent tokens need no special case.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_BATCH_VISIBILITY_H
#define ATTN_RT_BATCH_VISIBILITY_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/batch/TokenRanges.h"

namespace attn::rt {

using Interval = RangeOf<int64_t>;

/// Stands for an end at infinity: far outside of 32 bits, and far enough from 64 bits to add to.
inline constexpr int64_t leastPosition = -(int64_t{1} << 40);
inline constexpr int64_t greatestPosition = int64_t{1} << 40;

/// A sorted list of disjoint, nonempty intervals that do not touch.
using IntervalList = std::vector<Interval>;

/// Rewrites a visibility as a union of intersections, without `all` in them and without `causal` beside a
/// term that implies it: the form that is quickest to evaluate. Returns the visibility unchanged if that form
/// would be long.
Visibility simplified(const Visibility &visibility);

/// Whether the row at position q sees the token at position p. `ends` are the run-time sizes of windows and
/// sinks (by default Manifest::ends).
bool isVisible(const Visibility &visibility, std::span<const int32_t> ends, int64_t q, int64_t p);

/// Replaces the contents of `out` by the positions that a tile of rows may see, or certainly sees; the memory
/// of `out` is reused.
void possiblePositions(const Visibility &visibility, std::span<const int32_t> ends, int64_t qMin,
                       int64_t qMax, IntervalList &out);
void certainPositions(const Visibility &visibility, std::span<const int32_t> ends, int64_t qMin, int64_t qMax,
                      IntervalList &out);

/// The union and the intersection of two lists. They replace the contents of `out`, which must be neither
/// list.
void unite(const IntervalList &a, const IntervalList &b, IntervalList &out);
void intersect(const IntervalList &a, const IntervalList &b, IntervalList &out);

/// Converts positions to tokens of an instance whose token t is at position pos0 + t: shifts them and cuts
/// them to [0, length).
void toTokens(IntervalList &list, int64_t pos0, int64_t length);

/// The sum of the intervals' sizes.
int64_t totalSize(const IntervalList &list);

/// Returns the interval that one term shows to a row at `position`.
Interval termInterval(const Visibility &term, std::span<const int32_t> ends, int64_t position);

/// Whether an interval begins at a distance from the row that sees it.
bool beginsWithRow(const Visibility &visibility);

/// Returns the least legal value of size `i` of the manifest.
int32_t leastSize(const Manifest &manifest, size_t i);

/// The most intervals that a visibility can give.
int intervalBound(const Visibility &visibility);

} // namespace attn::rt

#endif

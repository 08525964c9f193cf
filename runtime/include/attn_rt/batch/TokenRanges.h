//===- TokenRanges.h - Which tokens a tile of rows sees ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the interval that a term shows to a row (VisibilityTerms.h) to the tokens that a
// tile of rows reads, and to the tokens that all of its rows see, over any numbers
// (Arithmetic.h):
//
//   rangeOfRows   the interval of a term for rows between two positions
//   commonOf      what two terms show together
//   tokensOf      positions to tokens of an instance
//   alignedTo     a range that begins where a kernel can begin to copy
//   fullOf        the part that needs no mask
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_BATCH_TOKENRANGES_H
#define ATTN_RT_BATCH_TOKENRANGES_H

#include "attn_rt/artifact/VisibilityTerms.h"
#include "attn_rt/support/Arithmetic.h"

namespace attn::rt {

/// Positions or tokens [begin, end).
template <typename N> struct RangeOf {
  N begin = {}, end = {};
  auto size() const { return end - begin; }
  auto isEmpty() const { return end <= begin; }
  bool operator==(const RangeOf &) const = default;
};

/// `x` if the condition holds, else `y`.
template <typename Condition, typename N>
RangeOf<N> select(Condition condition, const RangeOf<N> &x, const RangeOf<N> &y) {
  return {select(condition, x.begin, y.begin), select(condition, x.end, y.end)};
}
/// The range if the condition holds, else [0, 0).
template <typename Condition, typename N>
RangeOf<N> rangeWhere(Condition condition, const RangeOf<N> &range) {
  return {select(condition, range.begin, 0), select(condition, range.end, 0)};
}

/// The index of the list of tokens that a head has of an instance, if each of `heads` has its own lists.
template <typename N, typename Heads, typename Head> auto listOfHead(N instance, Heads heads, Head head) {
  return instance * heads + head;
}

/// The intersection of two ranges. If they are disjoint, its end is at or before its begin.
template <typename N> RangeOf<N> commonOf(const RangeOf<N> &x, const RangeOf<N> &y) {
  return {max(x.begin, y.begin), min(x.end, y.end)};
}

/// The position of query row `row` of a sequence. The rows of the sequence end before row `rowsEnd` and are
/// its last tokens; `end` is the position after its last token.
template <typename N> auto positionOf(N row, N rowsEnd, N end) { return (end - rowsEnd) + row; }

/// The positions that a term shows to a range of rows: `lower` is what the row that decides the begin sees,
/// `upper` what the row that decides the end sees. A term that shows nothing to one row shows nothing to any,
/// although its two ends come from two rows.
template <typename N> RangeOf<N> rangeOfRows(const RangeOf<N> &lower, const RangeOf<N> &upper) {
  return rangeWhere(lower.begin < lower.end, RangeOf<N>{lower.begin, upper.end});
}

/// Positions as tokens of an instance of `length` tokens whose first token is at `pos0`: the first token at
/// or after a position, and the end of the tokens before it.
template <typename N> auto firstTokenAt(N position, N pos0) { return max(position - pos0, 0); }
template <typename N> auto endOfTokensAt(N position, N pos0, N length) {
  return min(position - pos0, length);
}

/// The tokens of an instance at the given positions.
template <typename N> RangeOf<N> tokensOf(const RangeOf<N> &positions, N pos0, N length) {
  return {firstTokenAt(positions.begin, pos0), endOfTokensAt(positions.end, pos0, length)};
}

// The overloads below take bounds whose infinite ends are absent. Integers have numbers for infinite ends
// (Visibility.h).

template <typename N>
PositionBounds<N> rangeOfRows(const PositionBounds<N> &lower, const PositionBounds<N> &upper) {
  if (!lower.begin || !lower.end)
    return {lower.begin, upper.end};
  const RangeOf<N> shown =
      rangeOfRows(RangeOf<N>{*lower.begin, *lower.end}, RangeOf<N>{*upper.begin, *upper.end});
  return {shown.begin, shown.end};
}

template <typename N> PositionBounds<N> commonOf(const PositionBounds<N> &x, const PositionBounds<N> &y) {
  PositionBounds<N> common = x;
  if (y.begin)
    common.begin = x.begin ? max(*x.begin, *y.begin) : *y.begin;
  if (y.end)
    common.end = x.end ? min(*x.end, *y.end) : *y.end;
  return common;
}

template <typename N> RangeOf<N> tokensOf(const PositionBounds<N> &positions, N pos0, N length) {
  return {positions.begin ? firstTokenAt(*positions.begin, pos0) : constantLike(length, 0),
          positions.end ? endOfTokensAt(*positions.end, pos0, length) : length};
}

/// Whether two ranges, of which `former` begins first, touch or overlap.
template <typename N> auto touches(const RangeOf<N> &former, const RangeOf<N> &latter) {
  return latter.begin <= former.end;
}
/// The union of two ranges that touch or overlap.
template <typename N> RangeOf<N> joined(const RangeOf<N> &former, const RangeOf<N> &latter) {
  return {former.begin, max(former.end, latter.end)};
}

/// The range, extended to begin at a multiple of `align`: kernels that copy whole boxes begin there, and mask
/// the extra tokens.
template <typename N, typename Align> RangeOf<N> alignedTo(Align align, const RangeOf<N> &range) {
  return {range.begin - range.begin % align, range.end};
}
/// Whether an aligned range begins inside the range before it. The two become one.
template <typename N> auto overlaps(const RangeOf<N> &former, const RangeOf<N> &latter) {
  return latter.begin < former.end;
}

/// The longest piece of `range` so far that all rows see: `full`, or the intersection with `sure`.
template <typename N>
RangeOf<N> fullOf(const RangeOf<N> &range, const RangeOf<N> &sure, const RangeOf<N> &full) {
  const RangeOf<N> common = commonOf(range, sure);
  return select(full.size() < common.size(), common, full);
}

/// The tokens of a part of a range that all rows see, given `full`, the tokens of the whole range that they
/// see. An empty result begins where the part begins.
template <typename N> RangeOf<N> fullWithin(const RangeOf<N> &part, const RangeOf<N> &full) {
  const RangeOf<N> common = commonOf(full, part);
  return select(common.begin < common.end, common, RangeOf<N>{part.begin, part.begin});
}

} // namespace attn::rt

#endif

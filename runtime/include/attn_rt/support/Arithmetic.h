//===- Arithmetic.h - Formulas over any numbers -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The planner runs on the host and, if a kernel makes plans, on the device. Its
// formulas are written once, as templates over their number type:
//
//     template <typename N, typename Keys> auto tilesOf(RangeOf<N> range, Keys keys) {
//       return ceilDiv(range.size(), keys);
//     }
//
//   the planner on the host     integers, of the widths that it has
//   the planner on the device   values of a kernel, i32 (AttnToTile/Kernel/ValueNumber.h)
//
// Numbers have + - * / %, >> by a constant, the comparisons < and <=, which give conditions, and
// && || ! of these. A divisor may be of another type, which says how to divide by it.
// The functions below are overloaded; a formula calls them by these names alone.
//
// Both planners rely on this: / % >> take a number that is not negative, / % divide by one above 0; both
// sides of && and || may be computed, and both numbers of a `select`.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_ARITHMETIC_H
#define ATTN_RT_SUPPORT_ARITHMETIC_H

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace attn::rt {

template <std::integral X, std::integral Y> constexpr auto min(X x, Y y) {
  using Common = std::common_type_t<X, Y>;
  return y < x ? Common{y} : Common{x};
}

template <std::integral X, std::integral Y> constexpr auto max(X x, Y y) {
  using Common = std::common_type_t<X, Y>;
  return x < y ? Common{y} : Common{x};
}

template <std::integral X, std::integral Y> constexpr bool equal(X x, Y y) { return x == y; }

/// `x` if the condition holds, else `y`.
template <std::integral X, std::integral Y> constexpr auto select(bool condition, X x, Y y) {
  using Common = std::common_type_t<X, Y>;
  return condition ? Common{x} : Common{y};
}

/// The constant `n` as a number like `x`.
template <std::integral X> constexpr X constantLike(X, int64_t n) { return static_cast<X>(n); }

/// x * y >> shift; the product has 64 bits.
constexpr int32_t shiftedProduct(int32_t x, int32_t y, int32_t shift) {
  return static_cast<int32_t>(uint64_t{static_cast<uint32_t>(x)} * static_cast<uint32_t>(y) >> shift);
}

/// x / n, rounded up.
template <typename X, typename N> constexpr auto ceilDiv(X x, N n) { return (x + (n - 1)) / n; }

} // namespace attn::rt

#endif

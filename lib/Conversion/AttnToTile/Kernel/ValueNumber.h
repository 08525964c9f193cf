//===- ValueNumber.h - The numbers of a kernel ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values with the operators that formulas are written in
// (attn_rt/support/Arithmetic.h): each operator emits an operation.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_VALUENUMBER_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_VALUENUMBER_H

#include "Kernel.h"

#include "attn_rt/artifact/PlanRecords.h"
#include "attn_rt/support/Arithmetic.h"

#include <concepts>

namespace mlir::attn {

/// A number, i32, or a condition, i1.
class ValueNumber {
public:
  ValueNumber() = default;
  ValueNumber(KernelBuilder &b, Value value) : b(&b), value(value) {}

  operator Value() const { return value; }
  KernelBuilder &builder() const { return *b; }

private:
  KernelBuilder *b = nullptr;
  Value value;
};

/// A dimension of the planning kernel that has a factor and a shift, for division by it (ATTN_PLAN_DIVISOR).
class ValueDivisor {
public:
  ValueDivisor(KernelBuilder &b, ::attn::rt::PlanDim dim) : b(&b), dim(dim) {}

  KernelBuilder &builder() const { return *b; }
  operator ValueNumber() const { return at(0); }
  ValueNumber factor() const { return at(1); }
  ValueNumber shift() const { return at(2); }

private:
  ValueNumber at(int by) const {
    auto which = static_cast<::attn::rt::PlanDim>(static_cast<int>(dim) + by);
    std::string_view name = ::attn::rt::planDimName(which);
    return {*b, b->dimension(StringRef(name.data(), name.size()))};
  }

  KernelBuilder *b;
  ::attn::rt::PlanDim dim;
};

template <typename T>
concept KernelNumber = std::same_as<T, ValueNumber> || std::same_as<T, ValueDivisor>;

/// Two operands: one is a kernel's number, and the other may be a constant.
template <typename X, typename Y>
concept KernelNumbers =
    (KernelNumber<X> && (KernelNumber<Y> || std::integral<Y>)) || (std::integral<X> && KernelNumber<Y>);

template <KernelNumber X> Value valueLike(const X &, const ValueNumber &y) { return y; }
template <KernelNumber X> Value valueLike(const X &x, std::integral auto y) { return x.builder().i32(y); }

/// Emits `emit(builder, x, y)`.
template <typename X, typename Y, typename Emit> ValueNumber emitOf(const X &x, const Y &y, Emit emit) {
  if constexpr (KernelNumber<X>) {
    Value left = valueLike(x, x), right = valueLike(x, y);
    return {x.builder(), emit(x.builder(), left, right)};
  } else {
    Value left = valueLike(y, x), right = valueLike(y, y);
    return {y.builder(), emit(y.builder(), left, right)};
  }
}

#define ATTN_VALUE_OPERATOR(name, emitted)                                                                   \
  template <typename X, typename Y>                                                                          \
    requires KernelNumbers<X, Y>                                                                             \
  ValueNumber name(X x, Y y) {                                                                               \
    return emitOf(x, y, [](KernelBuilder &b, Value x, Value y) -> Value { return emitted; });                \
  }
ATTN_VALUE_OPERATOR(operator+, b.add(x, y))
ATTN_VALUE_OPERATOR(operator-, b.sub(x, y))
ATTN_VALUE_OPERATOR(operator*, b.mul(x, y))
ATTN_VALUE_OPERATOR(operator<, b.less(x, y))
ATTN_VALUE_OPERATOR(operator<=, b.compare(arith::CmpIPredicate::sle, x, y))
ATTN_VALUE_OPERATOR(operator>, b.compare(arith::CmpIPredicate::sgt, x, y))
ATTN_VALUE_OPERATOR(operator>=, b.compare(arith::CmpIPredicate::sge, x, y))
ATTN_VALUE_OPERATOR(equal, b.compare(arith::CmpIPredicate::eq, x, y))
ATTN_VALUE_OPERATOR(min, b.min(x, y))
ATTN_VALUE_OPERATOR(max, b.max(x, y))
#undef ATTN_VALUE_OPERATOR

inline ValueNumber operator/(ValueNumber x, ValueNumber y) {
  return {x.builder(), x.builder().createOrFold<arith::DivUIOp>(x, y)};
}
inline ValueNumber operator%(ValueNumber x, ValueNumber y) {
  return {x.builder(), x.builder().createOrFold<arith::RemUIOp>(x, y)};
}
template <std::integral Y> ValueNumber operator/(ValueNumber x, Y y) {
  return {x.builder(), x.builder().div(x, y)};
}
template <std::integral Y> ValueNumber operator%(ValueNumber x, Y y) {
  return {x.builder(), x.builder().rem(x, y)};
}

template <std::integral Y> ValueNumber operator>>(ValueNumber x, Y y) {
  return {x.builder(), x.builder().createOrFold<arith::ShRUIOp>(x, x.builder().i32(y))};
}

/// x * y >> shift, where the product has 64 bits.
inline ValueNumber shiftedProduct(ValueNumber x, ValueNumber y, ValueNumber shift) {
  KernelBuilder &b = x.builder();
  auto wide = [&](Value value) { return b.createOrFold<arith::ExtUIOp>(b.getI64Type(), value); };
  Value product = b.mul(wide(x), wide(y));
  return {b, b.createOrFold<arith::TruncIOp>(b.getI32Type(),
                                             b.createOrFold<arith::ShRUIOp>(product, wide(shift)))};
}
inline ValueNumber operator/(ValueNumber x, const ValueDivisor &y) {
  return ::attn::rt::quotientBy(x, y.factor(), y.shift());
}
inline ValueNumber operator%(ValueNumber x, const ValueDivisor &y) { return x - x / y * y; }

inline ValueNumber operator&&(ValueNumber x, ValueNumber y) {
  return {x.builder(), x.builder().createOrFold<arith::AndIOp>(x, y)};
}
inline ValueNumber operator||(ValueNumber x, ValueNumber y) {
  return {x.builder(), x.builder().createOrFold<arith::OrIOp>(x, y)};
}
inline ValueNumber operator!(ValueNumber condition) {
  KernelBuilder &b = condition.builder();
  return {b, b.createOrFold<arith::XOrIOp>(condition, arith::ConstantIntOp::create(b, 1, 1))};
}

/// `x` if the condition holds, else `y`.
template <typename X, typename Y>
  requires(KernelNumber<X> || std::integral<X>) && (KernelNumber<Y> || std::integral<Y>)
ValueNumber select(ValueNumber condition, X x, Y y) {
  KernelBuilder &b = condition.builder();
  return {b, b.select(condition, valueLike(condition, x), valueLike(condition, y))};
}

/// The constant `n` as a number like `x`.
inline ValueNumber constantLike(ValueNumber x, int64_t n) { return {x.builder(), x.builder().i32(n)}; }

} // namespace mlir::attn

#endif

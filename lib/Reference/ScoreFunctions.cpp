//===- ScoreFunctions.cpp - Operations of score regions -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreFunctions.h"

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

static double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
static double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

int32_t reference::toInteger(double value) {
  if (std::isnan(value))
    return 0;
  return int32_t(std::clamp(std::trunc(value), -2147483648.0, 2147483647.0));
}

bool reference::compare(arith::CmpFPredicate predicate, double a, double b) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::OEQ:
    return a == b;
  case P::OGT:
    return a > b;
  case P::OGE:
    return a >= b;
  case P::OLT:
    return a < b;
  case P::OLE:
    return a <= b;
  case P::ONE:
    return !unordered && a != b;
  case P::ORD:
    return !unordered;
  case P::UEQ:
    return unordered || a == b;
  case P::UGT:
    return unordered || a > b;
  case P::UGE:
    return unordered || a >= b;
  case P::ULT:
    return unordered || a < b;
  case P::ULE:
    return unordered || a <= b;
  case P::UNE:
    return unordered || a != b;
  case P::UNO:
    return unordered;
  case P::AlwaysTrue:
    return true;
  }
  llvm_unreachable("unknown predicate");
}

bool reference::compare(arith::CmpIPredicate predicate, int32_t a, int32_t b) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return a == b;
  case P::ne:
    return a != b;
  case P::slt:
    return a < b;
  case P::sle:
    return a <= b;
  case P::sgt:
    return a > b;
  case P::sge:
    return a >= b;
  case P::ult:
    return uint32_t(a) < uint32_t(b);
  case P::ule:
    return uint32_t(a) <= uint32_t(b);
  case P::ugt:
    return uint32_t(a) > uint32_t(b);
  case P::uge:
    return uint32_t(a) >= uint32_t(b);
  }
  llvm_unreachable("unknown predicate");
}

FloatFunction reference::floatFunction(Operation &op) {
#define ATTN_FLOAT(OP, EXPRESSION)                                                                           \
  Case([](OP) -> FloatFunction {                                                                             \
    return                                                                                                   \
        [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return EXPRESSION; }; \
  })
  return llvm::TypeSwitch<Operation *, FloatFunction>(&op)
      .ATTN_FLOAT(arith::AddFOp, a + b)
      .ATTN_FLOAT(arith::SubFOp, a - b)
      .ATTN_FLOAT(arith::MulFOp, a * b)
      .ATTN_FLOAT(arith::DivFOp, a / b)
      .ATTN_FLOAT(arith::NegFOp, -a)
      .ATTN_FLOAT(arith::MaximumFOp, maximum(a, b))
      .ATTN_FLOAT(arith::MinimumFOp, minimum(a, b))
      .ATTN_FLOAT(arith::MaxNumFOp, std::fmax(a, b))
      .ATTN_FLOAT(arith::MinNumFOp, std::fmin(a, b))
      .ATTN_FLOAT(math::TanhOp, std::tanh(a))
      .ATTN_FLOAT(math::ExpOp, std::exp(a))
      .ATTN_FLOAT(math::Exp2Op, std::exp2(a))
      .ATTN_FLOAT(math::LogOp, std::log(a))
      .ATTN_FLOAT(math::Log2Op, std::log2(a))
      .ATTN_FLOAT(math::AbsFOp, std::fabs(a))
      .ATTN_FLOAT(math::SqrtOp, std::sqrt(a))
      .ATTN_FLOAT(math::FmaOp, a * b + c)
      .Default(FloatFunction(nullptr));
#undef ATTN_FLOAT
}

IntegerFunction reference::integerFunction(Operation &op) {
#define ATTN_INTEGER(OP, EXPRESSION)                                                                         \
  Case([](OP) -> IntegerFunction { return [](int32_t a, int32_t b) -> int32_t { return EXPRESSION; }; })
  return llvm::TypeSwitch<Operation *, IntegerFunction>(&op)
      .ATTN_INTEGER(arith::AddIOp, int32_t(uint32_t(a) + uint32_t(b)))
      .ATTN_INTEGER(arith::SubIOp, int32_t(uint32_t(a) - uint32_t(b)))
      .ATTN_INTEGER(arith::MulIOp, int32_t(uint32_t(a) * uint32_t(b)))
      .ATTN_INTEGER(arith::DivSIOp, a / b)
      .ATTN_INTEGER(arith::DivUIOp, int32_t(uint32_t(a) / uint32_t(b)))
      .ATTN_INTEGER(arith::RemSIOp, a % b)
      .ATTN_INTEGER(arith::RemUIOp, int32_t(uint32_t(a) % uint32_t(b)))
      .ATTN_INTEGER(arith::ShLIOp, int32_t(uint32_t(a) << b))
      .ATTN_INTEGER(arith::ShRSIOp, a >> b)
      .ATTN_INTEGER(arith::ShRUIOp, int32_t(uint32_t(a) >> b))
      .ATTN_INTEGER(arith::AndIOp, a & b)
      .ATTN_INTEGER(arith::OrIOp, a | b)
      .ATTN_INTEGER(arith::XOrIOp, a ^ b)
      .ATTN_INTEGER(arith::MaxSIOp, std::max(a, b))
      .ATTN_INTEGER(arith::MinSIOp, std::min(a, b))
      .ATTN_INTEGER(arith::MaxUIOp, int32_t(std::max(uint32_t(a), uint32_t(b))))
      .ATTN_INTEGER(arith::MinUIOp, int32_t(std::min(uint32_t(a), uint32_t(b))))
      .ATTN_INTEGER(arith::ExtSIOp, -a)
      .ATTN_INTEGER(arith::ExtUIOp, a)
      .ATTN_INTEGER(arith::TruncIOp, a & 1)
      .Default(IntegerFunction(nullptr));
#undef ATTN_INTEGER
}

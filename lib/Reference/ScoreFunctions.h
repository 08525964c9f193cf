//===- ScoreFunctions.h - What operations of a score region compute -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_SCOREFUNCTIONS_H
#define ATTN_LIB_REFERENCE_SCOREFUNCTIONS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::attn::reference {

using FloatFunction = double (*)(double, double, double);
using IntegerFunction = int32_t (*)(int32_t, int32_t);

/// The meaning of an operation from floats to a float, on as many operands as it has; null for another.
FloatFunction floatFunction(Operation &op);

/// The meaning of an operation on two i32 that wraps as they do; null for another.
IntegerFunction integerFunction(Operation &op);

bool compare(arith::CmpFPredicate predicate, double a, double b);
bool compare(arith::CmpIPredicate predicate, int32_t a, int32_t b);

/// The nearest i32 towards zero; 0 of what is no number.
int32_t toInteger(double value);

} // namespace mlir::attn::reference

#endif

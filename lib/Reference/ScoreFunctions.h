//===- ScoreFunctions.h - Operations of score regions ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_SCOREFUNCTIONS_H
#define ATTN_LIB_REFERENCE_SCOREFUNCTIONS_H

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::attn::reference {

using FloatFunction = double (*)(double, double, double);
using IntegerFunction = int32_t (*)(int32_t, int32_t);

/// Returns the function of an operation from floats to a float, with as many operands as it has; null for
/// others.
FloatFunction floatFunction(Operation &op);

/// Returns the function of a wrapping operation on two i32; null for others.
IntegerFunction integerFunction(Operation &op);

bool compare(arith::CmpFPredicate predicate, double a, double b);
bool compare(arith::CmpIPredicate predicate, int32_t a, int32_t b);

/// Truncates to i32 towards zero, clamped; 0 for NaN.
int32_t toInteger(double value);

} // namespace mlir::attn::reference

#endif

//===- HeldTokens.h - Legality of kernels with stationary tokens -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_HELDTOKENS_H
#define ATTN_DIALECT_ATTN_TRANSFORMS_HELDTOKENS_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

/// Verifies that kernels can compute the significance that the function requests (attn.significance).
LogicalResult verifyWeighs(func::FuncOp function, AttendOp attend);
/// Verifies that kernels can compute the gradients of an attention; an error names the unsupported part.
/// `backward` is the function's attn.backward: a unit, or a list of tables that also get gradients.
LogicalResult verifyDifferentiable(AttendOp attend, Attribute backward);

} // namespace mlir::attn

#endif

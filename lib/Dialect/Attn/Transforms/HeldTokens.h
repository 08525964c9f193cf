//===- HeldTokens.h - What kernels can hold tokens of -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_HELDTOKENS_H
#define ATTN_DIALECT_ATTN_TRANSFORMS_HELDTOKENS_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

/// Whether kernels can tell what tokens are worth, as the function asks (attn.significance).
LogicalResult verifyWeighs(func::FuncOp function, AttendOp attend);
/// Whether kernels can make the gradients of an attention; an error names what they cannot take. `backward`
/// is the function's attn.backward: a unit, or a list of the tables that get gradients, too.
LogicalResult verifyDifferentiable(AttendOp attend, Attribute backward);

} // namespace mlir::attn

#endif

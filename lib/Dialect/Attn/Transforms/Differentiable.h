//===- Differentiable.h - What has a backward pass -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_TRANSFORMS_DIFFERENTIABLE_H
#define ATTN_DIALECT_ATTN_TRANSFORMS_DIFFERENTIABLE_H

#include "attn/Dialect/Attn/IR/Attn.h"

namespace mlir::attn {

/// Whether kernels can make the gradients of an attention; an error names what they cannot take.
LogicalResult verifyDifferentiable(AttendOp attend);

} // namespace mlir::attn

#endif

//===- Manifest.h - Descriptions of kernels for launches --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_MANIFEST_H
#define ATTN_TARGET_MANIFEST_H

#include "attn/Support/Chip.h"

#include "attn_rt/artifact/Artifact.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::attn {

/// Describes the problem of a function at the online level: arguments, operands, visibility and its ends; for
/// an operation on a cache, the arguments. Fails with a diagnostic if an argument has no name.
FailureOr<::attn::rt::Manifest> describeProblem(func::FuncOp function);

/// Adds the kernels of a machine-level module, their shapes, launch bounds and parameters, and their
/// launches.
LogicalResult describeKernels(gpu::GPUModuleOp machine, const Chip &chip, ::attn::rt::Manifest &manifest);

} // namespace mlir::attn

#endif

//===- Manifest.h - What a launch must know of a kernel ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_MANIFEST_H
#define ATTN_TARGET_MANIFEST_H

#include "attn/Support/Chip.h"

#include "attn_rt/artifact/Artifact.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::attn {

/// The part of the manifest that describes the problem, of a function at the online level: arguments,
/// operands, visibility and its ends; of an operation on a cache the arguments. Fails with a diagnostic where
/// an argument has no name.
FailureOr<::attn::rt::Manifest> describeProblem(func::FuncOp function);

/// Adds the kernels of a machine-level module, their shapes, launch bounds and parameters, and their
/// launches.
LogicalResult describeKernels(gpu::GPUModuleOp machine, const Chip &chip, ::attn::rt::Manifest &manifest);

} // namespace mlir::attn

#endif

//===- Manifest.h - What a launch must know of a kernel ---------*- C++ -*-===//
#ifndef ATTN_TARGET_MANIFEST_H
#define ATTN_TARGET_MANIFEST_H

#include "attn/Conversion/Chain.h"
#include "attn/Target/Chip.h"

#include "attn_rt/Artifact.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::attn {

/// The part of the manifest that describes the problem: arguments, operands, visibility and its ends.
/// Fails with a diagnostic where an argument has no name.
FailureOr<::attn::rt::Manifest> describeProblem(Chain &chain);

/// Adds the kernels of a machine-level module: their shapes, launch bounds and parameters.
void describeKernels(gpu::GPUModuleOp machine, const Chip &chip, ::attn::rt::Manifest &manifest);

} // namespace mlir::attn

#endif

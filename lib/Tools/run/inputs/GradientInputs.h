//===- GradientInputs.h - Inputs of a backward pass -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_GRADIENTINPUTS_H
#define ATTN_TOOLS_RUN_INPUTS_GRADIENTINPUTS_H

#include "Inputs.h"
#include "attn_rt/artifact/Artifact.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn::run {

/// Adds the arguments of a backward pass, beside the forward's tensors, to those that may be read or
/// generated.
void addBackwardArguments(const rt::Manifest &manifest, Arguments &arguments);

/// Computes the forward's results among the tensors by its reference.
rt::Status finishForward(mlir::func::FuncOp function, rt::TensorMap &tensors);

/// Returns the tensors with the error of each row's delta as a gradient of its LSE. Kernels compute
/// delta = <do, o> from the given output, which is rounded, and subtract it from <do, v> in f32. The gradient
/// of a score is p (<do, v> - delta + dlse), so `dlse` moves it as the error does. A row that sees one token
/// has no other gradient of its score; if it sees few, the rest may be small by chance.
/// The error of an output counts up to its tolerance.
rt::Result<rt::TensorMap> withDeltaErrors(mlir::func::FuncOp function, const rt::TensorMap &tensors);

} // namespace attn::run

#endif

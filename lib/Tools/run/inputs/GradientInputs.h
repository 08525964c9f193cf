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

} // namespace attn::run

#endif

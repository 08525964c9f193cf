//===- GradientInputs.h - What a backward pass is given ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_GRADIENTINPUTS_H
#define ATTN_TOOLS_RUN_INPUTS_GRADIENTINPUTS_H

#include "Inputs.h"
#include "attn_rt/artifact/Artifact.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn::run {

/// Adds what a backward pass is given beside the forward's tensors to what may be read or generated.
void addBackwardArguments(const rt::Manifest &manifest, Arguments &arguments);

/// Lets the forward's results among the tensors be those of its reference.
rt::Status finishForward(mlir::func::FuncOp function, rt::TensorMap &tensors);

} // namespace attn::run

#endif

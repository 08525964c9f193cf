//===- Problem.h - The function that attn-run runs --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_PROBLEM_H
#define ATTN_TOOLS_RUN_INPUTS_PROBLEM_H

#include "Inputs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn::run {

/// Reads the function's arguments, as far as generated tensors depend on them. Emits its own diagnostics.
mlir::FailureOr<Arguments> readArguments(mlir::func::FuncOp func);

} // namespace attn::run

#endif

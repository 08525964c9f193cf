//===- Passes.h - Passes between the levels ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_PASSES_H
#define ATTN_CONVERSION_PASSES_H

#include "attn/Support/Statistic.h"

#include "mlir/Pass/Pass.h"

#include "mlir/IR/DialectRegistry.h"

namespace mlir::attn {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "attn/Conversion/Passes.h.inc"

/// Attaches to online operations the models that expand them on a tile (OnlineOpInterface.td).
void registerOnlineModels(DialectRegistry &registry);
} // namespace mlir::attn

#endif

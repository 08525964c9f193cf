//===- StageGradients.h - Copies that gradients are made of ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEGRADIENTS_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGEGRADIENTS_H

#include "attn/Conversion/Chain.h"

namespace mlir::attn {

/// Stages rows and tokens of a kernel that adds up gradients. Of rows the copies are queries and gradients of
/// the output and, where they are held, the output; of tokens keys and values. What is held is copied where
/// its task begins, the others into rings. Where weights of tokens are added up, queries and keys alone.
void stageGradients(Chain &chain, func::FuncOp kernel);

} // namespace mlir::attn

#endif

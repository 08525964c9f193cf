//===- StageCopies.h - Copies that all warps make ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGECOPIES_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_STAGECOPIES_H

#include "attn/Conversion/Chain.h"

namespace mlir::attn {

/// Stages rows and tokens of a kernel whose warps all copy and compute.
void stageCopies(Chain &chain, func::FuncOp kernel);

} // namespace mlir::attn

#endif

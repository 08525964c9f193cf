//===- ScoreBound.h - How large a score can get -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_SCOREBOUND_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_SCOREBOUND_H

#include "mlir/IR/Block.h"

namespace mlir::attn {

/// A bound on the absolute value of a score region's result, for any score and positions; infinity if none is
/// found.
double scoreBound(Block &region);

} // namespace mlir::attn

#endif

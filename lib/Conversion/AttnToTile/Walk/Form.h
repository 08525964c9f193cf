//===- Form.h - How warps hold what a kernel works on -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_FORM_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_FORM_H

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// The form of a kernel of this schedule, for the passes behind --attn-walk-plan.
FormAttr formOf(Chain &chain, tile::ScheduleAttr schedule);
/// How many numbers a kernel that holds rows sums for each beside dq (see RowSums.h): none, unless gradients
/// of tables or of sinks are asked for.
int64_t rowSumsOf(Chain &chain, func::FuncOp kernel);
/// Numbers an update of a kernel that came from the chain's update `operand`, and the ends it may read.
void numberUpdate(UpdateOp update, Chain &chain, unsigned operand);

} // namespace mlir::attn

#endif

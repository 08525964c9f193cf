//===- Form.h - How warps hold what a kernel works on -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_FORM_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_FORM_H

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// The form of a kernel with this schedule, for the passes after --attn-walk-plan.
FormAttr formOf(Chain &chain, tile::ScheduleAttr schedule);
/// The count of numbers that a kernel with stationary rows sums for each row beside dq (see RowSums.h): 0,
/// unless gradients of tables or of sinks are asked for.
int64_t rowSumsOf(Chain &chain, func::FuncOp kernel);
/// Marks an update of a kernel with the number of the chain's update that it came from, and with the first
/// ends that it may read.
void numberUpdate(UpdateOp update, Chain &chain, unsigned operand);

} // namespace mlir::attn

#endif

//===- OnlineModels.h - Online operations on lanes -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_ONLINEMODELS_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_ONLINEMODELS_H

#include "Expansion.h"

namespace mlir::attn {

LogicalResult expandOnLanes(InitOp init, LaneExpansion &expansion);
LogicalResult expandOnLanes(StoredOp stored, LaneExpansion &expansion);
LogicalResult expandOnLanes(MergeOp merge, LaneExpansion &expansion);
LogicalResult expandOnLanes(FinishOp finish, LaneExpansion &expansion);
LogicalResult expandOnLanes(WriteOp write, LaneExpansion &expansion);

/// Expands an update of a gradient by a tile of rows and tokens.
void expandGradient(const OneUpdate &update, Value result, FragmentExpansion &expansion);
void registerGradientModels(MLIRContext &context);
/// Expands an update of significance by the one region whose tokens are stationary.
void expandSignificance(const OneUpdate &update, Value result, FragmentExpansion &expansion);
void registerSignificanceModels(MLIRContext &context);

} // namespace mlir::attn

#endif

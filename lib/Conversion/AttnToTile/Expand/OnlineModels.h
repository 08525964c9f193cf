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

/// An update of a gradient by a tile of one region, or that by a tile of one of several, of which `which`
/// says which.
LogicalResult expandGradient(UpdateOp update, std::optional<unsigned> operand, Value which, Value result,
                             FragmentExpansion &expansion);
void registerGradientModels(MLIRContext &context);
/// An update of significance by the one region whose tokens are held.
LogicalResult expandSignificance(UpdateOp update, Value result, FragmentExpansion &expansion);
void registerSignificanceModels(MLIRContext &context);

} // namespace mlir::attn

#endif

//===- FeatureOrders.h - Features in runs -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_FEATUREORDERS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_FEATUREORDERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::tile {

/// Gives right operands that are loaded from tiles of codes their features in runs, and with them all that
/// must have the same order. Fragments have layouts by now, and tiles their swizzles.
void orderFeatures(func::FuncOp kernel);

} // namespace mlir::tile

#endif

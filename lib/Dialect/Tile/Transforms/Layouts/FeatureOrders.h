//===- FeatureOrders.h - Features in runs -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_FEATUREORDERS_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_FEATUREORDERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::tile {

/// Gives right operands loaded from quantized tiles their features in runs, and all other values that must
/// have the same order. Fragments already have layouts, and tiles their swizzles.
void orderFeatures(func::FuncOp kernel);

} // namespace mlir::tile

#endif

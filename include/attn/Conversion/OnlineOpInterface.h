//===- OnlineOpInterface.h - What an operation does to a tile ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ONLINEOPINTERFACE_H
#define ATTN_CONVERSION_ONLINEOPINTERFACE_H

#include "mlir/IR/OpDefinition.h"

namespace mlir::attn {
struct FragmentExpansion;
struct LaneExpansion;
} // namespace mlir::attn

#include "attn/Conversion/OnlineOpInterface.h.inc"

#endif

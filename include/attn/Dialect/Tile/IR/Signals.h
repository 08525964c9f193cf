//===- Signals.h - Signals between devices and processes --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_SIGNALS_H
#define ATTN_DIALECT_TILE_IR_SIGNALS_H

#include "attn/Dialect/Tile/IR/Tile.h"

#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileSignalOps.h.inc"

#endif

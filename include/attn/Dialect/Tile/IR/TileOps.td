//===- TileOps.td - The operations of the tile dialect, by subject --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILEOPS_TD
#define ATTN_DIALECT_TILE_IR_TILEOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"
include "attn/Dialect/Tile/IR/TileSchedule.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

include "attn/Dialect/Tile/IR/TileGlobalOps.td"
include "attn/Dialect/Tile/IR/TileSharedOps.td"
include "attn/Dialect/Tile/IR/TileFragmentOps.td"
include "attn/Dialect/Tile/IR/TileMmaOps.td"
include "attn/Dialect/Tile/IR/TileAsyncOps.td"

#endif

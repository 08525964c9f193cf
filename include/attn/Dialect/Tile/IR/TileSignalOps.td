//===- TileSignalOps.td - Signals between devices and processes ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// These operations have a header of their own (Signals.h): few files know them.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_TILESIGNALOPS_TD
#define ATTN_DIALECT_TILE_IR_TILESIGNALOPS_TD

include "attn/Dialect/Tile/IR/TileDialect.td"
include "attn/Dialect/Tile/IR/TileTypes.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_SignalOp : Op<Tile_Dialect, "signal", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "this lane writes one integer that other devices and processes wait for";
  let description = [{
    A store with release semantics at system scope. Whoever waits for the value also sees what this lane wrote
    before, and what other lanes wrote before a `tile.sync` with it.
  }];
  let arguments = (ins Arg<I32, "the value">:$value, Arg<Tile_BufferType, "the tensor, i32">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Tile_WaitSignalOp : Op<Tile_Dialect, "wait_signal", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "this lane waits until an integer that a `tile.signal` writes reaches a value, or until a time has passed";
  let description = [{
    Loads with acquire semantics at system scope. Values count up and wrap around, so they are compared by the
    sign of their difference. A launch must not wait for a signal of its own blocks.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the tensor, i32">:$buffer, Arg<I64, "element index">:$index,
                       Arg<I32, "the least value">:$value, Arg<I64, "nanoseconds to wait at most">:$limit);
  let results = (outs Res<I1, "whether the value was reached">:$reached);
  let assemblyFormat = "$buffer `[` $index `]` `reaches` $value `within` $limit attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

#endif

//===- TileSignalOps.td - Signals between devices, processes and blocks -------===//
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

def Tile_SemaphorePostOp : Op<Tile_Dialect, "semaphore_post", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "one lane writes an integer that later blocks of the launch wait for";
  let description = [{
    A store with release semantics in the device. Whoever has waited for the value adds by
    `tile.tma_store ... adds` after all warps that waited for their TMA stores to be complete, and then synced
    with this one. Other accesses have no order: the other side does not fence.
  }];
  let arguments = (ins Arg<I32, "the value">:$value, Arg<Tile_BufferType, "the semaphores, i32">:$buffer,
                       Arg<I64, "element index">:$index);
  let assemblyFormat = "$value `to` $buffer `[` $index `]` attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

def Tile_SemaphoreWaitOp : Op<Tile_Dialect, "semaphore_wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "the lane that starts the warp's TMA stores waits until a semaphore has at least this value";
  let description = [{
    Values are compared as signed numbers. A block may only wait for blocks with smaller numbers: they began
    before it, so one of them can always continue.
  }];
  let arguments = (ins Arg<Tile_BufferType, "the semaphores, i32">:$buffer, Arg<I64, "element index">:$index,
                       Arg<I32, "the least value">:$value);
  let assemblyFormat = "$buffer `[` $index `]` `reaches` $value attr-dict `:` type($buffer)";
  let hasVerifier = 1;
}

#endif

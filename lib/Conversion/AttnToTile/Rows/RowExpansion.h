//===- RowExpansion.h - What expanding pieces of rows needs -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the lanes of a warp hold of a turn's pieces so far, and where it lies.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWEXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWEXPANSION_H

#include "RowMemory.h"

namespace mlir::attn {

/// The 32-bit words of a chunk; of a chunk of two bytes the low half of one.
using Words = SmallVector<Value, 4>;

struct RowExpansion {
  explicit RowExpansion(func::FuncOp kernel);

  // Chunks in memory (RowChunks.cpp).
  /// One chunk of a lane: whether it exists, and where it lies, in elements of the buffer.
  struct Chunk {
    Value there, index;
  };
  /// Computes in front of the first operation on rows of a turn, `op`, what all of them read and write: lanes
  /// do it before they wait for their loads.
  void placeChunks(Operation *op);
  /// The column of a lane's chunk in a piece, of this load.
  Value columnOf(ShareAttr share, int64_t load);
  /// The buffer of a memory whose chunks have so many bytes.
  Value bufferOf(const RowMemory &memory, int64_t chunk);
  /// How far its layers are apart, in the chunks of the parameter.
  Value strideOf(const RowMemory &memory);
  Value fromLane(Value value, Value row);

  void take(LoadRowsOp op);
  void put(StoreRowsOp op);
  void quantize(QuantizeRowsOp op);     // QuantizeRows.cpp
  void dequantize(DequantizeRowsOp op); // DequantizeRows.cpp

  /// The scale that a cache is given for the numbers of this lane in a load.
  Value givenScale(Value kv, RowPart part, Value layer, Value piece, ShareAttr share, int64_t load);

  KernelBuilder b;
  Type i32;
  Value lane;
  DenseMap<Value, SmallVector<Words>> held; ///< of each load

private:
  struct Access;
  SmallVector<Chunk> chunksOf(const Access &access);
  Chunk chunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Value inLayer(const Access &access, const RowMemory &memory, Value slot, Value column);
  Value inPages(const Access &access, Value slot, int64_t line, int64_t chunk);
  Chunk metaChunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Value numberOf(ShareAttr share, int64_t load);
  Value rowOf(ShareAttr share, int64_t load);

  DenseMap<Operation *, SmallVector<Chunk>> chunks;
  DenseMap<std::pair<Value, Value>, Value> handed; ///< by a lane, of a value
  DenseMap<int64_t, Value> numbers;                ///< of rows
  llvm::StringMap<Value> strides, scales;
};

} // namespace mlir::attn

#endif

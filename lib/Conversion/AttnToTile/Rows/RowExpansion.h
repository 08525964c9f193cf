//===- RowExpansion.h - What expanding pieces of rows needs -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The values that the lanes of a warp hold of an iteration's pieces so far, and
// their addresses.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWEXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWEXPANSION_H

#include "RowMemory.h"

namespace mlir::attn {

/// The 32-bit words of a chunk; for a chunk of two bytes, the low half of one word.
using Words = SmallVector<Value, 4>;

struct RowExpansion {
  explicit RowExpansion(func::FuncOp kernel);

  // Chunks in memory (RowChunks.cpp).
  /// One chunk of a lane: whether it exists, and its address in elements of the buffer.
  struct Chunk {
    Value there, index;
    /// In a line of quantized numbers, their scales and a rest: the lane's numbers. The index is the line's.
    Value column = {};
  };
  /// Computes the addresses of all chunks of an iteration before its first operation on rows, `op`: lanes do
  /// it before they wait for their loads. Heads are prepared before they are stored, with registers that the
  /// addresses of stores would take: those are computed where they are stored.
  void placeChunks(Operation *op);
  /// The column of a lane's chunk in a piece, for a load.
  Value columnOf(ShareAttr share, int64_t load);
  /// The buffer of a memory, for chunks of `chunk` bytes.
  Value bufferOf(const RowMemory &memory, int64_t chunk);
  /// The distance of the memory's layers, in the chunks of the parameter.
  Value strideOf(const RowMemory &memory);
  Value fromLane(Value value, Value row);

  // Lines of quantized numbers, their scales and a rest (MixedRows.cpp). A lane holds seven words for eight
  // numbers: two of quantized ones, the scale of their group, and four of bf16. A line has one kind or the
  // other.
  /// Whether the lane's eight numbers of a load are of the rest.
  Value isRest(const ::attn::rt::StorePart &part, Value column);
  Words readMixed(const ::attn::rt::StorePart &part, Value buffer, const Chunk &place);
  void writeMixed(const ::attn::rt::StorePart &part, Value buffer, const Chunk &place, ArrayRef<Value> words);

  void take(LoadRowsOp op);
  void put(StoreRowsOp op);
  void quantize(QuantizeRowsOp op);     // QuantizeRows.cpp
  void dequantize(DequantizeRowsOp op); // DequantizeRows.cpp
  void normalize(NormalizeRowsOp op);   // NormalizeRows.cpp
  void rotate(RotateRowsOp op);         // RotateRows.cpp

  /// The scale that a cache is given for this lane's numbers in a load.
  Value givenScale(Value kv, RowPart part, Value layer, Value piece, ShareAttr share, int64_t load);

  /// The numbers of a small tensor that a lane multiplies its eight features by, `count` from element `first`
  /// on. Addresses are multiples of `count` elements.
  SmallVector<Value> readNumbers(Value tensor, Value first, int64_t count);

  KernelBuilder b;
  Type i32;
  Value lane;
  DenseMap<Value, SmallVector<Words>> held; ///< of each load

private:
  struct Access;
  SmallVector<Chunk> chunksOf(const Access &access);
  Chunk chunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Chunk headChunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Chunk headMetaChunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Value lineOf(const Access &access, const RowMemory &memory, Value head);
  Value inLayer(const Access &access, const RowMemory &memory, Value slot, Value column);
  Value inPages(const Access &access, Value slot, int64_t line, int64_t chunk);
  Chunk mixedChunkOf(Value there, Value line, Value column);
  Chunk metaChunkOf(const Access &access, const RowMemory &memory, int64_t load);
  Value numberOf(ShareAttr share, int64_t load);
  Value rowOf(ShareAttr share, int64_t load);

  DenseMap<Operation *, SmallVector<Chunk>> chunks;
  DenseMap<std::pair<Value, Value>, Value> handed; ///< a value of another lane
  DenseMap<int64_t, Value> numbers;                ///< of rows
  llvm::StringMap<Value> strides, scales;
};

} // namespace mlir::attn

#endif

//===- SharedMemory.h - Layout of a block's shared memory -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_SHAREDMEMORY_H
#define ATTN_DIALECT_TILE_IR_SHAREDMEMORY_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "llvm/Support/MathExtras.h"

namespace mlir::tile {

/// Places tiles, rings, scratch and barriers consecutively in a block's shared memory. Both allocation and
/// the model that predicts it use this class.
class SharedMemory {
public:
  /// Returns the offset of `copies` of this type, after all earlier ones.
  int64_t place(Type type, int64_t copies = 1) {
    int64_t offset = llvm::alignTo(next, isa<BarriersType>(type) ? barrierAlignment : tileAlignment);
    overlay(offset, type, copies);
    next = offset + copies * memoryBytes(type);
    return offset;
  }
  /// Places it at the offset of memory that is no longer live.
  void overlay(int64_t offset, Type type, int64_t copies = 1) {
    bytes = std::max(bytes, offset + copies * memoryBytes(type));
  }
  /// Bytes of a block.
  int64_t getBytes() const { return bytes; }

private:
  /// Swizzles repeat every 1024 bytes; barriers need only their own eight.
  static constexpr int64_t tileAlignment = 1024, barrierAlignment = 8;
  int64_t next = 0, bytes = 0;
};

} // namespace mlir::tile

#endif

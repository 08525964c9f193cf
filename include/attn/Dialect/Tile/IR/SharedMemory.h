//===- SharedMemory.h - Where a kernel's memory lies in a block -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_SHAREDMEMORY_H
#define ATTN_DIALECT_TILE_IR_SHAREDMEMORY_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "llvm/Support/MathExtras.h"

namespace mlir::tile {

/// Places tiles, rings, scratch and barriers in a block's shared memory, one behind the other. Allocation and
/// the model that predicts it both ask this.
class SharedMemory {
public:
  /// The offset of `copies` of this type behind all that was placed.
  int64_t place(Type type, int64_t copies = 1) {
    int64_t offset = llvm::alignTo(next, isa<BarriersType>(type) ? barrierAlignment : tileAlignment);
    overlay(offset, type, copies);
    next = offset + copies * memoryBytes(type);
    return offset;
  }
  /// The same at an offset where something else lies whose time has passed.
  void overlay(int64_t offset, Type type, int64_t copies = 1) {
    bytes = std::max(bytes, offset + copies * memoryBytes(type));
  }
  /// What a block takes.
  int64_t getBytes() const { return bytes; }

private:
  /// Swizzles repeat every 1024 bytes; barriers only want their own eight.
  static constexpr int64_t tileAlignment = 1024, barrierAlignment = 8;
  int64_t next = 0, bytes = 0;
};

} // namespace mlir::tile

#endif

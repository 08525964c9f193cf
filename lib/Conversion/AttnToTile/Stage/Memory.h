//===- Memory.h - Shared memory of a kernel's copies ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_MEMORY_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_MEMORY_H

#include "StagedKernel.h"

namespace mlir::attn {

/// Memory of copies: a tile, or a ring of tiles.
struct Buffer {
  SmallVector<Copy> names; ///< what a tile holds; several copies lie one behind the other
  Value memory;
};

/// The names of all copies in these buffers.
SmallVector<Copy> namesOf(ArrayRef<Buffer> buffers);

/// The shared memory of all copies. Where all warps copy, a part that is held has a tile, and one that is
/// walked a ring. Producers fill rings.
class Memory {
public:
  explicit Memory(StagedKernel &kernel) : k(kernel), b(kernel.b) {}

  void allocate();
  ArrayRef<Buffer> ofTokens(KVType region) const;

  SmallVector<Buffer> rows;
  Value exchange, sums; ///< beside rows, where updates add to sums of rows, too

private:
  Value alloc(Type type, Value overlaid = {}, bool perWarp = false);
  /// A tile or ring for a part that is held, or walked.
  Type memoryType(tile::SharedType tile, bool walked);
  void addRows(ArrayRef<Copy> names);
  void addTokens();
  void addExchange();
  void addNumbers();

  StagedKernel &k;
  KernelBuilder &b;
  struct Kind {
    KVType region;
    SmallVector<Buffer> buffers;
  };
  SmallVector<Kind> kinds; ///< kinds of regions; regions of one kind share tiles
};

} // namespace mlir::attn

#endif

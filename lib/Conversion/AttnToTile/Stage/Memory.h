//===- Memory.h - Shared memory of a kernel's copies ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_MEMORY_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_MEMORY_H

#include "StagedKernel.h"

namespace mlir::attn {

/// The memory of copies: a tile, or a ring of tiles.
struct Buffer {
  SmallVector<Copy> names; ///< the copies in a tile, one after the other
  Value memory;
};

/// The names of all copies in these buffers.
SmallVector<Copy> namesOf(ArrayRef<Buffer> buffers);

/// The shared memory of all copies. If all warps copy, a stationary part has a tile, and a part that is
/// walked has a ring. With producers, both have rings.
class Memory {
public:
  explicit Memory(StagedKernel &kernel) : k(kernel), b(kernel.b) {}

  void allocate();
  ArrayRef<Buffer> ofTokens(KVType region) const { return kindOf(region).buffers; }
  /// The memory of quantized tokens that producers widen to `ofTokens`; empty if they copy to those.
  ArrayRef<Buffer> storedTokens(KVType region) const { return kindOf(region).stored; }

  SmallVector<Buffer> rows;
  Value largest;        ///< the largest elements of queries that become f16 in place; null if none do
  Value exchange, sums; ///< copies of rows if updates also add to sums of rows
  Value weights, units; ///< copies of rows if warpgroups share weights

private:
  Value alloc(Type type, Value overlaid = {}, bool perWarp = false);
  /// The type of a tile or ring for a part that is walked, or stationary.
  Type memoryType(tile::SharedType tile, bool walked);
  void addRows(ArrayRef<Copy> names);
  void addTokens();
  void addWidenedTokens();
  void addExchange();
  void addWeights();
  void addNumbers();
  void addLargest();

  StagedKernel &k;
  KernelBuilder &b;
  struct Kind {
    KVType region;
    SmallVector<Buffer> buffers, stored;
  };
  const Kind &kindOf(KVType region) const;
  SmallVector<Kind> kinds; ///< kinds of regions; regions of one kind share tiles
};

} // namespace mlir::attn

#endif

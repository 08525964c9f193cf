//===- CacheMemory.h - What a cache's changes do to memory ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The meaning of a Movement, in plain copies on host memory: what cache kernels
// must do, and what a host that keeps its own pages can call.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHEMEMORY_H
#define ATTN_RT_CACHE_CACHEMEMORY_H

#include "attn_rt/cache/Cache.h"

#include <cstddef>

namespace attn::rt {

/// The keys or the values of one head class: [layers, pages, pageTokens, tokenBytes]. Layers may be further
/// apart than their pages need.
struct PageMemory {
  std::span<std::byte> bytes;
  int64_t tokenBytes = 0; ///< of the class's heads in one layer
  int32_t layers = 1;
  int64_t layerBytes = 0; ///< from a layer to the next; any value if there is one layer
};

/// New tokens: [layers, rows, tokenBytes], with rows counted as in Movement::Write.
struct RowMemory {
  std::span<const std::byte> bytes;
  int64_t layerBytes = 0;
};

/// Executes the moves of one class. Refuses moves outside the memory before it moves anything. `rows` is
/// optional if nothing is written.
Status executeMovement(const Movement &movement, int32_t headClass, int32_t pageTokens,
                       const PageMemory &pages, const RowMemory &rows = {});

} // namespace attn::rt

#endif

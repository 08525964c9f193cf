//===- NodeLog.h - When nodes changed ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A batch shows the tokens that its nodes had when it was made. A node that has got
// or lost tokens since makes plans of that batch stale, though every page that they
// read may still be there (PageLog.h looks after those). The cache counts such
// changes and notes for each node its last one. Whoever has made a table of nodes
// compares the count, and looks at its nodes only where that has changed.
//
// A fork or a branch moves no token of a row, and is no change.
//
// Written by the one thread that changes the cache, read by any: entries stay where
// they are for as long as the log lives.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_NODELOG_H
#define ATTN_RT_CACHE_NODELOG_H

#include "attn_rt/cache/Cache.h"

#include <atomic>
#include <deque>

namespace attn::rt {

class NodeLog {
public:
  enum class Change : uint8_t { Grew, Shrank, Pruned };
  /// The count at a node's last change, and which change that was.
  using Entry = std::atomic<uint64_t>;

  void note(int32_t node, Change change) {
    const uint64_t next = count_.load(std::memory_order_relaxed) + 1;
    while (entries_.size() <= static_cast<size_t>(node))
      entries_.emplace_back(0);
    entries_[static_cast<size_t>(node)].store(next << 2 | static_cast<uint64_t>(change),
                                              std::memory_order_relaxed);
    count_.store(next, std::memory_order_release);
  }
  uint64_t count() const { return count_.load(std::memory_order_acquire); }
  /// The entry of a node that was noted before.
  const Entry &entry(int32_t node) const { return entries_[static_cast<size_t>(node)]; }

private:
  std::atomic<uint64_t> count_ = 0;
  std::deque<Entry> entries_;
};

} // namespace attn::rt

#endif

//===- NodeLog.h - When nodes changed ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A batch shows the tokens that its nodes had when it was made. Once a node has gained
// or lost tokens, plans of that batch are stale, though every page that they read may
// still be valid (PageLog.h watches pages). The cache counts such changes and notes
// each node's last change. The maker of a table of nodes compares the count, and checks
// its nodes only if the count has changed.
//
// A fork or a branch moves no token of a row, and does not count.
//
// One thread, which changes the cache, writes the log; any thread reads it. Entries keep
// their addresses while the log lives.
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
  /// The count at a node's last change, and the kind of the change.
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

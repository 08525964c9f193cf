//===- PageLog.h - When pages were given out ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables of a plan name pages, and may outlive the moment in which they were right: a node may be pruned or a
// draft committed, and its pages be reassigned to another sequence. So a pool counts the pages that it
// assigns, and notes for each page the count at its last assignment. The maker of a table compares the count,
// and checks the table's pages only if it has changed.
//
// One thread, which changes the cache, writes the log; any thread reads it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_PAGELOG_H
#define ATTN_RT_CACHE_PAGELOG_H

#include <atomic>
#include <cstdint>
#include <vector>

namespace attn::rt {

class PageLog {
public:
  explicit PageLog(int32_t pages) : last_(static_cast<size_t>(pages)) {}

  void giveOut(int32_t page) {
    const uint64_t next = count_.load(std::memory_order_relaxed) + 1;
    last_[static_cast<size_t>(page)].store(next, std::memory_order_relaxed);
    count_.store(next, std::memory_order_release);
  }
  uint64_t count() const { return count_.load(std::memory_order_acquire); }
  bool givenOutSince(int32_t page, uint64_t count) const {
    return last_[static_cast<size_t>(page)].load(std::memory_order_relaxed) > count;
  }

private:
  std::atomic<uint64_t> count_ = 0;
  std::vector<std::atomic<uint64_t>> last_;
};

} // namespace attn::rt

#endif

//===- PageLog.h - When pages were given out ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan is made of tables that name pages, and outlives the moment in which they were right: a node may be
// pruned, a draft committed, and its pages be given to another sequence. So a pool counts the pages that it
// gives out, and notes for each page the count at which it was given out last. Who has made a table compares
// the count, and looks at the pages of the table only where it has changed.
//
// Written by the one thread that changes the cache, read by any.
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

//===- PageLog.h - When pages lost what they held ---------------*- C++ -*-===//
//
// A plan is made of tables that name pages, and outlives the moment in which they were right: a node may be
// pruned, a draft committed, and a page be given to another sequence. So a pool counts what its pages lose,
// and notes for each page the count at which it last lost its tokens. Who has made a table compares the
// count, and looks at the pages of the table only where it has changed.
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
  explicit PageLog(int32_t pages) : lost_(static_cast<size_t>(pages)) {}

  void lose(int32_t page) {
    const uint64_t next = losses_.load(std::memory_order_relaxed) + 1;
    lost_[static_cast<size_t>(page)].store(next, std::memory_order_relaxed);
    losses_.store(next, std::memory_order_release);
  }
  uint64_t losses() const { return losses_.load(std::memory_order_acquire); }
  bool lostSince(int32_t page, uint64_t losses) const {
    return lost_[static_cast<size_t>(page)].load(std::memory_order_relaxed) > losses;
  }

private:
  std::atomic<uint64_t> losses_ = 0;
  std::vector<std::atomic<uint64_t>> lost_;
};

} // namespace attn::rt

#endif

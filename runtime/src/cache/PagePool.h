//===- PagePool.h - The pages of one head class -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CACHE_PAGEPOOL_H
#define ATTN_RT_CACHE_PAGEPOOL_H

#include "cache/PageLog.h"

#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

namespace attn::rt {

/// Tracks free pages, and the owner and use of every other page. Takes the page that was freed last first: it
/// is the likeliest to be in a hardware cache.
class PagePool {
public:
  struct Owner {
    int32_t node = -1; ///< index of the node; -1: free
    int32_t page = -1; ///< index of the page in the node's tokens; -1: of its draft, or spare
    bool operator==(const Owner &) const = default;
  };

  explicit PagePool(int32_t pages)
      : owners_(static_cast<size_t>(pages)), log_(std::make_shared<PageLog>(pages)) {
    for (int32_t page = pages; page-- > 0;)
      free_.push_back(page);
  }

  int32_t size() const { return static_cast<int32_t>(owners_.size()); }
  int32_t left() const { return static_cast<int32_t>(free_.size()); }
  const std::vector<int32_t> &freePages() const { return free_; }
  Owner owner(int32_t page) const { return owners_[static_cast<size_t>(page)]; }

  /// Takes a free page; at least one must be left.
  int32_t take(Owner owner) {
    assert(!free_.empty());
    const int32_t page = free_.back();
    free_.pop_back();
    reuse(page);
    assign(page, owner);
    return page;
  }
  void assign(int32_t page, Owner owner) { owners_[static_cast<size_t>(page)] = owner; }
  void give(int32_t page) {
    assign(page, {});
    free_.push_back(page);
  }
  /// Logs that the page gets other contents; `take` logs it, too.
  void reuse(int32_t page) { log_->giveOut(page); }
  std::shared_ptr<const PageLog> log() const { return log_; }

private:
  std::vector<int32_t> free_; // the next page is last
  std::vector<Owner> owners_;
  std::shared_ptr<PageLog> log_;
};

} // namespace attn::rt

#endif

//===- CacheKernels.cpp - A cache's changes on a device -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/CacheKernels.h"

#include <algorithm>

namespace attn::rt {

namespace {

std::string kindText(const Argument &cache) {
  return std::to_string(cache.kvHeads) + " heads of " + std::to_string(cache.keyDim) + "/" +
         std::to_string(cache.valueDim) + " in " + cache.keyFormat.text() + "/" + cache.valueFormat.text();
}

} // namespace

Result<CacheKernels> CacheKernels::create(CacheKernel append, CacheKernel move) {
  if (append.role() != KernelInfo::Role::Append || move.role() != KernelInfo::Role::Move)
    return inputError("cache kernels: expected an append and a move");
  if (kindText(append.cache()) != kindText(move.cache()))
    return inputError("cache kernels: expected an append and a move of one kind of cache, got " +
                      kindText(append.cache()) + " and " + kindText(move.cache()));
  return CacheKernels(std::move(append), std::move(move));
}

DeviceRows CacheKernels::memory() const {
  return {pages_.k,           pages_.v,           int64_t{pages_.pages} * pages_.pageTokens,
          pages_.kLayerBytes, pages_.vLayerBytes, pages_.kMeta,
          pages_.vMeta};
}

Status CacheKernels::reserve(const DevicePages &pages, int64_t newTokens, int64_t copiedTokens) {
  if (pages.pages < 0 || pages.pageTokens < 1)
    return inputError("cache kernels: expected pages of at least 1 token, got " +
                      std::to_string(pages.pages) + " of " + std::to_string(pages.pageTokens));
  if (Status status = append_.reserve(newTokens, pages.layers); !status)
    return status;
  if (Status status = move_.reserve(copiedTokens, pages.layers); !status)
    return status;
  pages_ = pages;
  bound_.reset();
  lists_.writeTo.reserve(static_cast<size_t>(newTokens));
  lists_.copyFrom.reserve(static_cast<size_t>(copiedTokens));
  lists_.copyTo.reserve(static_cast<size_t>(copiedTokens));
  newTokens_ = newTokens;
  copiedTokens_ = copiedTokens;
  return move_.bind(memory());
}

Status CacheKernels::setLists(const Movement &movement, const DeviceRows &rows, bool always) {
  if (newTokens_ < 0)
    return inputError("cache kernels: a movement before pages were reserved for");
  int64_t copied = 0;
  for (const Movement::Copy &copy : movement.copies)
    copied += copy.headClass == pages_.headClass ? copy.tokens : 0;
  if (movement.rows > newTokens_ || copied > copiedTokens_)
    return inputError("cache kernels: expected at most " + std::to_string(newTokens_) + " new and " +
                      std::to_string(copiedTokens_) + " copied tokens, as reserved, got " +
                      std::to_string(movement.rows) + " and " + std::to_string(copied));
  if (Status status = lists_.assign(movement, pages_.headClass, pages_.pages, pages_.pageTokens); !status)
    return status;
  writes_ = std::any_of(lists_.writeTo.begin(), lists_.writeTo.end(), [](int32_t to) { return to >= 0; });
  copies_ = copied > 0;
  if (writes_ || always) {
    if (rows.count < movement.rows)
      return inputError("cache kernels: expected " + std::to_string(movement.rows) + " new tokens, got " +
                        std::to_string(rows.count));
    if (bound_ != rows) {
      if (Status status = append_.bind(memory(), rows, pages_.status); !status)
        return status;
      bound_ = rows;
    }
    if (Status status = append_.setRows({{}, lists_.writeTo}); !status)
      return status;
  }
  return copies_ || always ? move_.setRows({lists_.copyFrom, lists_.copyTo}) : Status();
}

Status CacheKernels::execute(const Movement &movement, const DeviceRows &rows) {
  if (Status status = setLists(movement, rows, false); !status)
    return status;
  if (copies_)
    if (Status status = move_.launch(); !status)
      return status;
  return writes_ ? append_.launch() : Status();
}

Status CacheKernels::set(const Movement &movement, const DeviceRows &rows) {
  return setLists(movement, rows, true);
}

Status CacheKernels::launch() {
  if (Status status = move_.launch(); !status)
    return status;
  return append_.launch();
}

} // namespace attn::rt

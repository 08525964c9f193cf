//===- CacheRows.h - Which rows an operation on a cache copies --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A slot holds a token, counted through a layer of a cache: in a paged cache
// page * pageTokens + offset. Row r goes from slot from[r], or from row r of
// other memory, to slot to[r], or to row r; a negative slot skips the row.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHEROWS_H
#define ATTN_RT_CACHE_CACHEROWS_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/cache/Cache.h"

#include <span>

namespace attn::rt {

/// The lists of one operation: append has only `to`, gather only `from`, move and requantize have both, of
/// the same length. An append that rotates has a position of each row as well.
struct RowLists {
  std::span<const int32_t> from, to;
  std::span<const int32_t> positions = {};
  size_t size() const { return from.empty() ? to.size() : from.size(); }
};

/// The tensors of a function with an operation on a cache, as sizes and lists; the lists refer to the
/// tensors' memory.
struct CacheTensors {
  int32_t layers = 1;
  int64_t slots = 0, rows = 0; ///< per layer
  int64_t written = 0;         ///< requantize: slots of the cache that is written
  RowLists lists;
};

/// The name of the keys or values of a cache: "kv.k_pages", or "kv.k" of a packed one.
std::string cacheTensorName(const Argument &cache, bool keys);

/// Checks names, dtypes and shapes against the manifest. Scales that are given must be finite and above 0.
/// Errors name the tensor. RowChecker checks the contents of the lists.
/// - the cache, [layers, pages, page, heads, dim] (packed: [layers, tokens, heads, dim]), with its metadata
/// - `k`, `v` and `q` of an append, [layers, rows, heads, dim], with its tables, [positions, angles], and
///   weights, [layers, dim]
/// - the lists, i32[rows]
Result<CacheTensors> readCacheTensors(const Manifest &manifest, const TensorMap &tensors);

/// Memory for the check of up to `rows` rows, reserved once: the check itself allocates nothing.
class RowChecker {
public:
  void reserve(size_t rows);
  /// Refuses, naming the rows: lists that the operation does not have, a slot outside the cache, two rows to
  /// one slot, a slot that is both read and written, and a move with only one negative slot. O(rows log
  /// rows).
  Status check(KernelInfo::Role role, const RowLists &lists, int64_t slots) {
    return check(role, lists, slots, slots);
  }
  /// The check for two caches, one that is read and one that is written, with their slots.
  Status check(KernelInfo::Role role, const RowLists &lists, int64_t read, int64_t written);

private:
  std::vector<uint64_t> reads_, writes_; ///< slot and row
};

/// The rows of a Movement's copies and writes of one head class, as lists. Vectors keep their capacity.
struct MovementRows {
  std::vector<int32_t> writeTo;          ///< for each new token; -1 if the class does not write it
  std::vector<int32_t> copyFrom, copyTo; ///< for each token copied

  /// Lists a movement's rows. Refuses, naming the copy or write, moves outside the pool's pages or across the
  /// end of a page.
  Status assign(const Movement &movement, int32_t headClass, int32_t pages, int32_t pageTokens);
};

} // namespace attn::rt

#endif

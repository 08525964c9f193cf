//===- Memory.h - Global memory of the host device --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allocations with names, exact bounds and a map of the bytes that were ever
// written. Not thread-safe: a launch only reads the set of allocations, so
// allocate and free between launches.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_MEMORY_H
#define ATTN_RT_HOST_MEMORY_H

#include "attn_rt/support/Status.h"
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attn::rt::host {

/// The counters that count the traffic of an allocation.
enum class Tag : uint8_t { Plain, Partials };

struct Allocation {
  uint8_t *base = nullptr;
  size_t bytes = 0;
  std::string label;
  Tag tag = Tag::Plain;
  bool owned = true;
  /// One bit per byte; null once every byte was written.
  std::unique_ptr<std::atomic<uint64_t>[]> written;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(base); }
  bool contains(uintptr_t p, size_t n) const {
    size_t offset = p - address();
    return offset <= bytes && n <= bytes - offset;
  }
  bool contains(const void *p, size_t n) const { return contains(reinterpret_cast<uintptr_t>(p), n); }
  void mark(size_t offset, size_t n);
  bool isWritten(size_t offset, size_t n) const;
};

class MemoryMap {
public:
  MemoryMap() = default;
  MemoryMap(const MemoryMap &) = delete;
  MemoryMap &operator=(const MemoryMap &) = delete;
  ~MemoryMap();

  /// Allocates unwritten memory, 256-byte aligned, filled with a poison pattern (NaN in every float format)
  /// and followed by a gap that no allocation holds.
  Result<void *> alloc(size_t bytes, std::string label = {});
  /// Registers memory of the caller, all of it written. It must outlive its registration. Refuses memory that
  /// overlaps an allocation.
  Status adopt(void *base, size_t bytes, std::string label);
  /// Frees an allocation, or ends the registration of adopted memory. Fails for any other address.
  Status free(void *base);

  /// Marks bytes as written. Ignores addresses outside of every allocation.
  void markWritten(const void *p, size_t bytes);
  void setLabel(const void *base, std::string label);
  void setTag(const void *base, Tag tag);
  /// Marks every byte of an allocation as unwritten, and fills it with the poison pattern.
  void poison(void *base);

  /// The allocation that holds this address; null if none does.
  Allocation *find(const void *p) const { return find(reinterpret_cast<uintptr_t>(p)); }
  Allocation *find(uintptr_t address) const;
  /// The last allocation that begins at or before the address, else the first one; null without allocations.
  Allocation *nearest(uintptr_t address) const;
  size_t size() const { return allocations.size(); }

private:
  void insert(std::unique_ptr<Allocation> a);
  std::vector<std::unique_ptr<Allocation>> allocations; // sorted by base
};

} // namespace attn::rt::host

#endif

//===- Memory.cpp - Allocations of the host device ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/host/Memory.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace attn::rt::host {

static constexpr size_t kGap = 256; ///< bytes after an allocation that no allocation holds

static std::unique_ptr<std::atomic<uint64_t>[]> noneWritten(size_t bytes) {
  size_t words = (bytes + 63) / 64;
  auto bits = std::make_unique<std::atomic<uint64_t>[]>(words);
  if (bytes % 64) // the tail of the last word is never read; it is set so that a full map is all ones
    bits[words - 1] = ~0ull << (bytes % 64);
  return bits;
}

/// The bits [from, to) of a word, to - from in 1..64.
static uint64_t bitRange(size_t from, size_t to) { return (~0ull >> (64 - (to - from))) << from; }

void Allocation::mark(size_t offset, size_t n) {
  if (!written)
    return;
  for (size_t end = offset + n; offset < end;) {
    size_t word = offset / 64, stop = std::min(end, (word + 1) * 64);
    uint64_t bits = bitRange(offset % 64, stop - word * 64);
    if ((written[word].load(std::memory_order_relaxed) & bits) != bits)
      written[word].fetch_or(bits, std::memory_order_relaxed);
    offset = stop;
  }
}

bool Allocation::isWritten(size_t offset, size_t n) const {
  if (!written)
    return true;
  for (size_t end = offset + n; offset < end;) {
    size_t word = offset / 64, stop = std::min(end, (word + 1) * 64);
    uint64_t bits = bitRange(offset % 64, stop - word * 64);
    if ((written[word].load(std::memory_order_relaxed) & bits) != bits)
      return false;
    offset = stop;
  }
  return true;
}

MemoryMap::~MemoryMap() {
  for (auto &a : allocations)
    if (a->owned)
      std::free(a->base);
}

void MemoryMap::insert(std::unique_ptr<Allocation> a) {
  auto at = std::upper_bound(allocations.begin(), allocations.end(), a->base,
                             [](const uint8_t *p, const auto &x) { return p < x->base; });
  allocations.insert(at, std::move(a));
}

Result<void *> MemoryMap::alloc(size_t bytes, std::string label) {
  size_t room = bytes > SIZE_MAX - 2 * kGap ? 0 : (bytes + kGap + 255) / 256 * 256;
  void *p = room ? std::aligned_alloc(256, room) : nullptr;
  if (!p)
    return Error{ErrorKind::Memory, "host: no memory for " + std::to_string(bytes) + " bytes" +
                                        (label.empty() ? "" : " (" + label + ")")};
  std::memset(p, 0xff, room);
  auto a = std::make_unique<Allocation>();
  a->base = static_cast<uint8_t *>(p);
  a->bytes = bytes;
  a->label = label.empty() ? "allocation " + std::to_string(allocations.size()) : std::move(label);
  if (bytes)
    a->written = noneWritten(bytes);
  insert(std::move(a));
  return p;
}

Status MemoryMap::adopt(void *base, size_t bytes, std::string label) {
  const auto begin = reinterpret_cast<uintptr_t>(base);
  if (begin == 0 || bytes == 0 || bytes > UINTPTR_MAX - begin)
    return inputError("host: '" + label + "' is no memory: " + std::to_string(bytes) + " bytes at " +
                      std::to_string(begin));
  for (uintptr_t address : {begin, begin + bytes - 1})
    if (const Allocation *a = nearest(address);
        a && a->address() < begin + bytes && begin < a->address() + std::max<size_t>(a->bytes, 1))
      return inputError("host: '" + label + "' overlaps '" + a->label + "'");
  auto a = std::make_unique<Allocation>();
  a->base = static_cast<uint8_t *>(base);
  a->bytes = bytes;
  a->label = std::move(label);
  a->owned = false;
  insert(std::move(a));
  return {};
}

Status MemoryMap::free(void *base) {
  for (auto it = allocations.begin(); it != allocations.end(); ++it)
    if ((*it)->base == base) {
      if ((*it)->owned)
        std::free(base);
      allocations.erase(it);
      return {};
    }
  return inputError("host: free of an address that is not the start of an allocation");
}

Allocation *MemoryMap::nearest(uintptr_t address) const {
  auto it = std::upper_bound(allocations.begin(), allocations.end(), address,
                             [](uintptr_t x, const auto &a) { return x < a->address(); });
  if (it != allocations.begin())
    --it;
  return it == allocations.end() ? nullptr : it->get();
}

Allocation *MemoryMap::find(uintptr_t address) const {
  Allocation *a = nearest(address);
  if (!a)
    return nullptr;
  return address - a->address() < std::max<size_t>(a->bytes, 1) ? a : nullptr;
}

void MemoryMap::markWritten(const void *p, size_t bytes) {
  Allocation *a = find(p);
  if (!a || !bytes)
    return;
  size_t offset = static_cast<const uint8_t *>(p) - a->base;
  a->mark(offset, std::min(bytes, a->bytes - offset));
  if (a->written && offset == 0 && bytes >= a->bytes)
    a->written.reset(); // every byte is written: the map is no longer needed
}

void MemoryMap::setLabel(const void *base, std::string label) {
  if (Allocation *a = find(base))
    a->label = std::move(label);
}

void MemoryMap::setTag(const void *base, Tag tag) {
  if (Allocation *a = find(base))
    a->tag = tag;
}

void MemoryMap::poison(void *base) {
  Allocation *a = find(base);
  if (!a || !a->bytes)
    return;
  std::memset(a->base, 0xff, a->bytes);
  a->written = noneWritten(a->bytes);
}

} // namespace attn::rt::host

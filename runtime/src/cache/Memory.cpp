//===- Memory.cpp - Global memory of the host device ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/CacheMemory.h"

#include <cstring>

namespace attn::rt {

namespace {

/// Whether layers of `tokens` tokens, each `layerBytes` after the one before, end within `size`.
bool fits(int64_t tokens, int64_t tokenBytes, int32_t layers, int64_t layerBytes, size_t size) {
  const __int128 end = __int128{layers - 1} * layerBytes + __int128{tokens} * tokenBytes;
  return end >= 0 && end <= static_cast<__int128>(size);
}

} // namespace

Status executeMovement(const Movement &movement, int32_t headClass, int32_t pageTokens,
                       const PageMemory &pages, const RowMemory &rows) {
  if (pages.tokenBytes < 1 || pages.layers < 1 || pages.layerBytes < 0 || rows.layerBytes < 0)
    return inputError("cache memory: expected at least 1 byte per token and 1 layer");
  int64_t slots = 0, newTokens = 0;
  const auto see = [&](Place place, int32_t tokens) {
    slots = std::max(slots, int64_t{place.page} * pageTokens + place.slot + tokens);
  };
  for (const Movement::Copy &copy : movement.copies)
    if (copy.headClass == headClass) {
      see(copy.from, copy.tokens);
      see(copy.to, copy.tokens);
    }
  for (const Movement::Write &write : movement.writes)
    if (write.headClass == headClass) {
      see(write.to, write.tokens);
      newTokens = std::max(newTokens, int64_t{write.row} + write.tokens);
    }
  if (slots && !fits(slots, pages.tokenBytes, pages.layers, pages.layerBytes, pages.bytes.size()))
    return inputError("cache memory: expected " + std::to_string(pages.layers) + " layers of at least " +
                      std::to_string((slots + pageTokens - 1) / pageTokens) + " pages, got " +
                      std::to_string(pages.bytes.size()) + " bytes");
  if (newTokens && !fits(newTokens, pages.tokenBytes, pages.layers, rows.layerBytes, rows.bytes.size()))
    return inputError("cache memory: expected " + std::to_string(pages.layers) + " layers of " +
                      std::to_string(newTokens) + " new tokens, got " + std::to_string(rows.bytes.size()) +
                      " bytes");

  for (int32_t layer = 0; layer < pages.layers; ++layer) {
    std::byte *base = pages.bytes.data() + layer * pages.layerBytes;
    const auto at = [&](Place place) {
      return base + (int64_t{place.page} * pageTokens + place.slot) * pages.tokenBytes;
    };
    for (const Movement::Copy &copy : movement.copies)
      if (copy.headClass == headClass)
        memcpy(at(copy.to), at(copy.from), static_cast<size_t>(copy.tokens * pages.tokenBytes));
    for (const Movement::Write &write : movement.writes)
      if (write.headClass == headClass)
        memcpy(at(write.to), rows.bytes.data() + layer * rows.layerBytes + write.row * pages.tokenBytes,
               static_cast<size_t>(write.tokens * pages.tokenBytes));
  }
  return {};
}

} // namespace attn::rt

//===- Swizzle.h - Where a swizzled byte lies -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SRC_HOST_MACHINE_SWIZZLE_H
#define ATTN_RT_SRC_HOST_MACHINE_SWIZZLE_H

#include <cstdint>

namespace attn::rt::host {

/// The shared address that replaces another under a swizzle of `span` bytes (0: none): its 16-byte chunk is
/// exchanged with another chunk of the span, by the number of its 128-byte line.
inline uint32_t swizzle(uint32_t address, uint32_t span) {
  const uint32_t chunks = span ? span / 16 - 1 : 0;
  return address ^ (address >> 7 & chunks) << 4;
}

} // namespace attn::rt::host

#endif

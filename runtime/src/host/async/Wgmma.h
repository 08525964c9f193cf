//===- Wgmma.h - The tensor cores of a warpgroup ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warpgroup's wgmma form a queue of issues. Each of its four warps passes in its part
// of the registers when it gets there; after the fourth, the issue is complete and its
// shared operands may be read, any time until a wait retires its group. A delayed issue
// keeps its descriptors, not its operands: a stage that is produced again too early
// gives wrong numbers, not only a finding.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_ASYNC_WGMMA_H
#define ATTN_RT_SRC_HOST_ASYNC_WGMMA_H

#include "host/detect/SharedShadow.h"
#include "host/machine/Swizzle.h"

namespace attn::rt::host {

inline constexpr unsigned kGroupWarps = 4, kWgmmaRows = 64, kWgmmaDepth = 16;
inline constexpr uint32_t kAllWarps = (1u << kGroupWarps) - 1;

struct Issue {
  uint64_t number = ~0ull;
  uint32_t program = 0, op = 0, thread = 0;
  uint32_t group = 0; ///< of wgmma.commit_group, from 1
  uint32_t warps = 0; ///< that passed in their part
  bool computed = false;
  std::vector<uint64_t> descriptors; ///< left and right, per step
  std::vector<float> left;           ///< 64x16 per step with its left operand in registers
  std::vector<float> sums;           ///< 64xn per chain
  std::vector<uint64_t> from;        ///< per chain, the chain that it continues: issue << 3 | chain; or ~0
  AsyncView views[kGroupWarps];
};

/// The layout of one operand, decoded from its descriptor.
struct Descriptor {
  uint32_t start, leading, stride, base, width; ///< width 0: no swizzle
  explicit Descriptor(uint64_t d);
  uint32_t place(uint32_t address) const { return swizzle(address, width) & 0x3ffff; }
  /// The 16 bytes that hold elements k .. k + 7 of a row (k is 0 or 8).
  uint32_t rowChunk(uint32_t row, uint32_t k) const;
  /// The 16 bytes that hold columns c .. c + 7 of one k.
  uint32_t columnChunk(uint32_t column, uint32_t k) const;
};

struct Tensor {
  static constexpr unsigned kKept = 32;
  struct Waiter {
    uint32_t lanes = 0, op = 0, newest = 0, registers = 0;
  };
  uint64_t issued[kGroupWarps] = {}; ///< per warp
  uint32_t retired[kGroupWarps] = {};
  uint64_t computed = 0; ///< all issues before this one
  Waiter waiting[kGroupWarps];
  Issue issues[kKept];

  Issue &at(uint64_t number) { return issues[number % kKept]; }
  void reset() {
    std::fill(std::begin(issued), std::end(issued), 0);
    std::fill(std::begin(retired), std::end(retired), 0);
    std::fill(std::begin(waiting), std::end(waiting), Waiter());
    computed = 0;
    for (Issue &issue : issues)
      issue.number = ~0ull;
  }
};

/// Computes the products of an issue's steps (WgmmaMath.cpp).
void compute(const Block &block, Tensor &tensor, Issue &issue);
/// Ends the waits of a warpgroup whose issues are complete (WgmmaWait.cpp); true if there were any.
bool finishWaits(Block &block, unsigned group);

inline bool inFlight(uint32_t word) { return (word & kInFlightMask) == kInFlight; }

inline Tensor &tensorOf(Warp &warp) { return *warp.block->tensors[warp.index / kGroupWarps]; }

inline void misuse(Warp &warp, uint32_t op, const char *message) {
  warp.block->report(FindingKind::Sync, op, warp.lanes[0], message);
}

inline void computeUpTo(Block &block, Tensor &tensor, uint64_t end) {
  for (; tensor.computed < end; ++tensor.computed)
    compute(block, tensor, tensor.at(tensor.computed));
}

/// The issue that an accumulator in flight belongs to, or null if it is long gone.
inline Issue *issueOf(Tensor &tensor, unsigned w, uint32_t word) {
  uint64_t low = word >> kInFlightIssueShift & (kIssueNumbers - 1), last = tensor.issued[w];
  uint64_t number = last - 1 - ((last - 1 - low) & (kIssueNumbers - 1));
  Issue &issue = tensor.at(number);
  return last && issue.number == number ? &issue : nullptr;
}

inline bool allLanes(const uint32_t *words, uint32_t value) {
  bool same = true;
  for (unsigned l = 0; l < kLanes; ++l)
    same &= words[l] == value;
  return same;
}

/// Moves word `i` of a warp's lanes into or out of the sums of a chain.
template <class Move> void forWord(unsigned w, uint32_t i, uint32_t n, Move move) {
  uint32_t row = 16 * w + 8 * (i >> 1 & 1), column = 8 * (i >> 2) + (i & 1);
  for (uint32_t g = 0; g < 8; ++g)
    for (uint32_t q = 0; q < 4; ++q)
      move(4 * g + q, size_t(row + g) * n + column + 2 * q);
}

} // namespace attn::rt::host

#endif

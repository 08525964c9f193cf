//===- Grid.h - Blocks of a launch ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SESSION_GRID_H
#define ATTN_RT_SESSION_GRID_H

#include "attn_rt/artifact/Artifact.h"

#include <algorithm>

namespace attn::rt {

/// The most blocks of the launch that makes a plan: each block makes all of the plan and writes a share, so
/// that further blocks save less and less.
inline constexpr int64_t mostPlanBlocks = 16;

/// The iterations of a walking kernel's warps over `elements` elements.
constexpr int64_t walkTurns(const KernelInfo &kernel, int64_t elements) {
  return (elements + kernel.rowsPerWarp - 1) / kernel.rowsPerWarp * kernel.pieces;
}

/// Blocks of a launch over `elements` elements in each of `layers` layers: one for each element or, if warps
/// walk, enough for all iterations at once, at least one and at most `most`.
constexpr int64_t gridBlocks(const KernelInfo &kernel, int64_t elements, int64_t layers, int64_t most) {
  if (kernel.rowsPerWarp == 0)
    return elements;
  const int64_t turns = walkTurns(kernel, elements) * layers;
  return std::clamp<int64_t>((turns + kernel.warps - 1) / kernel.warps, 1, most);
}

} // namespace attn::rt

#endif

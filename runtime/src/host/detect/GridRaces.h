//===- GridRaces.h - Races between blocks -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of a grid are not ordered. Ranges that different blocks logged
// (count/BlockLog.h) and that overlap are races if one of them is a write and they are
// not both atomic. A read through the non-coherent path also races with a write of its
// own block.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_DETECT_GRIDRACES_H
#define ATTN_RT_SRC_HOST_DETECT_GRIDRACES_H

#include "host/count/BlockLog.h"

namespace attn::rt::host {

/// Finds the races between blocks and reports each at its write.
void findGridRaces(const Grid &grid, const std::vector<std::vector<LoggedRange>> &blocks,
                   std::vector<std::vector<LocalFinding>> &findings);

} // namespace attn::rt::host

#endif

//===- ScheduleLimits.h - What every chip gives a block ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_SCHEDULELIMITS_H
#define ATTN_CONVERSION_SCHEDULELIMITS_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// What every block of a multiprocessor costs beside its own shared memory (CUDA C++ Programming Guide,
/// "Shared Memory" of compute capability 8.x and 9.0).
inline constexpr int64_t systemShared = 1024;
/// A thread's registers (PTX ISA), what setmaxnreg gives one at most, and those of a multiprocessor.
inline constexpr int64_t threadRegisters = 255, roleRegisters = 256, allRegisters = 65536;

/// What a thread begins with where a kernel may take all registers: they are given by eights.
int64_t firstRegisters(tile::ScheduleAttr schedule);

/// Registers per thread of the two roles, which share the 65,536: what ptxas 13.0 needs to spill nothing
/// (2026-11-20).
struct Registers {
  int64_t producer, consumer;
};
/// A producer that gathers computes addresses; three consumers and wide values leave it fewer.
Registers registersOfRoles(int64_t consumers, bool gathers, int64_t valueDim);

} // namespace mlir::attn

#endif

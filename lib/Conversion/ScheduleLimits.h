//===- ScheduleLimits.h - What every chip gives a block ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_SCHEDULELIMITS_H
#define ATTN_CONVERSION_SCHEDULELIMITS_H

#include "attn/Dialect/Tile/IR/Tile.h"

namespace mlir::attn {

/// The shared memory that the system takes of every block, beside the block's own (CUDA C++ Programming
/// Guide, "Shared Memory" of compute capability 8.x and 9.0).
inline constexpr int64_t systemShared = 1024;
/// The registers of a thread (PTX ISA), the most that setmaxnreg gives a thread, and the registers of a
/// multiprocessor.
inline constexpr int64_t threadRegisters = 255, roleRegisters = 256, allRegisters = 65536;

/// The registers that a thread begins with if a kernel may take all; they are allocated in multiples of
/// eight.
int64_t firstRegisters(tile::ScheduleAttr schedule);

/// Registers per thread of the two roles, which share the 65,536. ptxas 13.0 needs this many to spill nothing
/// (2026-11-20).
struct Registers {
  int64_t producer, consumer;
};
/// The registers of both roles. A producer that gathers computes addresses; three consumers and wide values
/// leave it fewer.
Registers registersOfRoles(int64_t consumers, bool gathers, int64_t valueDim);
/// The registers of two consumers and of a producer that gathers quantized values and widens them.
inline constexpr Registers registersOfWidening{80, 208};
/// Those of two consumers and of two warpgroups that hold the lines of a ring's tile while they widen it.
inline constexpr Registers registersOfHolding{56, 200};

} // namespace mlir::attn

#endif

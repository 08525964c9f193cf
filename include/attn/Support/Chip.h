//===- Chip.h - The GPUs attn emits code for --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_SUPPORT_CHIP_H
#define ATTN_SUPPORT_CHIP_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace mlir::attn {

/// What the compiler needs to know of a target. Shared memory from the CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability"; a block can use 1 KiB less than a multiprocessor has.
struct Chip {
  llvm::StringLiteral name; ///< as given to --target and to ptxas
  unsigned ptxVersion;      ///< lowest PTX ISA version that knows the chip: older drivers read it
  int64_t sharedPerBlock;   ///< bytes of dynamic shared memory one block can opt in to
  int64_t sharedPerMultiprocessor;
  bool hasWgmma;         ///< Hopper's asynchronous tensor cores, which later chips do not have
  bool convertsE4M3;     ///< has an instruction, at that PTX version, that makes f16 of e4m3
  bool overlapsLaunches; ///< a launch may begin before the one in front has ended (griddepcontrol)
};

/// The chip of that name, or null.
const Chip *findChip(llvm::StringRef name);
/// All chips, the oldest first.
llvm::ArrayRef<Chip> allChips();
/// The names of all chips, for messages.
std::string listChips();

} // namespace mlir::attn

#endif

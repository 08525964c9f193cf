//===- Chips.h - The GPUs attn emits code for -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SUPPORT_CHIPS_H
#define ATTN_RT_SUPPORT_CHIPS_H

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace attn::rt {

/// A target of the compiler: its limits, and the data for choosing a target for a GPU. Sizes of shared memory
/// are from the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; a block can
/// use 1 KiB less than a multiprocessor has.
struct Chip {
  std::string_view name;  ///< as given to --target and to ptxas; with an `a` it runs on this generation alone
  int computeCapability;  ///< 90 is 9.0
  unsigned ptxVersion;    ///< lowest PTX ISA version that knows the chip: older drivers read it
  int64_t sharedPerBlock; ///< bytes of dynamic shared memory one block can opt in to
  int64_t sharedPerMultiprocessor;
  bool hasWgmma = false;         ///< Hopper's asynchronous tensor cores, which later chips do not have
  bool convertsE4M3 = false;     ///< has an instruction, at that PTX version, that converts e4m3 to f16
  bool overlapsLaunches = false; ///< a launch may begin before the launch in front has ended (griddepcontrol)
};

/// All chips, the oldest first.
std::span<const Chip> allChips();
/// The chip of that name; null if there is none.
const Chip *findChip(std::string_view name);
/// The names of all chips, for messages.
std::string listChips();
/// The target to compile for, given the compute capability of a GPU: the GPU's own target or, since newer
/// generations run PTX, the newest older target without an `a`.
std::string_view targetOfGpu(int computeCapability);

} // namespace attn::rt

#endif

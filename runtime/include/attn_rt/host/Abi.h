//===- Abi.h - What native code of a kernel may call ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The boundary between the two halves of the host device. A kernel gets a pointer to its
// lane and the array of parameters, reads special registers from the lane, and calls the
// functions below by name. It passes operands of warp-wide operations through its column
// of the warp's exchange buffer. Word w of lane l is at [w * 32 + l], so that the operation
// finds each operand as one vector over the lanes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_ABI_H
#define ATTN_RT_HOST_ABI_H

#include <cstddef>
#include <cstdint>
#include <span>

namespace attn::rt::host {

enum SpecialRegister : uint32_t {
  TidX,
  TidY,
  TidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NtidX,
  NtidY,
  NtidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NumWarps,
  NumSpecialRegisters = 16
};

/// The part of a lane that native code addresses; offsets are part of the ABI.
struct LaneAbi {
  uint32_t special[NumSpecialRegisters];
  uint32_t *exchange; ///< this lane's column: word w is exchange[w * 32]
  uint8_t *shared;    ///< base of the shared-memory window
};
inline constexpr size_t kLaneExchangeOffset = offsetof(LaneAbi, exchange);
inline constexpr size_t kLaneSharedOffset = offsetof(LaneAbi, shared);
inline constexpr unsigned kExchangeWords = 2048;

/// The offset of dynamic shared memory in the window: at exactly its declared alignment and no better, so
/// that a missing alignment shows.
inline constexpr uint32_t dynamicSharedOffset(uint32_t staticBytes, uint32_t alignment) {
  uint32_t offset = (staticBytes + alignment - 1) / alignment * alignment;
  return (offset / alignment) % 2 ? offset : offset + alignment;
}
enum class ShuffleKind : uint32_t { Bfly, Up, Down, Idx }; ///< as NVVM numbers them
enum class VoteKind : uint32_t { Any, All, Ballot, Uni };

/// Exchange words of the warp-wide operations.
inline constexpr unsigned kMmaA = 0, kMmaB = 4, kMmaC = 6; ///< operands of a step
inline constexpr unsigned kMatrixData = 1;                 ///< stmatrix: word 0 holds the row's offset

/// An accumulator in flight has no value. The code carries a signalling NaN that no arithmetic makes: it
/// encodes the issue of the warpgroup, the chain of the issue and the register.
inline constexpr uint32_t kInFlight = 0xffa00000, kInFlightMask = 0xffe00000;
inline constexpr unsigned kInFlightChainShift = 7, kInFlightIssueShift = 10;
inline constexpr unsigned kMaxChains = 8, kIssueNumbers = 2048;

/// Wrong uses of registers that the compiler half detects.
enum class Misuse : uint32_t { ReadInFlight, WrittenAfterFence };

struct Symbol {
  const char *name;
  void *address;
};
/// Every function that native code may call, for the linker.
std::span<const Symbol> abiSymbols();

} // namespace attn::rt::host

#endif

//===- Kernel.h - Native code of a kernel, for the host device --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the compiler half of the host device hands to the runtime half, through a
// CodeObject: an entry point and, for reports, the machine-level text of each
// instrumented operation.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_KERNEL_H
#define ATTN_RT_HOST_KERNEL_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attn::rt::host {

struct LaneAbi;

enum class Space : uint8_t { Generic = 0, Global = 1, Shared = 3 };
enum class Access : uint8_t { None, Load, Store, Atomic, AsyncCopy, Matrix, Sync };

/// One static operation of the machine level that the executor sees.
struct HostOpInfo {
  std::string text;     ///< as printed at the machine level, shortened
  std::string location; ///< file:line:col, or empty
  Access access = Access::None;
  Space space = Space::Generic;
  uint16_t bytes = 0;     ///< per lane
  uint16_t alignment = 1; ///< promised by the operation; checked
  bool invariant = false; ///< ld.global.nc: the data must not change during the grid
};

/// One matrix operation of a warp. Words name vectors over the lanes in the exchange buffer.
struct WarpStep {
  enum Kind : uint8_t { Ldmatrix, LdmatrixTransposed, MmaF16, MmaBF16 };
  Kind kind = Ldmatrix;
  uint8_t count = 0;    ///< result words
  uint16_t in[10] = {}; ///< ldmatrix: the rows' shared addresses; mma: A0-3, B0-1, C0-3
  uint16_t out[4] = {};
  uint32_t op = 0;
};

/// A run of matrix operations that only feed each other: the warp executes them without its lanes in between.
struct WarpProgram {
  std::vector<WarpStep> steps;
};

/// Accumulators of a run of wgmma: 64 rows, `n` columns, f32.
struct WgmmaChain {
  uint16_t n = 0;
  uint16_t acc = kNoWord; ///< first of n/2 words; kNoWord: the sum starts at zero
  static constexpr uint16_t kNoWord = 0xffff;
};

/// One wgmma m64nNk16. Descriptors take two words, the low half first.
struct WgmmaStep {
  uint32_t op = 0;
  uint8_t chain = 0;
  bool half = false, transposed = false;   ///< f16, not bf16; the right operand is MN-major
  bool lhsTransposed = false;              ///< a left operand with a descriptor is MN-major
  uint16_t lhs = WgmmaChain::kNoWord;      ///< first of four words of a left operand in registers
  uint16_t lhsAddress = 0, rhsAddress = 0; ///< descriptors
};

/// A run of wgmma that only feed each other, issued together by the warps of a warpgroup.
struct WgmmaProgram {
  std::vector<WgmmaChain> chains;
  std::vector<WgmmaStep> steps;
};

/// An immutable list that the kernels of a module share; copies are cheap.
template <typename T> class SharedList {
public:
  SharedList() = default;
  SharedList(std::vector<T> items) : items_(std::make_shared<const std::vector<T>>(std::move(items))) {}
  bool empty() const { return size() == 0; }
  size_t size() const { return items_ ? items_->size() : 0; }
  const T &operator[](size_t index) const { return (*items_)[index]; }
  const T *begin() const { return items_ ? items_->data() : nullptr; }
  const T *end() const { return begin() + size(); }

private:
  std::shared_ptr<const std::vector<T>> items_;
};

/// A kernel ready to run. Its code belongs to whoever loaded it (LoadedCode).
struct HostKernel {
  std::string name;
  void (*entry)(LaneAbi *lane, void **args) = nullptr;
  SharedList<HostOpInfo> ops; ///< indexed by the op number that the code passes
  SharedList<WarpProgram> programs;
  SharedList<WgmmaProgram> wgmmaPrograms;
  /// Size of each parameter's value; a kernel without sizes can be launched but not recorded.
  std::vector<uint32_t> parameterBytes;
  uint32_t sharedAlignment = 16; ///< declared alignment of dynamic shared memory
  uint32_t staticShared = 0;     ///< bytes of static shared memory, placed before it
  /// Parameters (by number) that stores and atomics may derive their pointers from, and tensor maps that TMA
  /// stores use. If these are unknown, `writesAnywhere` holds: any allocation may be written.
  std::vector<uint32_t> writtenParameters;
  bool writesAnywhere = true;
  uint32_t blocksPerMultiprocessor = 1; ///< as compiled for: they share the registers
  bool inOrder = false;                 ///< blocks wait for blocks with smaller numbers, which begin first
  bool checked = false;                 ///< loads and stores are instrumented
};

} // namespace attn::rt::host

#endif

//===- CudaStaging.h - Small copies that do not wait ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From pageable memory the driver copies once the stream has reached the copy, and the
// caller waits. A plan is made while the step before runs, so it is first put into
// pinned memory: two halves, filled in turn; a half is reused once the copies out of it
// have ended.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CUDA_CUDASTAGING_H
#define ATTN_RT_CUDA_CUDASTAGING_H

#include "attn_rt/device/Device.h"
#include "cuda/CudaApi.h"

#include <array>

namespace attn::rt::cuda {

class Staging {
public:
  static constexpr size_t halfBytes = 2 << 20;
  /// The most bytes, from the first piece to the end of the last, that are copied at once: a copy takes the
  /// driver some 8 us.
  static constexpr size_t mostGathered = 1 << 20;

  explicit Staging(const Api &api) : api_(api) {}
  ~Staging();
  /// Copies through pinned memory; copies larger than a half bypass it. The context must be current.
  Status copyIn(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
  /// Copies pieces that span `bytes` bytes as one copy.
  Status copyIn(CUdeviceptr to, std::span<const CopyPiece> pieces, size_t bytes, CUstream stream);
  /// Ends the use of the current half: later copies go to another stream than `stream`.
  Status leave(CUstream stream);

private:
  const Api &api_;
  char *memory_ = nullptr; ///< both halves
  std::array<CUevent, 2> emptied_{};
  std::array<bool, 2> pending_{};
  size_t half_ = 0, used_ = 0;
  Status prepare();
  /// Returns `bytes` bytes of pinned memory, at most a half.
  Result<char *> take(size_t bytes, CUstream stream);
};

} // namespace attn::rt::cuda

#endif

//===- CudaRecorder.h - Launches as a CUDA graph ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CUDA_CUDARECORDER_H
#define ATTN_RT_CUDA_CUDARECORDER_H

#include "attn_rt/device/Device.h"
#include "cuda/CudaApi.h"

namespace attn::rt::cuda {

/// Captures launches on a stream of its own into a graph: the device's stream may be the legacy default
/// stream, which cannot be captured. The context must be current in every call.
class Recorder {
public:
  Recorder(const Api &api, CUcontext context) : api_(api), context_(context) {}
  ~Recorder();

  Status begin();
  Result<std::unique_ptr<Recording>> end();
  /// The stream for launches during a recording; null otherwise.
  CUstream stream() const { return recording_ ? stream_ : nullptr; }
  /// Drivers before CUDA 12.3 cannot capture a launch that overlaps the one in front.
  bool takesOverlap() const { return api_.driverVersion >= 12030; }
  Status replay(const Recording &recording, CUstream stream) const;

private:
  const Api &api_;
  CUcontext context_;
  CUstream stream_ = nullptr;
  bool recording_ = false;
};

} // namespace attn::rt::cuda

#endif

//===- Gpu.h - What GPUs can do, for estimates ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_PLAN_GPU_H
#define ATTN_RT_PLAN_GPU_H

#include <span>
#include <string_view>

namespace attn::rt {

/// What attend kernels of one schedule were seen to reach; 0 where nobody has measured.
struct KernelRates {
  double flopsPerSecond = 0;        ///< of whole tiles, where the tensor cores are the limit
  double exponentialsPerSecond = 0; ///< scores through the softmax, where that is
};

/// What a cost or a roofline needs to know of a GPU.
struct GpuModel {
  std::string_view name;
  /// Peaks of NVIDIA's data sheets (dense 16-bit matrix throughput, no sparsity), read 2026-11: rooflines.
  double bytesPerSecond;
  double flopsPerSecond;
  int multiprocessors;
  int64_t l2Bytes = 0; ///< likewise, of Hopper what the driver reports; 0: nobody knows
  /// What the driver calls it, where predictions hold for it.
  std::string_view device = {};
  /// Measured: predictions, and the planner's choices. The peaks stand in for what is 0.
  double memoryBytesPerSecond = 0;
  double l2BytesPerSecond = 0; ///< of what is read again; 0: never the limit
  KernelRates mma = {}, wgmma = {};
};

std::span<const GpuModel> gpuModels();
/// By name, or null. The first model is the default, the H200.
const GpuModel *findGpu(std::string_view name);
/// By what a driver calls it, or null: predictions for this device would be guesses.
const GpuModel *findGpuOfDevice(std::string_view device);
inline const GpuModel &defaultGpu() { return gpuModels().front(); }

} // namespace attn::rt

#endif

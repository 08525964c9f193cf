//===- Gpu.h - What GPUs can do, for estimates ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_PLAN_GPU_H
#define ATTN_RT_PLAN_GPU_H

#include <span>
#include <string_view>

namespace attn::rt {

/// The measured throughput of attend kernels of one schedule; 0: not measured.
struct KernelRates {
  double flopsPerSecond = 0;        ///< of whole tiles, if the tensor cores are the limit
  double exponentialsPerSecond = 0; ///< scores through the softmax, if these are the limit
};

/// The properties of a GPU that costs and rooflines need.
struct GpuModel {
  std::string_view name;
  /// Peaks of NVIDIA's data sheets (dense 16-bit matrix throughput, no sparsity), read 2026-11: rooflines.
  double bytesPerSecond;
  double flopsPerSecond;
  int multiprocessors;
  int64_t l2Bytes = 0; ///< likewise; for Hopper as the driver reports; 0: unknown
  /// The driver's name of the device, if predictions hold for it.
  std::string_view device = {};
  /// Measured, for predictions and the planner's choices. The peaks stand in for zeros.
  double memoryBytesPerSecond = 0;
  double l2BytesPerSecond = 0; ///< of data that is read again; 0: never the limit
  KernelRates mma = {}, wgmma = {};
};

/// All models, the default one first.
std::span<const GpuModel> gpuModels();
/// Finds a model by name; null if there is none. The first model is the default, the H200.
const GpuModel *findGpu(std::string_view name);
/// Finds a model by the driver's name of a device; null if there is none: predictions would be guesses.
const GpuModel *findGpuOfDevice(std::string_view device);
inline const GpuModel &defaultGpu() { return gpuModels().front(); }

} // namespace attn::rt

#endif

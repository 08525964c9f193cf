//===- Gpu.h - Peak numbers of GPUs, for estimates --------------*- C++ -*-===//
#ifndef ATTN_RT_GPU_H
#define ATTN_RT_GPU_H

#include <span>
#include <string_view>

namespace attn::rt {

/// What a cost or a roofline needs to know of a GPU. Peaks are those of NVIDIA's data sheets (dense 16-bit
/// matrix throughput, no sparsity), read 2026-11.
struct GpuModel {
  std::string_view name;
  double bytesPerSecond;
  double flopsPerSecond;
  int multiprocessors;
};

std::span<const GpuModel> gpuModels();
/// By name, or null. The first model is the default, the H200.
const GpuModel *findGpu(std::string_view name);
inline const GpuModel &defaultGpu() { return gpuModels().front(); }

} // namespace attn::rt

#endif

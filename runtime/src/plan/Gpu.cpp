//===- Gpu.cpp - What GPUs can do, for estimates --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/plan/Gpu.h"

namespace attn::rt {

namespace {

// Peaks. H200 and H100: NVIDIA H200/H100 Tensor Core GPU data sheets (SXM). A100: A100 80GB data sheet (SXM).
// B200: HGX B200 data sheet, per GPU. L40S: L40S data sheet. RTX 4090, RTX 5090: Ada and Blackwell GPU
// architecture papers (f32 accumulation).
//
// Measured on H200s, 2026-11-20, bf16. Decoding 64 MiB to 8 GiB of keys and values reads 4.45 TB/s, without
// the time that does not scale; a copy, which also writes, reaches 4.26. Attend kernels, in TFLOP/s of whole
// tiles of long prefills: wgmma 590, 750, 820 and mma 230, 290, 275 at head sizes 64, 128, 256. Sizes 128 and
// 256 are bound by the tensor cores and give the FLOPs (those of 128 for both: within 9 %); a matrix product
// of 8192^3 ran at 790 to 814. Size 64 is bound by the softmax and gives the exponentials: a score is 4 x 64
// FLOPs, so 590 TFLOP/s are 2.3e12 scores per second, over half of what 16 ex2 per clock and multiprocessor
// do.
//
// The L2: decoding 50 branches by query, each of which reads the prompt, took 107 us for 833 MB of keys and
// values, and a tree of 256 tokens 163 us; without launch and start that is 8.5 to 8.7 TB/s.
constexpr GpuModel models[] = {
    {"H200",
     4.8e12,
     989e12,
     132,
     60 << 20,
     "NVIDIA H200",
     4.45e12,
     8.6e12,
     {282e12, 0.9e12},
     {750e12, 2.3e12}},
    {"H100", 3.35e12, 989e12, 132, 50 << 20},
    {"A100", 2.039e12, 312e12, 108, 40 << 20},
    {"B200", 8.0e12, 2250e12, 148, 126 << 20},
    {"L40S", 0.864e12, 362e12, 142, 96 << 20},
    {"RTX 4090", 1.008e12, 165e12, 128, 72 << 20},
    {"RTX 5090", 1.792e12, 209e12, 170, 96 << 20},
};

} // namespace

std::span<const GpuModel> gpuModels() { return models; }

const GpuModel *findGpu(std::string_view name) {
  for (const GpuModel &model : models)
    if (model.name == name)
      return &model;
  return nullptr;
}

const GpuModel *findGpuOfDevice(std::string_view device) {
  for (const GpuModel &model : models)
    if (!model.device.empty() && model.device == device)
      return &model;
  return nullptr;
}

} // namespace attn::rt

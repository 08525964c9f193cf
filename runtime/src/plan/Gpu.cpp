#include "attn_rt/Gpu.h"

namespace attn::rt {

namespace {

// H200 and H100: NVIDIA H200/H100 Tensor Core GPU data sheets (SXM). A100: A100 80GB data sheet (SXM). B200:
// HGX B200 data sheet, per GPU. L40S: L40S data sheet. RTX 4090, RTX 5090: Ada and Blackwell GPU architecture
// papers (f32 accumulation).
constexpr GpuModel models[] = {
    {"H200", 4.8e12, 989e12, 132},       {"H100", 3.35e12, 989e12, 132},  {"A100", 2.039e12, 312e12, 108},
    {"B200", 8.0e12, 2250e12, 148},      {"L40S", 0.864e12, 362e12, 142}, {"RTX 4090", 1.008e12, 165e12, 128},
    {"RTX 5090", 1.792e12, 209e12, 170},
};

} // namespace

std::span<const GpuModel> gpuModels() { return models; }

const GpuModel *findGpu(std::string_view name) {
  for (const GpuModel &model : models)
    if (model.name == name)
      return &model;
  return nullptr;
}

} // namespace attn::rt

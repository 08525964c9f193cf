//===- CudaModule.h - Code on a GPU -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CUDA_CUDAMODULE_H
#define ATTN_RT_CUDA_CUDAMODULE_H

#include "attn_rt/device/Device.h"
#include "cuda/CudaApi.h"

namespace attn::rt::cuda {

/// Makes a context current for a scope and restores the context before: the process may hold others
/// (PyTorch's).
class Current {
public:
  Current(const Api &api, CUcontext context)
      : api_(api), pushed_(api.cuCtxPushCurrent_v2(context) == success) {}
  ~Current() {
    CUcontext ignored;
    if (pushed_)
      (void)api_.cuCtxPopCurrent_v2(&ignored);
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;

private:
  const Api &api_;
  bool pushed_;
};

struct CudaKernel final : Kernel {
  CUfunction function = nullptr;
  std::string name;
};

/// Loads the cubins if there are any and the device accepts them, else the PTX through the driver's JIT.
Result<std::unique_ptr<Module>> loadModule(const Api &api, CUcontext context,
                                           const DeviceProperties &properties, const ModuleSource &source);

} // namespace attn::rt::cuda

#endif

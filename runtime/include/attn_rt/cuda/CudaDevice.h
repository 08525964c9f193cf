//===- CudaDevice.h - A GPU through NVIDIA's driver -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The driver library is loaded when the first device is opened, never linked:
// a program built with this runs where there is no driver, and no CUDA toolkit is
// needed to build it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CUDA_CUDADEVICE_H
#define ATTN_RT_CUDA_CUDADEVICE_H

#include "attn_rt/device/Device.h"

namespace attn::rt {

struct CudaOptions {
  int index = 0;
  std::string library = "libcuda.so.1";
  void *stream =
      nullptr; ///< a CUstream of the same device's primary context; null is the legacy default stream
};

/// Opens a CUDA device. An error says why it cannot: no driver, a driver that is too old (with both
/// versions), no such device.
Result<std::unique_ptr<Device>> openCudaDevice(const CudaOptions &options = {});

/// The number of devices that a driver finds; 0 without a driver.
int cudaDeviceCount();
inline bool cudaIsAvailable() { return cudaDeviceCount() > 0; }

} // namespace attn::rt

#endif

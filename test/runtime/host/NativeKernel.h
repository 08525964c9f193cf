//===- NativeKernel.h - Kernels of the host device in C++ -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_HOST_NATIVEKERNEL_H
#define ATTN_TEST_RUNTIME_HOST_NATIVEKERNEL_H

#include "attn_rt/host/Abi.h"
#include "attn_rt/host/Launch.h"

#include <string_view>

namespace attn::test {

/// A function that a kernel's native code calls, by its name and type.
template <typename Function> Function *operation(std::string_view name) {
  for (const rt::host::Symbol &symbol : rt::host::abiSymbols())
    if (name == symbol.name)
      return reinterpret_cast<Function *>(symbol.address);
  return nullptr;
}

inline rt::host::HostKernel nativeKernel(const char *name, void (*entry)(rt::host::LaneAbi *, void **)) {
  rt::host::HostKernel kernel;
  kernel.name = name;
  kernel.entry = entry;
  return kernel;
}

} // namespace attn::test

#endif

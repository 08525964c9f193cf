//===- Host.h - Machine level to native code for the host device *- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compiler half of the host device. It takes the same `gpu.module` that PTX is emitted from (`llvm` and
// `nvvm` dialects, before convert-nvvm-to-llvm) and makes native code from it. NVVM operations become calls
// into the runtime half (runtime/include/attn_rt/host). In check mode, loads, stores and atomics also report
// to the detectors.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_HOST_HOST_H
#define ATTN_HOST_HOST_H

#include "attn_rt/host/CodeObject.h"
#include "llvm/Support/Error.h"
#include <memory>

namespace mlir {
class Operation;
}

namespace attn::host {

struct HostCodeOptions {
  bool check = true; ///< instrument accesses; otherwise the code only computes
  std::string cpu;   ///< of rt::host::cpuModels; empty: this machine's
};

/// Compiles every kernel of a `gpu.module`, which is not changed. An operation without a meaning here is an
/// error with its name and location.
llvm::Expected<rt::host::CodeObject> compileForHost(mlir::Operation *gpuModule,
                                                    const HostCodeOptions &options = {});

/// Compiles and loads it into this process. Kernels are valid while the result lives.
llvm::Expected<std::unique_ptr<rt::host::LoadedCode>> loadForHost(mlir::Operation *gpuModule,
                                                                  const HostCodeOptions &options = {});

} // namespace attn::host

#endif

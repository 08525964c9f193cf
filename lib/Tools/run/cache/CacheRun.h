//===- CacheRun.h - attn-run of an operation on a cache ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_CACHE_CACHERUN_H
#define ATTN_TOOLS_RUN_CACHE_CACHERUN_H

#include "run/program/Options.h"
#include "run/program/Progress.h"

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/HostDevice.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace attn::run {

/// The parts of a run that exist once the function is known to copy rows.
struct CacheRun {
  const Options &options;
  rt::Device &device;
  rt::HostDevice *host; ///< the device, if it is the host and its code is checked
  const rt::Manifest &manifest;
  rt::ModuleSource source;
  mlir::func::FuncOp problem;
  Progress &progress;
  double compileMs, hostCodeMs, loadMs;
};

/// Makes or reads the tensors, runs, compares with --check, and reports. Returns false if the result is
/// wrong.
rt::Result<bool> runCacheFunction(CacheRun run);

} // namespace attn::run

#endif

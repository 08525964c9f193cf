//===- Flush.h - A GPU's L2 cache without the tensors -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_PROGRAM_FLUSH_H
#define ATTN_TOOLS_RUN_PROGRAM_FLUSH_H

#include "attn_rt/device/Device.h"

namespace attn::run {

/// Empties a GPU's L2 cache between runs, so that it holds no tensors from the copy or from the previous run.
/// It reads four times the size of the cache; writes would be written back during the run. It also keeps the
/// stream busy until the launches are in it, so that their overhead stays out of the time.
class Flush {
public:
  static rt::Result<Flush> create(rt::Device &device);
  rt::Status run();

private:
  explicit Flush(rt::Device &device) : device(device) {}
  rt::Device &device;
  rt::Buffer source, target;
};

} // namespace attn::run

#endif

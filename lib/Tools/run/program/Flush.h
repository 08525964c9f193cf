//===- Flush.h - A GPU's L2 cache without the tensors -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_PROGRAM_FLUSH_H
#define ATTN_TOOLS_RUN_PROGRAM_FLUSH_H

#include "attn_rt/device/Device.h"

namespace attn::run {

/// Empties a GPU's L2 cache between runs: it must not know the tensors from the copy or from the run before.
/// What it does is read four times the cache; if it wrote instead, the run would pay for writing that back.
/// It also keeps the stream busy until the launches are in it, so that their overhead stays out of the time.
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

//===- Flush.cpp - A GPU's L2 cache without the tensors -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Flush.h"

using namespace attn;
using namespace attn::run;

rt::Result<Flush> Flush::create(rt::Device &device) {
  Flush flush(device);
  size_t l2 = device.properties().l2Bytes;
  if (auto made = rt::Buffer::create(device, 4 * l2, "flush"))
    flush.source = std::move(*made);
  else
    return made.error();
  if (auto made = rt::Buffer::create(device, l2 / 16, "flush target"))
    flush.target = std::move(*made);
  else
    return made.error();
  if (rt::Status status = device.fill(flush.source.address(), 0, flush.source.bytes()); !status)
    return status.error();
  return flush;
}

rt::Status Flush::run() {
  size_t step = target.bytes();
  for (size_t offset = 0; step && offset + step <= source.bytes(); offset += step)
    if (rt::Status status = device.copy(target.address(), source.address() + offset, step); !status)
      return status;
  return {};
}

//===- Objects.h - The classes of the extension -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PYTHON_OBJECTS_H
#define ATTN_PYTHON_OBJECTS_H

#include "Binding.h"

#include "attn-c/Cache.h"

namespace attn::python {

struct Device {
  Handle<AttnDevice, attnDeviceDestroy> handle;
};

struct Memory {
  Handle<AttnMemory, attnMemoryDestroy> handle;
};

struct Kernel {
  Handle<AttnKernel, attnKernelDestroy> handle;
  py::object device;
  py::tuple slots;
};

struct Batch {
  Handle<AttnBatch, attnBatchDestroy> handle;
  py::object kernel;
};

/// A list whose length is known only afterwards.
template <typename T, typename Call> std::vector<T> listOf(Call call) {
  std::vector<T> list(16);
  for (;;) {
    size_t count = 0;
    check(call(list.data(), list.size(), &count));
    const bool complete = count <= list.size();
    list.resize(count);
    if (complete)
      return list;
  }
}

/// Of a batch made from a cache: the user's row of each row, or the way back, as i32; else no bytes.
py::object userRows(const Batch &batch, bool back);
/// And the node where each instance begins, by operand.
py::list nodesOf(const Batch &batch);

struct Cache {
  Handle<AttnCache, attnCacheDestroy> handle;
  int32_t pageTokens, draftPage;
  py::list classes;
};

using Movement = Handle<AttnMovement, attnMovementDestroy>;

struct Plan {
  Handle<AttnPlan, attnPlanDestroy> handle;
  py::object kernel;
};

} // namespace attn::python

#endif

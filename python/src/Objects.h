//===- Objects.h - The classes of the extension -----------------*- C++ -*-===//
#ifndef ATTN_PYTHON_OBJECTS_H
#define ATTN_PYTHON_OBJECTS_H

#include "Binding.h"

#include "attn-c/Runtime.h"

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

struct Plan {
  Handle<AttnPlan, attnPlanDestroy> handle;
  py::object kernel;
};

} // namespace attn::python

#endif

//===- Dlpack.h - The parts of DLPack that a reader needs -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// github.com/dmlc/dlpack, version 1.3: tensors, and the table of functions by which a library lets others
// read its tensors without an object around each.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_PYTHON_DLPACK_H
#define ATTN_PYTHON_DLPACK_H

#include <cstdint>

namespace attn::python {

struct DLTensor {
  void *data;
  int32_t deviceType, deviceId;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; ///< in elements; null: dense
  uint64_t offset;          ///< in bytes
};
struct DLManaged {
  DLTensor tensor;
};
struct DLManagedVersioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(DLManagedVersioned *);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int32_t deviceCpu = 1, deviceCuda = 2, deviceCudaHost = 3, deviceCudaManaged = 13;

/// The content of a type's `__dlpack_c_exchange_api__`. Both functions return 0, or else set Python's error.
struct DLExchange {
  uint32_t major, minor;
  void *older;
  void *allocate, *exportTensor, *importTensor;
  /// Reads a tensor that stays alive; the result is valid until Python code runs. May be null.
  int (*read)(void *object, DLTensor *tensor);
  int (*stream)(int32_t deviceType, int32_t deviceId, void **stream);
};

} // namespace attn::python

#endif

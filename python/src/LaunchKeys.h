//===- LaunchKeys.h - Keys of prepared launches -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PYTHON_LAUNCHKEYS_H
#define ATTN_PYTHON_LAUNCHKEYS_H

#include "Binding.h"
#include "Dlpack.h"

#include <array>
#include <cstring>

namespace attn::python {

using Object = py::object;

constexpr Py_ssize_t mostTensors = 24;

inline Object orThrow(PyObject *made) {
  if (!made)
    throw py::error_already_set();
  return py::reinterpret_steal<Object>(made);
}

/// The key of a call.
struct Key {
  static constexpr size_t mostWords = 2048;
  std::array<int64_t, mostWords> words;
  size_t count = 0;
  std::array<PyObject *, 4> constants; ///< their addresses are among the words
  size_t constantCount = 0;

  bool add(int64_t word) {
    if (count == mostWords)
      return false;
    words[count++] = word;
    return true;
  }
  bool add(const int64_t *first, int64_t number) {
    if (number > static_cast<int64_t>(mostWords - count))
      return false;
    std::memcpy(words.data() + count, first, static_cast<size_t>(number) * sizeof *first);
    count += static_cast<size_t>(number);
    return true;
  }
  bool addTensor(const DLTensor &tensor) {
    const int64_t type = tensor.code | tensor.bits << 8 | int64_t{tensor.lanes} << 16;
    const int64_t place = int64_t{tensor.deviceType} << 32 | static_cast<uint32_t>(tensor.deviceId);
    if (!tensor.strides && tensor.rank)
      return false;
    return add(tensor.rank + 1) && add(type) && add(place) && add(tensor.shape, tensor.rank) &&
           add(tensor.strides, tensor.rank);
  }
  /// `isNew`: unknown constants get a number; else they are not found.
  bool addOption(PyObject *option, bool isNew, int depth = 0);
  bool addValue(PyObject *option, bool isNew);
  bool addNumbers(PyObject *buffer);
  /// Adds the numbers of a table, which decide the plan.
  bool addTable(const DLTensor &table);
  uint64_t hash() const {
    uint64_t hash = count;
    for (size_t i = 0; i < count; ++i) {
      hash = (hash ^ static_cast<uint64_t>(words[i])) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

/// A call's tensors, and its key.
struct Asked {
  std::array<DLTensor, mostTensors> tensors;
  Py_ssize_t count = 0;
  uintptr_t stream = 0;
  Key key;

  /// Reads a call. Returns whether launches may be found for it: PyTorch wraps none of its tensors, and this
  /// process made them.
  bool read(PyObject *given, PyObject *options, bool isNew);

private:
  /// Reads a view: an address with Python's facts about the tensor there.
  bool readView(PyObject *view, DLTensor &tensor, bool isNew);
};

/// Reads the memory layout of a tensor of PyTorch's own types. Returns false if it cannot be read, or if its
/// memory holds other values than it has.
bool readTensor(PyObject *object, DLTensor &tensor);
/// Returns PyTorch's empty_like, after a tensor was read.
PyObject *emptyLike();

/// Binds `read_tensors`.
void bindLaunchKeys(py::module_ &module);

} // namespace attn::python

#endif

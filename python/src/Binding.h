//===- Binding.h - What all bindings share ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The extension is a translation of the C API (include/attn-c) and nothing more.
// Calls that take time release the GIL first; statuses become `Failure`.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_PYTHON_BINDING_H
#define ATTN_PYTHON_BINDING_H

#include "attn-c/Common.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace attn::python {

namespace py = pybind11;

/// Makes the class Failure and puts it into the module.
void bindFailure(py::module_ &module);
void bindCompiler(py::module_ &module);
void bindArtifacts(py::module_ &module);
void bindDevices(py::module_ &module);
void bindPlans(py::module_ &module);
void bindCaches(py::module_ &module);
void bindBatches(py::module_ &module);
void bindRowGroups(py::module_ &module);
void bindSteps(py::module_ &module);
void bindRequantizer(py::module_ &module);
void bindAppenders(py::module_ &module);
void bindTableOperation(py::module_ &module);
void bindFormats(py::module_ &module);
void bindView(py::module_ &module);
void bindLaunches(py::module_ &module);

/// Raises Failure(kind, message).
[[noreturn]] void raise(const char *kind, const std::string &message);
/// Raises a Failure for a status that is not Ok; frees the status.
void check(AttnStatus status);

/// Lets Python's signal handlers run, in a call that holds no GIL. Returns whether one has raised an
/// exception, which `run` passes on. Signals arrive in the main thread alone.
bool isInterrupted();

/// Calls the API without the GIL.
template <typename Call> void run(Call call) {
  AttnStatus status{AttnStatusOk, nullptr};
  {
    py::gil_scoped_release release;
    status = call();
  }
  if (PyErr_Occurred()) { // raised by a signal handler
    attnStatusFree(status);
    throw py::error_already_set();
  }
  check(status);
}

/// Owns an object of the API. Destroying it may wait for a launch of another thread, so the GIL is released.
template <typename T, void (*Destroy)(T *)> class Handle {
public:
  Handle() = default;
  explicit Handle(T *object) : object_(object) {}
  Handle(Handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Handle() {
    if (!object_)
      return;
    py::gil_scoped_release release;
    Destroy(object_);
  }
  T *get() const { return object_; }
  T **out() { return &object_; }

private:
  T *object_ = nullptr;
};

using Bytes = Handle<AttnBytes, attnBytesDestroy>;
inline py::bytes bytesOf(const AttnBytes *bytes) { return {attnBytesData(bytes), attnBytesSize(bytes)}; }
/// Converts text from the compiler to a string. It quotes its input, which need not be UTF-8.
py::str textOf(const char *text, size_t size);
inline py::str textOf(const AttnBytes *bytes) { return textOf(attnBytesData(bytes), attnBytesSize(bytes)); }
inline py::str textOf(const char *text) {
  return textOf(text, text ? std::char_traits<char>::length(text) : 0);
}

/// A C-contiguous view of an object's buffer.
class BufferView {
public:
  BufferView(py::handle object, bool writable);
  BufferView(BufferView &&other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  ~BufferView() { PyBuffer_Release(&view_); }
  void *data() const { return view_.buf; }
  size_t size() const { return static_cast<size_t>(view_.len); }
  const Py_buffer &view() const { return view_; }

private:
  Py_buffer view_{};
};

/// Returns the dtype of a buffer's format, or an empty string.
std::string dtypeOfFormat(const char *format, Py_ssize_t itemSize);
/// Returns the number of a dtype such as "bf16"; an error for an unknown dtype names `what`.
AttnDType parseDType(const std::string &name, const std::string &what);
const char *dtypeName(AttnDType dtype);
size_t dtypeSize(AttnDType dtype);

/// Named tensors as the API takes them. Keeps their memory alive.
class Tensors {
public:
  explicit Tensors(const py::dict &tensors);
  const AttnTensor *data() const { return tensors_.data(); }
  size_t size() const { return tensors_.size(); }

private:
  std::deque<std::string> names_;
  std::deque<std::vector<int64_t>> shapes_;
  std::deque<BufferView> views_;
  std::vector<AttnTensor> tensors_;
  void add(const std::string &name, py::handle tensor);
};

/// {name: (dtype, shape, bytes)}
py::dict toPython(const AttnTensors *tensors);

/// Returns an element of a list argument as a number; an error names `what`.
uint64_t unsignedOf(PyObject *object, const char *what);

} // namespace attn::python

#endif

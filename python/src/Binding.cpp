//===- Binding.cpp - What all bindings share ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Binding.h"

#include <pybind11/eval.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace attn::python {

static PyObject *failure = nullptr;

void bindFailure(py::module_ &module) {
  py::exec(R"(
class Failure(Exception):
    """What the compiler or the runtime refused: args == (kind, message)."""

    @property
    def kind(self):
        return self.args[0]

    @property
    def message(self):
        return self.args[1]

    def __str__(self):
        return self.args[1]
)",
           module.attr("__dict__"));
  failure = module.attr("Failure").ptr(); // lives as long as the module, which is never unloaded
  Py_INCREF(failure);
}

void raise(const char *kind, const std::string &message) {
  const py::object error = py::handle(failure)(kind, textOf(message.data(), message.size()));
  PyErr_SetObject(failure, error.ptr());
  throw py::error_already_set();
}

bool isInterrupted() {
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

void check(AttnStatus status) {
  if (status.kind == AttnStatusOk)
    return;
  const char *kinds[] = {"", "input", "device", "memory", "check", "internal"};
  const std::string message = status.message ? status.message : "no memory is left for a message";
  attnStatusFree(status);
  raise(kinds[status.kind], message);
}

py::str textOf(const char *text, size_t size) {
  PyObject *decoded = PyUnicode_DecodeUTF8(text ? text : "", static_cast<Py_ssize_t>(size), "replace");
  if (!decoded)
    throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

BufferView::BufferView(py::handle object, bool writable) {
  const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &view_, flags))
    throw py::error_already_set();
}

namespace {

/// Returns the letters of Python's struct module for a dtype; several for C's integers, whose sizes differ.
const char *formatsOf(AttnDType dtype) {
  switch (dtype) {
  case AttnF16:
    return "e";
  case AttnF32:
    return "f";
  case AttnF64:
    return "d";
  case AttnI8:
    return "b";
  case AttnU8:
    return "Bc";
  case AttnBool:
    return "?";
  case AttnI16:
  case AttnI32:
  case AttnI64:
    return "hilq";
  case AttnU16:
  case AttnU32:
  case AttnU64:
    return "HILQ";
  default:
    return "";
  }
}

const std::vector<AttnDType> &allDTypes() {
  static const std::vector<AttnDType> all = [] {
    std::vector<AttnDType> dtypes;
    while (attnDTypeName(static_cast<AttnDType>(dtypes.size())))
      dtypes.push_back(static_cast<AttnDType>(dtypes.size()));
    return dtypes;
  }();
  return all;
}

} // namespace

const char *dtypeName(AttnDType dtype) { return attnDTypeName(dtype); }
size_t dtypeSize(AttnDType dtype) { return attnDTypeSize(dtype); }

std::string dtypeOfFormat(const char *format, Py_ssize_t itemSize) {
  if (!format)
    return "u8";
  if (*format == '@' || *format == '=' || *format == '<')
    ++format;
  if (!*format || format[1])
    return "";
  for (AttnDType dtype : allDTypes())
    if (static_cast<size_t>(itemSize) == dtypeSize(dtype) && std::strchr(formatsOf(dtype), *format))
      return dtypeName(dtype);
  return "";
}

AttnDType parseDType(const std::string &name, const std::string &what) {
  for (AttnDType dtype : allDTypes())
    if (name == dtypeName(dtype))
      return dtype;
  std::string known;
  for (AttnDType dtype : allDTypes())
    known += (known.empty() ? "" : ", ") + std::string(dtypeName(dtype));
  raise("input", what + ": expected a dtype of " + known + ", got '" + name + "'");
}

uint64_t unsignedOf(PyObject *object, const char *what) {
  const uint64_t value = PyLong_AsUnsignedLongLong(object);
  if (value == std::numeric_limits<uint64_t>::max() && PyErr_Occurred()) {
    const bool isNumber = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (isNumber)
      raise("input", std::string(what) + ": expected numbers from 0 to 2^64 - 1, got " +
                         py::str(py::handle(object)).cast<std::string>().substr(0, 40));
    throw py::type_error(std::string(what) + ": expected ints, got " +
                         py::str(py::type::handle_of(object)).cast<std::string>());
  }
  return value;
}

Tensors::Tensors(const py::dict &tensors) {
  // A list first: a buffer's exporter may run Python code, which may change the dict.
  std::vector<std::pair<py::object, py::object>> items;
  for (auto [name, tensor] : tensors)
    items.emplace_back(py::reinterpret_borrow<py::object>(name), py::reinterpret_borrow<py::object>(tensor));
  for (const auto &[name, tensor] : items) {
    if (!py::isinstance<py::str>(name))
      throw py::type_error("tensors: expected names, got " + py::repr(name).cast<std::string>());
    add(name.cast<std::string>(), tensor);
  }
}

void Tensors::add(const std::string &name, py::handle tensor) {
  AttnTensor result{};
  const std::string what = "tensor '" + name + "'";
  names_.push_back(name);
  std::vector<int64_t> &shape = shapes_.emplace_back();
  if (!py::isinstance<py::tuple>(tensor)) {
    if (!PyObject_CheckBuffer(tensor.ptr()))
      throw py::type_error(what + ": expected a buffer or (dtype, shape, data), got " +
                           py::str(py::type::handle_of(tensor)).cast<std::string>());
    const Py_buffer &view = views_.emplace_back(tensor, false).view();
    const std::string dtype = dtypeOfFormat(view.format, view.itemsize);
    if (dtype.empty())
      raise("input",
            what + ": expected a format with a dtype, got '" + (view.format ? view.format : "") + "'");
    result.dtype = parseDType(dtype, what);
    shape.assign(view.shape, view.shape + view.ndim);
    result.data = view.buf;
  } else {
    const auto parts = py::reinterpret_borrow<py::tuple>(tensor);
    if (parts.size() != 3 || !py::isinstance<py::str>(parts[0]) || !py::isinstance<py::sequence>(parts[1]))
      throw py::type_error(what + ": expected (dtype, shape, data), got " +
                           py::repr(tensor).cast<std::string>().substr(0, 200));
    result.dtype = parseDType(parts[0].cast<std::string>(), what);
    size_t bytes = dtypeSize(result.dtype);
    for (py::handle extent : py::reinterpret_borrow<py::sequence>(parts[1])) {
      const uint64_t value = unsignedOf(extent.ptr(), (what + ": shape").c_str());
      if (value > (uint64_t{1} << 46) || (value && bytes > (uint64_t{1} << 50) / value))
        raise("input", what + ": expected a shape of memory, got " + py::str(parts[1]).cast<std::string>());
      shape.push_back(static_cast<int64_t>(value));
      bytes *= value;
    }
    if (py::isinstance<py::int_>(parts[2])) {
      result.data = reinterpret_cast<const void *>(unsignedOf(parts[2].ptr(), (what + ": address").c_str()));
    } else if (!parts[2].is_none()) {
      const BufferView &view = views_.emplace_back(parts[2], false);
      if (view.size() != bytes)
        raise("input", what + ": expected " + std::to_string(bytes) + " bytes for its shape, got " +
                           std::to_string(view.size()));
      result.data = view.data();
    }
  }
  if (shape.size() > 16)
    raise("input", what + ": expected at most 16 dimensions, got " + std::to_string(shape.size()));
  result.name = names_.back().c_str();
  result.rank = static_cast<int32_t>(shape.size());
  result.shape = shape.data();
  tensors_.push_back(result);
}

py::dict toPython(const AttnTensors *tensors) {
  py::dict result;
  for (size_t i = 0; i < attnTensorsCount(tensors); ++i) {
    const AttnTensor tensor = attnTensorsGet(tensors, i);
    size_t bytes = dtypeSize(tensor.dtype);
    py::tuple shape(tensor.rank);
    for (int32_t d = 0; d < tensor.rank; ++d) {
      shape[static_cast<size_t>(d)] = tensor.shape[d];
      bytes *= static_cast<size_t>(tensor.shape[d]);
    }
    result[tensor.name] = py::make_tuple(dtypeName(tensor.dtype), shape,
                                         py::bytes(static_cast<const char *>(tensor.data), bytes));
  }
  return result;
}

} // namespace attn::python

PYBIND11_MODULE(_attn, module) {
  using namespace attn::python;
  module.doc() = "attn's compiler and runtime: the C API in Python's types. See _attn.pyi.";
  module.def("dtypes", [] {
    py::dict sizes;
    for (AttnDType dtype : allDTypes())
      sizes[dtypeName(dtype)] = dtypeSize(dtype);
    return sizes;
  });
  bindFailure(module);
  bindCompiler(module);
  bindArtifacts(module);
  bindDevices(module);
  bindPlans(module);
  bindCaches(module);
  bindRequantizer(module);
  bindAppenders(module);
  bindTableOperation(module);
  bindFormats(module);
  bindView(module);
  bindLaunches(module);
}

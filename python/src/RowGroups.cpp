//===- RowGroups.cpp - Which rows a step has ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RowGroups.h"

#include <limits>

namespace attn::python {

namespace {

/// Whether it is an int, and no bool or other kind of one, from 0 to `most`.
bool readWhole(PyObject *object, uint64_t most, uint64_t &value) {
  if (!PyLong_CheckExact(object))
    return false;
  value = PyLong_AsUnsignedLongLong(object);
  if (value == std::numeric_limits<uint64_t>::max() && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return value <= most;
}

bool readGroup(PyObject *request, AttnRowGroup &group) {
  uint64_t rows = 1;
  group.draft = false;
  if (PyLong_CheckExact(request)) {
    group.rows = 1;
    return readWhole(request, std::numeric_limits<AttnNode>::max(), group.node);
  }
  if (!PyTuple_CheckExact(request))
    return false;
  const Py_ssize_t size = PyTuple_GET_SIZE(request);
  if (size != 2 && size != 3)
    return false;
  if (size == 3) {
    PyObject *draft = PyTuple_GET_ITEM(request, 2);
    if (!PyBool_Check(draft))
      return false;
    group.draft = draft == Py_True;
  }
  if (!readWhole(PyTuple_GET_ITEM(request, 0), std::numeric_limits<AttnNode>::max(), group.node) ||
      !readWhole(PyTuple_GET_ITEM(request, 1), std::numeric_limits<int32_t>::max(), rows))
    return false;
  group.rows = static_cast<int32_t>(rows);
  return true;
}

} // namespace

RowGroups::RowGroups(const py::list &requests, const py::function &read) {
  groups_.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) { // which may become shorter where `read` runs
    AttnRowGroup group{};
    const py::object request = requests[i];
    if (!readGroup(request.ptr(), group)) {
      const auto [node, rows, draft] = read(i, request).cast<std::tuple<AttnNode, int32_t, bool>>();
      group = {node, rows, draft};
    }
    groups_.push_back(group);
    rows_ += group.rows;
    if (group.draft)
      drafts_.push_back(group.node);
  }
}

void bindRowGroups(py::module_ &module) {
  using namespace py::literals;
  py::class_<RowGroups>(module, "RowGroups")
      .def(py::init<const py::list &, const py::function &>(), "requests"_a, "read"_a)
      .def("__len__", &RowGroups::size)
      .def_property_readonly("rows", &RowGroups::rows)
      .def_property_readonly("drafts", &RowGroups::drafts);
}

} // namespace attn::python

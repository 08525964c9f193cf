//===- RowGroups.cpp - New tokens of a step, and its rows -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RowGroups.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace attn::python {

namespace {

/// Reads an int from 0 to `most`; false for a bool, another subclass, or another value.
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

template <typename T> T readItem(PyObject *item, const char *name, const py::function &read) {
  if (uint64_t value = 0; readWhole(item, std::numeric_limits<T>::max(), value))
    return static_cast<T>(value);
  return read(name, py::reinterpret_borrow<py::object>(item)).template cast<T>();
}

} // namespace

Appends::Appends(const py::list &nodes, const py::object &tokens, const py::function &read) {
  PyObject *each = PyList_Check(tokens.ptr()) ? tokens.ptr() : nullptr;
  const auto all = each ? 0 : tokens.cast<int32_t>();
  if (each && PyList_GET_SIZE(each) != PyList_GET_SIZE(nodes.ptr()))
    raise("input", "tokens: expected one number, or one for each of " + std::to_string(nodes.size()) +
                       " nodes, got " + std::to_string(py::len(tokens)));
  appends_.reserve(nodes.size());
  // `read` may make lists shorter.
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes.ptr()); ++i)
    appends_.emplace_back(readItem<AttnNode>(PyList_GET_ITEM(nodes.ptr(), i), "append", read), all);
  for (Py_ssize_t i = 0; each && i < std::min(PyList_GET_SIZE(each), std::ssize(appends_)); ++i)
    appends_[static_cast<size_t>(i)].tokens = readItem<int32_t>(PyList_GET_ITEM(each, i), "tokens", read);
  for (const AttnAppend &append : appends_)
    tokens_ += append.tokens;
}

RowGroups::RowGroups(const py::list &requests, const py::function &read) {
  groups_.reserve(requests.size());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(requests.ptr()); ++i) { // `read` may make it shorter
    AttnRowGroup &group = groups_.emplace_back();
    PyObject *item = PyList_GET_ITEM(requests.ptr(), i);
    if (!readGroup(item, group)) {
      const auto request = py::reinterpret_borrow<py::object>(item);
      const auto [node, rows, draft] = read(i, request).cast<std::tuple<AttnNode, int32_t, bool>>();
      group = {node, rows, draft};
    }
    rows_ += group.rows;
    if (group.draft)
      drafts_.push_back(group.node);
  }
}

void bindRowGroups(py::module_ &module) {
  using namespace py::literals;
  py::class_<Appends>(module, "Appends")
      .def(py::init<const py::list &, const py::object &, const py::function &>(), "nodes"_a, "tokens"_a,
           "read"_a)
      .def_property_readonly("tokens", &Appends::tokens)
      .def_property_readonly("pairs", [](const Appends &appends) {
        py::list pairs;
        for (size_t i = 0; i < appends.size(); ++i)
          pairs.append(py::make_tuple(appends.data()[i].node, appends.data()[i].tokens));
        return pairs;
      });
  py::class_<RowGroups>(module, "RowGroups")
      .def(py::init<const py::list &, const py::function &>(), "requests"_a, "read"_a)
      .def("__len__", &RowGroups::size)
      .def_property_readonly("rows", &RowGroups::rows)
      .def_property_readonly("drafts", &RowGroups::drafts);
}

} // namespace attn::python

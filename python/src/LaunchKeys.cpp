//===- LaunchKeys.cpp - Keys of prepared launches -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tensors of PyTorch are read in place (Dlpack.h), and become integers: shapes, strides, dtypes, devices. So
// do options, and the contents of tables on the CPU. A call that cannot be expressed so is not found.
//
//===----------------------------------------------------------------------===//
#include "LaunchKeys.h"

#include <atomic>
#include <pthread.h>

namespace attn::python {

namespace {

/// PyTorch's functions and types, once `read_tensors` was called. Never freed.
struct Library {
  PyTypeObject *tensor, *parameter;
  const DLExchange *exchange;
  PyObject *isNegated, *emptyLike, *isGradEnabled;
  PyObject *forwardMode; ///< names of torch.autograd.forward_ad
  PyObject *values;      ///< a tuple of types whose objects never change, and are compared
  PyObject *constants;   ///< types of large objects that never change, and are compared by identity
  PyObject *numbers;     ///< numbers of values
};
const Library *library = nullptr;
PyObject *levelName, *needsGradientName;
std::atomic<int64_t> forks{0};
constexpr Py_ssize_t mostValues = 1024;

/// Returns whether an object's type is exactly one of a tuple.
bool isOneOf(PyObject *object, PyObject *types) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i)
    if (PyTuple_GET_ITEM(types, i) == reinterpret_cast<PyObject *>(Py_TYPE(object)))
      return true;
  return false;
}

bool isTensor(PyObject *object) {
  return Py_TYPE(object) == library->tensor || Py_TYPE(object) == library->parameter;
}

/// Returns whether launches of PyTorch's tensors are found from now on: PyTorch must let them be read.
bool readTensors(const py::type &tensor, const py::type &parameter, const Object &emptyLike,
                 const Object &isGradEnabled, const py::dict &forwardMode, const py::tuple &values,
                 const py::tuple &constants) {
  if (library)
    return true;
  const Object capsule = py::getattr(tensor, "__dlpack_c_exchange_api__", py::none());
  if (!PyCapsule_CheckExact(capsule.ptr()))
    return false;
  const auto *exchange =
      static_cast<const DLExchange *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!exchange)
    throw py::error_already_set();
  if (exchange->major != 1 || !exchange->read || !exchange->stream)
    return false;
  const auto kept = [](const Object &object) { return Object(object).release().ptr(); };
  library = new Library{reinterpret_cast<PyTypeObject *>(kept(tensor)),
                        reinterpret_cast<PyTypeObject *>(kept(parameter)),
                        exchange,
                        kept(py::getattr(tensor, "is_neg")),
                        kept(emptyLike),
                        kept(isGradEnabled),
                        kept(forwardMode),
                        kept(values),
                        kept(constants),
                        py::dict().release().ptr()};
  return true;
}

} // namespace

bool readTensor(PyObject *object, DLTensor &tensor) {
  if (!isTensor(object))
    return false;
  if (library->exchange->read(object, &tensor)) {
    PyErr_Clear(); // a tensor without memory of its own
    return false;
  }
  const Object negated = orThrow(PyObject_CallOneArg(library->isNegated, object));
  return negated.ptr() == Py_False; // a negated tensor has other values than its memory
}

bool Key::addTable(const DLTensor &table) {
  const bool isRead = table.deviceType == deviceCpu && table.code == 0 && table.lanes == 1 &&
                      table.rank == 1 && (table.bits == 32 || table.bits == 64) && table.shape[0] >= 0 &&
                      (table.data || table.shape[0] == 0) && // a stand-in has no data
                      (!table.strides || table.strides[0] == 1 || table.shape[0] < 2);
  if (!isRead || !add(7) || !add(table.bits) || !add(table.shape[0]))
    return false;
  const char *data = static_cast<const char *>(table.data) + table.offset;
  if (table.bits == 64)
    return add(reinterpret_cast<const int64_t *>(data), table.shape[0]);
  for (int64_t i = 0; i < table.shape[0]; ++i)
    if (!add(reinterpret_cast<const int32_t *>(data)[i]))
      return false;
  return true;
}

bool Key::addNumbers(PyObject *buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    PyErr_Clear();
    return false;
  }
  int64_t count = view.ndim == 1 ? view.shape[0] : -1;
  DLTensor table{view.buf, deviceCpu, 0,       view.ndim, 0, static_cast<uint8_t>(8 * view.itemsize),
                 1,        &count,    nullptr, 0};
  const std::string dtype = dtypeOfFormat(view.format, view.itemsize);
  const bool isAdded = (dtype == "i32" || dtype == "i64") && addTable(table);
  PyBuffer_Release(&view);
  return isAdded;
}

bool Key::addOption(PyObject *option, bool isNew, int depth) {
  if (option == Py_None)
    return add(0);
  if (PyBool_Check(option))
    return add(option == Py_True ? 1 : 2);
  if (PyLong_CheckExact(option)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(option, &overflow);
    return !overflow && add(3) && add(value);
  }
  if (PyFloat_CheckExact(option)) {
    const double value = PyFloat_AS_DOUBLE(option);
    int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return add(4) && add(bits);
  }
  if (PyTuple_CheckExact(option) || PyList_CheckExact(option)) {
    if (depth > 2 || !add(PyTuple_CheckExact(option) ? 5 : 6) || !add(PySequence_Fast_GET_SIZE(option)))
      return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(option); ++i) // comparing may run Python's code
      if (!addOption(PySequence_Fast_GET_ITEM(option, i), isNew, depth + 1))
        return false;
    return true;
  }
  if (isTensor(option)) {
    DLTensor table;
    return readTensor(option, table) && addTable(table);
  }
  if (PyObject_CheckBuffer(option) && !PyBytes_CheckExact(option))
    return addNumbers(option);
  if (isOneOf(option, library->values))
    return addValue(option, isNew);
  if (!isOneOf(option, library->constants) || constantCount == constants.size())
    return false;
  constants[constantCount++] = option;
  return add(9) && add(static_cast<int64_t>(reinterpret_cast<intptr_t>(option)));
}

bool Key::addValue(PyObject *option, bool isNew) {
  static int64_t last = 0; // never reused: a forgotten launch is not found again
  PyObject *number = PyDict_GetItemWithError(library->numbers, option);
  if (!number && PyErr_Occurred())
    throw py::error_already_set();
  if (number)
    return add(8) && add(PyLong_AsLongLong(number));
  if (!isNew)
    return false;
  if (PyDict_GET_SIZE(library->numbers) == mostValues)
    PyDict_Clear(library->numbers);
  if (PyDict_SetItem(library->numbers, option, py::int_(++last).ptr()))
    throw py::error_already_set();
  return add(8) && add(last);
}

bool Asked::read(PyObject *given, PyObject *options, bool isNew) {
  if (!library || !PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) > mostTensors)
    return false;
  if (PyObject *level = PyDict_GetItemWithError(library->forwardMode, levelName);
      !level || !PyLong_Check(level) || PyLong_AsLong(level) >= 0)
    return false;
  PyObject *enabled = PyObject_CallNoArgs(library->isGradEnabled);
  if (!enabled)
    throw py::error_already_set();
  Py_DECREF(enabled);
  count = PyTuple_GET_SIZE(given);
  int64_t recorded = 0;
  bool isOnGpu = false;
  if (!key.add(forks.load(std::memory_order_relaxed)) || !key.add(count))
    return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *object = PyTuple_GET_ITEM(given, i);
    DLTensor &tensor = tensors[static_cast<size_t>(i)];
    if (object == Py_None) {
      tensor.data = nullptr;
      tensor.offset = 0;
      if (!key.add(0))
        return false;
      continue;
    }
    if (PyTuple_CheckExact(object)) {
      if (!readView(object, tensor, isNew))
        return false;
      continue;
    }
    if (!readTensor(object, tensor) || !key.addTensor(tensor))
      return false;
    if (enabled == Py_True) {
      const auto needs = py::reinterpret_steal<Object>(PyObject_GetAttr(object, needsGradientName));
      if (!needs)
        throw py::error_already_set();
      recorded |= int64_t{needs.ptr() == Py_True} << i;
    }
    if (tensor.deviceType == deviceCuda && !isOnGpu) {
      isOnGpu = true;
      void *current = nullptr;
      if (library->exchange->stream(deviceCuda, tensor.deviceId, &current))
        throw py::error_already_set();
      stream = reinterpret_cast<uintptr_t>(current);
    }
  }
  return key.add(recorded) && key.add(static_cast<int64_t>(stream)) && key.addOption(options, isNew);
}

bool Asked::readView(PyObject *view, DLTensor &tensor, bool isNew) {
  if (PyTuple_GET_SIZE(view) != 2 || !PyTuple_CheckExact(PyTuple_GET_ITEM(view, 1)))
    return false;
  tensor.data = reinterpret_cast<void *>(unsignedOf(PyTuple_GET_ITEM(view, 0), "address"));
  tensor.offset = 0;
  return key.add(-1) && key.addValue(PyTuple_GET_ITEM(view, 1), isNew);
}

PyObject *emptyLike() { return library->emptyLike; }

void bindLaunchKeys(py::module_ &module) {
  using namespace py::literals;
  levelName = PyUnicode_InternFromString("_current_level");
  needsGradientName = PyUnicode_InternFromString("requires_grad");
  pthread_atfork(nullptr, nullptr, [] { ++forks; });
  module.def("read_tensors", &readTensors, py::kw_only(), "tensor"_a, "parameter"_a, "empty_like"_a,
             "is_grad_enabled"_a, "forward_mode"_a, "values"_a, "constants"_a);
}

} // namespace attn::python

//===- View.cpp - Tensors of other libraries ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// They are read by DLPack, or by the buffer protocol if there is no DLPack. A capsule that is not consumed
// frees its tensor when it dies, so it is kept.
//
//===----------------------------------------------------------------------===//
#include "Binding.h"
#include "Dlpack.h"

#include <cstring>
#include <memory>
#include <optional>

namespace attn::python {

namespace {

struct View {
  py::object keep;
  std::unique_ptr<Py_buffer, void (*)(Py_buffer *)> buffer{nullptr, [](Py_buffer *view) {
                                                             PyBuffer_Release(view);
                                                             delete view;
                                                           }};
  uint64_t address = 0;
  std::string dtype, device = "cpu";
  int32_t index = 0;
  bool readonly = false;
  std::vector<int64_t> shape, strides;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    return count;
  }
  bool contiguous() const {
    int64_t expected = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      if (shape[d] != 1 && strides[d] != expected)
        return elements() == 0;
      expected *= shape[d];
    }
    return true;
  }
};

std::string dtypeOf(const DLTensor &tensor) {
  const auto bits = std::to_string(tensor.bits);
  if (tensor.lanes == 1 && tensor.code == 0 && (tensor.bits & (tensor.bits - 1)) == 0)
    return "i" + bits;
  if (tensor.lanes == 1 && tensor.code == 1 && (tensor.bits & (tensor.bits - 1)) == 0)
    return "u" + bits;
  if (tensor.lanes == 1 && tensor.code == 2 && (tensor.bits == 16 || tensor.bits == 32 || tensor.bits == 64))
    return "f" + bits;
  if (tensor.lanes == 1 && tensor.code == 4 && tensor.bits == 16)
    return "bf16";
  if (tensor.lanes == 1 && tensor.code == 6 && tensor.bits == 8)
    return "bool";
  raise("input", "expected elements of a dtype with a name, got DLPack's code " +
                     std::to_string(tensor.code) + " of " + bits + " bits and " +
                     std::to_string(tensor.lanes) + " lanes");
}

void setStrides(View &view) {
  view.strides.assign(view.shape.size(), 1);
  for (size_t d = view.shape.size(); d-- > 1;)
    view.strides[d - 1] = view.strides[d] * view.shape[d];
}

View viewOfDlpack(const py::object &tensor, std::optional<int64_t> stream) {
  const auto where = tensor.attr("__dlpack_device__")().cast<std::pair<int32_t, int32_t>>();
  const bool onGpu = where.first == deviceCuda || where.first == deviceCudaManaged;
  if (!onGpu && where.first != deviceCpu && where.first != deviceCudaHost)
    raise("input", "expected memory of a CPU or of a CUDA GPU, got DLPack's device type " +
                       std::to_string(where.first));
  using namespace py::literals;
  py::object capsule =
      onGpu && stream ? tensor.attr("__dlpack__")("stream"_a = *stream) : tensor.attr("__dlpack__")();
  const char *name = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
  const DLTensor *read = nullptr;
  View view;
  if (name && !std::strcmp(name, "dltensor")) {
    read = &static_cast<const DLManaged *>(PyCapsule_GetPointer(capsule.ptr(), name))->tensor;
  } else if (name && !std::strcmp(name, "dltensor_versioned")) {
    const auto *managed = static_cast<const DLManagedVersioned *>(PyCapsule_GetPointer(capsule.ptr(), name));
    if (managed->major != 1)
      raise("input", "expected DLPack 1, got " + std::to_string(managed->major));
    view.readonly = managed->flags & 1;
    read = &managed->tensor;
  } else {
    throw py::type_error("expected __dlpack__ to give a capsule of a tensor that nobody has consumed");
  }
  if (read->rank < 0 || read->rank > 16)
    raise("input", "expected at most 16 dimensions, got " + std::to_string(read->rank));
  view.dtype = dtypeOf(*read);
  view.address = reinterpret_cast<uint64_t>(read->data) + read->offset;
  view.device = onGpu ? "cuda" : "cpu";
  view.index = onGpu ? read->deviceId : 0;
  view.shape.assign(read->shape, read->shape + read->rank);
  if (read->strides)
    view.strides.assign(read->strides, read->strides + read->rank);
  else
    setStrides(view);
  view.keep = std::move(capsule);
  return view;
}

View viewOfBuffer(const py::object &tensor) {
  View view;
  view.buffer.reset(new Py_buffer{});
  if (PyObject_GetBuffer(tensor.ptr(), view.buffer.get(), PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    delete view.buffer.release(); // never filled
    throw py::error_already_set();
  }
  const Py_buffer &from = *view.buffer;
  view.dtype = dtypeOfFormat(from.format, from.itemsize);
  if (view.dtype.empty())
    raise("input",
          std::string("expected a format with a dtype, got '") + (from.format ? from.format : "") + "'");
  view.address = reinterpret_cast<uint64_t>(from.buf);
  view.readonly = from.readonly;
  view.shape.assign(from.shape, from.shape + from.ndim);
  for (int d = 0; d < from.ndim; ++d) {
    if (from.strides[d] % from.itemsize)
      raise("input", "expected strides of whole elements, got " + std::to_string(from.strides[d]) + " bytes");
    view.strides.push_back(from.strides[d] / from.itemsize);
  }
  return view;
}

py::tuple tupleOf(const std::vector<int64_t> &values) { return py::tuple(py::cast(values)); }

} // namespace

void bindView(py::module_ &module) {
  using namespace py::literals;
  py::class_<View>(module, "View")
      .def(py::init([](const py::object &tensor, std::optional<int64_t> stream) {
             if (PyObject_CheckBuffer(tensor.ptr()))
               return viewOfBuffer(tensor);
             if (py::hasattr(tensor, "__dlpack__") && py::hasattr(tensor, "__dlpack_device__"))
               return viewOfDlpack(tensor, stream);
             throw py::type_error("expected something with __dlpack__ or the buffer protocol, got " +
                                  py::str(py::type::handle_of(tensor)).cast<std::string>());
           }),
           "tensor"_a, py::kw_only(), "stream"_a = py::none())
      .def_readonly("address", &View::address)
      .def_readonly("dtype", &View::dtype)
      .def_readonly("device", &View::device)
      .def_readonly("index", &View::index)
      .def_readonly("readonly", &View::readonly)
      .def_property_readonly("shape", [](const View &v) { return tupleOf(v.shape); })
      .def_property_readonly("strides", [](const View &v) { return tupleOf(v.strides); })
      .def_property_readonly("nbytes",
                             [](const View &v) {
                               return v.elements() *
                                      static_cast<int64_t>(dtypeSize(parseDType(v.dtype, "view")));
                             })
      .def_property_readonly("contiguous", &View::contiguous);
}

} // namespace attn::python

//===- Devices.cpp - Devices and views in Python --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Unstable.h"

namespace attn::python {

static py::dict reportOf(const Device &device) {
  AttnHostReport report{};
  Bytes text;
  run([&] { return attnDeviceHostReport(device.handle.get(), &report, text.out()); });
  py::dict result;
  result["races"] = report.races;
  result["uninitialized"] = report.uninitialized;
  result["out_of_bounds"] = report.outOfBounds;
  result["misaligned"] = report.misaligned;
  result["sync"] = report.sync;
  result["deadlocks"] = report.deadlocks;
  result["clean"] = report.clean;
  result["text"] = textOf(text.get());
  result["findings"] = result["text"].attr("splitlines")();
  result["bytes_read"] = report.bytesRead;
  result["bytes_written"] = report.bytesWritten;
  result["bytes_partials"] = report.bytesPartials;
  result["sector_efficiency"] = report.sectorEfficiency;
  result["bank_conflicts"] = report.bankConflicts;
  result["flops"] = report.flops;
  result["seconds"] = report.seconds;
  return result;
}

void bindDevices(py::module_ &module) {
  using namespace py::literals;
  module.def("cuda_devices", [] {
    py::gil_scoped_release release;
    return attnCudaDeviceCount();
  });

  const auto info = [](const Device &device) { return attnDeviceInfo(device.handle.get()); };
  py::class_<Device>(module, "Device")
      .def_static(
          "host",
          [](bool checked, uint64_t seed, bool shuffle, uint32_t threads) {
            const AttnHostOptions options{checked, shuffle, threads, seed, false};
            Device device;
            run([&] { return attnDeviceOpenHost(&options, device.handle.out()); });
            check(attnDeviceSetInterrupt(device.handle.get(), &isInterrupted));
            return device;
          },
          py::kw_only(), "checked"_a = false, "seed"_a = 0, "shuffle"_a = false, "threads"_a = 0)
      .def_static(
          "cuda",
          [](int32_t index, const std::string &library) {
            Device device;
            run([&] { return attnDeviceOpenCuda(index, library.c_str(), device.handle.out()); });
            return device;
          },
          "index"_a = 0, py::kw_only(), "library"_a = "libcuda.so.1")
      .def_property_readonly("kind", [info](const Device &d) { return info(d).kind; })
      .def_property_readonly("index", [info](const Device &d) { return info(d).index; })
      .def_property_readonly("name", [info](const Device &d) { return textOf(info(d).name); })
      .def_property_readonly("target", [info](const Device &d) { return info(d).target; })
      .def_property_readonly(
          "form", [info](const Device &d) { return std::string(info(d).kind) == "host" ? "host" : "ptx"; })
      .def_property_readonly("properties",
                             [info](const Device &d) {
                               const AttnDeviceInfo i = info(d);
                               py::dict result;
                               result["multiprocessors"] = i.multiprocessors;
                               result["shared_bytes"] = i.sharedBytes;
                               result["l2_bytes"] = i.l2Bytes;
                               result["memory_bytes"] = i.memoryBytes;
                               result["compute_capability"] = i.computeCapability;
                               result["driver_version"] = i.driverVersion;
                               return result;
                             })
      .def(
          "synchronize",
          [](const Device &d, uintptr_t stream) {
            run([&] { return attnDeviceSynchronize(d.handle.get(), stream); });
          },
          "stream"_a = 0)
      .def(
          "capture",
          [](const Device &d, uintptr_t stream) {
            uint64_t found = 0;
            run([&] { return attnDeviceCapture(d.handle.get(), stream, &found); });
            return found;
          },
          "stream"_a = 0)
      .def(
          "allocate",
          [](const Device &d, size_t nbytes, const std::string &label) {
            Memory memory;
            run([&] { return attnMemoryCreate(d.handle.get(), nbytes, label.c_str(), memory.handle.out()); });
            return memory;
          },
          "nbytes"_a, "label"_a = "memory")
      .def("report", &reportOf)
      .def(
          "work",
          [](const Device &d, bool reset) {
            AttnHostWork work{};
            run([&] { return attnDeviceHostWork(d.handle.get(), &work, reset); });
            py::dict result;
            result["launches"] = work.launches;
            result["copies"] = work.copies;
            result["allocations"] = work.allocations;
            result["shapes"] = work.shapes;
            result["arguments"] = work.arguments;
            return result;
          },
          py::kw_only(), "reset"_a = false)
      .def("reset_report",
           [](const Device &d) { run([&] { return attnDeviceResetReport(d.handle.get()); }); });

  py::class_<Memory>(module, "Memory")
      .def_property_readonly("address", [](const Memory &m) { return attnMemoryAddress(m.handle.get()); })
      .def_property_readonly("nbytes", [](const Memory &m) { return attnMemorySize(m.handle.get()); })
      .def(
          "copy_in",
          [](const Memory &m, py::buffer data, size_t offset) {
            const BufferView view(data, false);
            run([&] { return attnMemoryCopyIn(m.handle.get(), offset, view.data(), view.size()); });
          },
          "data"_a, "offset"_a = 0)
      .def(
          "copy_out",
          [](const Memory &m, py::buffer data, size_t offset) {
            const BufferView view(data, true);
            run([&] { return attnMemoryCopyOut(m.handle.get(), offset, view.data(), view.size()); });
          },
          "data"_a, "offset"_a = 0)
      .def(
          "fill",
          [](const Memory &m, uint8_t byte) { run([&] { return attnMemoryFill(m.handle.get(), byte); }); },
          "byte"_a)
      .def("poison", [](const Memory &m) { run([&] { return attnMemoryPoison(m.handle.get()); }); });
}

} // namespace attn::python

//===- TableOperations.cpp - Pages of many lists --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Pages.h"

namespace attn::python {

namespace {

using TableOperation = Handle<AttnTableOperation, attnTableOperationDestroy>;

} // namespace

void bindTableOperation(py::module_ &module) {
  using namespace py::literals;
  py::class_<TableOperation>(module, "TableOperation")
      .def(py::init([](const Kernel &kernel, const std::vector<int64_t> &sizes) {
             TableOperation made;
             run([&] {
               return attnTableOperationCreate(kernel.handle.get(), sizes.data(), sizes.size(), made.out());
             });
             return made;
           }),
           "kernel"_a, "sizes"_a)
      .def(
          "launch",
          [](const TableOperation &operation, const std::vector<uint64_t> &addresses, uintptr_t stream) {
            run([&] {
              return attnTableOperationLaunch(operation.get(), addresses.data(), addresses.size(), stream);
            });
          },
          "addresses"_a, "stream"_a = 0);
}

} // namespace attn::python

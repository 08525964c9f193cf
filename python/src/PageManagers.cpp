//===- PageManagers.cpp - Pages of many lists -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Pages.h"

namespace attn::python {

namespace {

using PageManager = Handle<AttnPageManager, attnPageManagerDestroy>;

} // namespace

void bindPageManager(py::module_ &module) {
  using namespace py::literals;
  py::class_<PageManager>(module, "PageManager")
      .def(py::init([](const Kernel &kernel, int64_t lists, int64_t columns, int64_t pages) {
             PageManager made;
             run([&] {
               return attnPageManagerCreate(kernel.handle.get(), lists, columns, pages, made.out());
             });
             return made;
           }),
           "manage"_a, "lists"_a, "columns"_a, "pages"_a)
      .def(
          "launch",
          [](const PageManager &manager, uint64_t table, uint64_t counts, uint64_t tokens, uint64_t free,
             uint64_t span, uint64_t status, uintptr_t stream) {
            const AttnPageTables tables{table, counts, tokens, free, span, status};
            run([&] { return attnPageManagerLaunch(manager.get(), &tables, stream); });
          },
          "table"_a, "counts"_a, "tokens"_a, "free"_a, "span"_a, "status"_a, "stream"_a = 0);
}

} // namespace attn::python

//===- Appenders.cpp - New tokens, normalized and rotated -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Cache.h"

namespace attn::python {

namespace {

using Appender = Handle<AttnAppender, attnAppenderDestroy>;

AttnStridedPages stridedOf(const py::dict &given) {
  AttnStridedPages pages{pagesOf(given), {}, {}, {}, {}};
  const auto read = [&](const std::string &name, int64_t &into) {
    if (given.contains(name.c_str()))
      into = given[name.c_str()].cast<int64_t>();
  };
  for (auto [name, strides] : {std::pair("k", &pages.k), std::pair("v", &pages.v),
                               std::pair("k_meta", &pages.kMeta), std::pair("v_meta", &pages.vMeta)}) {
    const std::string prefix = name;
    read(prefix + "_page_stride", strides->betweenPages);
    read(prefix + "_token_stride", strides->betweenTokens);
    read(prefix + "_head_stride", strides->betweenHeads);
  }
  return pages;
}

AttnPrologue prologueOf(const py::dict &given) {
  AttnPrologue prologue{};
  const auto read = [&](const char *name, auto &into) {
    if (given.contains(name))
      into = given[name].cast<std::decay_t<decltype(into)>>();
  };
  read("q", prologue.q), read("rotated", prologue.rotated);
  read("k_norm", prologue.kNorm), read("q_norm", prologue.qNorm);
  read("cos", prologue.cos), read("sin", prologue.sin), read("table_rows", prologue.tableRows);
  read("positions", prologue.positions);
  read("k_row_bytes", prologue.kRowBytes), read("v_row_bytes", prologue.vRowBytes);
  read("q_row_bytes", prologue.qRowBytes), read("rotated_row_bytes", prologue.rotatedRowBytes);
  read("q_head_bytes", prologue.qHeadBytes), read("rotated_head_bytes", prologue.rotatedHeadBytes);
  return prologue;
}

} // namespace

void bindAppenders(py::module_ &module) {
  using namespace py::literals;
  py::class_<Appender>(module, "Appender")
      .def(py::init([](const Kernel &kernel) {
             Appender made;
             run([&] { return attnAppenderCreate(kernel.handle.get(), made.out()); });
             return made;
           }),
           "append"_a)
      .def(
          "reserve",
          [](const Appender &appender, int64_t rows) {
            run([&] { return attnAppenderReserve(appender.get(), rows); });
          },
          "rows"_a)
      .def(
          "launch",
          [](const Appender &appender, const py::dict &pages, const py::dict &prologue, uint64_t k,
             uint64_t v, int64_t rows, uint64_t list, size_t listBytes, uintptr_t stream) {
            const AttnStridedPages written = stridedOf(pages);
            const AttnPrologue given = prologueOf(prologue);
            const AttnDeviceRows read{k, v, rows, 0, 0, 0, 1};
            run([&] {
              return attnAppenderLaunch(appender.get(), &written, &read, &given, list, listBytes, stream);
            });
          },
          "pages"_a, "prologue"_a, py::kw_only(), "k"_a, "v"_a, "rows"_a, "list"_a, "list_nbytes"_a,
          "stream"_a = 0);
}

} // namespace attn::python

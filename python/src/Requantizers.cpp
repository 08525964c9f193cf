//===- Requantizers.cpp - Stored values in fewer bits ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Cache.h"

namespace attn::python {

namespace {

using Requantizer = Handle<AttnRequantizer, attnRequantizerDestroy>;

} // namespace

AttnDevicePages pagesOf(const py::dict &given) {
  AttnDevicePages pages{};
  const auto read = [&](const char *name, auto &into) {
    if (given.contains(name))
      into = given[name].cast<std::decay_t<decltype(into)>>();
  };
  pages.pageTokens = pages.layers = 1;
  read("pages", pages.pages), read("page_tokens", pages.pageTokens), read("layers", pages.layers);
  read("k", pages.k), read("v", pages.v), read("k_meta", pages.kMeta), read("v_meta", pages.vMeta);
  read("k_layer_bytes", pages.kLayerBytes), read("v_layer_bytes", pages.vLayerBytes);
  read("k_meta_layer_bytes", pages.kMetaLayerBytes), read("v_meta_layer_bytes", pages.vMetaLayerBytes);
  read("k_scale", pages.kScale), read("v_scale", pages.vScale);
  read("k_scale_layer_bytes", pages.kScaleLayerBytes), read("v_scale_layer_bytes", pages.vScaleLayerBytes);
  read("status", pages.status), read("page_bytes", pages.pageBytes);
  return pages;
}

void bindRequantizer(py::module_ &module) {
  using namespace py::literals;
  py::class_<Requantizer>(module, "Requantizer")
      .def(py::init([](const Kernel &kernel) {
             Requantizer made;
             run([&] { return attnRequantizerCreate(kernel.handle.get(), made.out()); });
             return made;
           }),
           "requantize"_a)
      .def(
          "reserve",
          [](const Requantizer &requantizer, int64_t slots, int32_t layers) {
            run([&] { return attnRequantizerReserve(requantizer.get(), slots, layers); });
          },
          "slots"_a, "layers"_a)
      .def(
          "execute",
          [](const Requantizer &requantizer, const py::dict &source, const py::dict &target,
             const std::vector<int32_t> &from, const std::vector<int32_t> &to, uintptr_t stream) {
            if (from.size() != to.size())
              raise("input", "requantizer: expected as many slots to write as to read, " +
                                 std::to_string(from.size()) + ", got " + std::to_string(to.size()));
            const AttnDevicePages read = pagesOf(source), written = pagesOf(target);
            run([&] {
              return attnRequantizerExecute(requantizer.get(), &read, &written, from.data(), to.data(),
                                            from.size(), stream);
            });
          },
          "source"_a, "target"_a, "from_slots"_a, "to_slots"_a, "stream"_a = 0)
      .def(
          "launch",
          [](const Requantizer &requantizer, const py::dict &source, const py::dict &target, uint64_t list,
             size_t listBytes, uintptr_t stream) {
            const AttnDevicePages read = pagesOf(source), written = pagesOf(target);
            run([&] {
              return attnRequantizerLaunch(requantizer.get(), &read, &written, list, listBytes, stream);
            });
          },
          "source"_a, "target"_a, "list"_a, "list_nbytes"_a, "stream"_a = 0);
}

} // namespace attn::python

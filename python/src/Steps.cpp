//===- Steps.cpp - Launches of steps over a cache, in Python --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"
#include "RowGroups.h"

namespace attn::python {

namespace {

using CacheKernels = Handle<AttnCacheKernels, attnCacheKernelsDestroy>;

void bindCacheKernels(py::module_ &module) {
  using namespace py::literals;
  py::class_<CacheKernels>(module, "CacheKernels")
      .def(py::init([](const Kernel &append, const Kernel &move) {
             CacheKernels kernels;
             run([&] {
               return attnCacheKernelsCreate(append.handle.get(), move.handle.get(), kernels.out());
             });
             return kernels;
           }),
           "append"_a, "move"_a)
      .def(
          "reserve",
          [](const CacheKernels &kernels, const py::dict &pages, int32_t headClass, int64_t newTokens,
             int64_t copiedTokens) {
            AttnDevicePages given = pagesOf(pages);
            given.headClass = headClass;
            run([&] { return attnCacheKernelsReserve(kernels.get(), &given, newTokens, copiedTokens); });
          },
          "pages"_a, py::kw_only(), "head_class"_a = 0, "new_tokens"_a, "copied_tokens"_a)
      .def(
          "execute",
          [](const CacheKernels &kernels, const Movement &movement, uint64_t k, uint64_t v, int64_t rows,
             int64_t kLayer, int64_t vLayer, int32_t first, int32_t layers, uintptr_t stream) {
            const AttnDeviceRows given{k, v, rows, kLayer, vLayer, first, layers};
            run([&] { return attnCacheKernelsExecute(kernels.get(), movement.get(), &given, stream); });
          },
          "movement"_a, py::kw_only(), "k"_a = 0, "v"_a = 0, "rows"_a = 0, "k_layer_bytes"_a = 0,
          "v_layer_bytes"_a = 0, "first_layer"_a = 0, "layers"_a = 0, "stream"_a = 0)
      .def(
          "append",
          [](const CacheKernels &kernels, uint64_t list, size_t listBytes, uint64_t k, uint64_t v,
             int64_t rows, int32_t layer, uintptr_t stream) {
            const AttnDeviceRows given{k, v, rows, 0, 0, layer, 1};
            run([&] { return attnCacheKernelsAppend(kernels.get(), list, listBytes, &given, stream); });
          },
          "list"_a, "list_nbytes"_a, py::kw_only(), "k"_a, "v"_a = 0, "rows"_a, "layer"_a, "stream"_a = 0)
      .def(
          "move",
          [](const CacheKernels &kernels, uint64_t list, size_t listBytes, uintptr_t stream) {
            run([&] { return attnCacheKernelsMove(kernels.get(), list, listBytes, stream); });
          },
          "list"_a, "list_nbytes"_a, "stream"_a = 0);
}

using StepTables = Handle<AttnStepTables, attnStepTablesDestroy>;

StepTables makeTables(const Kernel &kernel, const Cache &cache, int32_t sequences, int32_t rows,
                      int32_t newTokens,
                      const std::vector<std::tuple<int32_t, bool, bool, int32_t>> &operands) {
  std::vector<AttnStepOperand> given;
  for (const auto &[headClass, nodes, drafts, pages] : operands)
    given.push_back({{headClass, nodes, drafts}, pages});
  const AttnStepOperand none{};
  StepTables tables;
  runOn(cache, [&](AttnCache *mine) {
    return attnStepTablesCreate(kernel.handle.get(), mine, sequences, rows, newTokens,
                                given.empty() ? &none : given.data(), given.size(), tables.out());
  });
  return tables;
}

/// {name: (first word, words)}
py::dict placesOf(const StepTables &tables) {
  py::dict places;
  for (size_t i = 0; const char *name = attnStepTablesName(tables.get(), i); ++i) {
    size_t first = 0, words = 0;
    check(attnStepTablesPlace(tables.get(), i, &first, &words));
    places[name] = py::make_tuple(first, words);
  }
  return places;
}

void appendTokens(const StepTables &tables, const Cache &cache, const Appends &append) {
  runOn(cache, [&](AttnCache *mine) {
    return attnStepTablesAppend(tables.get(), mine, append.data(), append.size());
  });
}

/// Returns the number of rows of the step.
int64_t updateTables(const StepTables &tables, const Cache &cache, const RowGroups &groups, uint64_t address,
                     size_t nbytes, uintptr_t stream) {
  runOn(cache, [&](AttnCache *mine) {
    return attnStepTablesUpdate(tables.get(), mine, groups.data(), groups.size(), address, nbytes, stream);
  });
  return attnStepTablesRows(tables.get());
}

} // namespace

void bindSteps(py::module_ &module) {
  using namespace py::literals;
  bindCacheKernels(module);
  py::class_<StepTables>(module, "StepTables")
      .def(py::init(&makeTables), "kernel"_a, "cache"_a, py::kw_only(), "sequences"_a, "rows"_a,
           "new_tokens"_a, "operands"_a)
      .def_property_readonly("words", [](const StepTables &t) { return attnStepTablesWords(t.get()); })
      .def_property_readonly("places", &placesOf)
      .def(
          "take",
          [](const StepTables &tables, const Cache &cache, const Movement &movement) {
            runOn(cache,
                  [&](AttnCache *mine) { return attnStepTablesTake(tables.get(), mine, movement.get()); });
          },
          "cache"_a, "movement"_a)
      .def("check", [](const StepTables &tables) { check(attnStepTablesCheck(tables.get())); })
      .def("append", &appendTokens, "cache"_a, "append"_a)
      .def("update", &updateTables, "cache"_a, "groups"_a, "address"_a, "nbytes"_a, "stream"_a = 0);
}

} // namespace attn::python

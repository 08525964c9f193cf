//===- Batches.cpp - Batches of cached sequences in Python ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"
#include "RowGroups.h"

namespace attn::python {

namespace {

struct Builder {
  Handle<AttnBatchBuilder, attnBatchBuilderDestroy> handle;
  py::object kernel;
};

Builder makeBuilder(const py::object &kernel, const std::vector<std::tuple<int32_t, bool, bool>> &operands,
                    int32_t maxPages) {
  const auto &of = kernel.cast<const Kernel &>();
  std::vector<AttnCacheOperand> given;
  for (const auto &[headClass, nodes, drafts] : operands)
    given.push_back({headClass, nodes, drafts});
  const AttnCacheOperand none{};
  Builder builder;
  check(attnBatchBuilderCreate(of.handle.get(), given.empty() ? &none : given.data(), given.size(), maxPages,
                               builder.handle.out()));
  builder.kernel = kernel;
  return builder;
}

Batch buildBatch(const Builder &builder, const Cache &cache, const RowGroups &groups,
                 const std::vector<int32_t> &classes, const std::vector<int32_t> &ends) {
  Batch batch;
  runOn(cache, [&](AttnCache *mine) {
    return attnBatchBuilderBuild(builder.handle.get(), mine, groups.data(), groups.size(), classes.data(),
                                 classes.size(), ends.data(), ends.size(), batch.handle.out());
  });
  batch.kernel = builder.kernel;
  return batch;
}

} // namespace

py::object userRows(const Batch &batch, bool back) {
  const auto rows = static_cast<size_t>(attnBatchRows(batch.handle.get()));
  std::vector<int32_t> user(rows), inBatch(rows);
  const AttnStatus status = attnBatchRowMaps(batch.handle.get(), user.data(), inBatch.data(), rows);
  if (status.kind != AttnStatusOk) { // made from tensors: no maps
    attnStatusFree(status);
    return py::bytes();
  }
  return py::bytes(reinterpret_cast<const char *>((back ? inBatch : user).data()), rows * sizeof(int32_t));
}

py::list nodesOf(const Batch &batch) {
  py::list operands;
  size_t count = 0;
  for (size_t operand = 0;; ++operand) {
    const AttnStatus status = attnBatchNodes(batch.handle.get(), operand, nullptr, 0, &count);
    attnStatusFree(status);
    if (status.kind != AttnStatusOk)
      return operands;
    operands.append(py::cast(listOf<AttnNode>([&](auto *out, size_t room, size_t *n) {
      return attnBatchNodes(batch.handle.get(), operand, out, room, n);
    })));
  }
}

void bindBatches(py::module_ &module) {
  using namespace py::literals;
  py::class_<Builder>(module, "BatchBuilder")
      .def(py::init(&makeBuilder), "kernel"_a, py::kw_only(),
           "operands"_a = std::vector<std::tuple<int32_t, bool, bool>>{{0, true, true}}, "max_pages"_a = 0)
      .def("build", &buildBatch, "cache"_a, "groups"_a, py::kw_only(), "classes"_a = std::vector<int32_t>(),
           "ends"_a = std::vector<int32_t>())
      .def(
          "update",
          [](const Builder &builder, const Cache &cache, const Batch &batch) {
            bool updated = false;
            runOn(cache, [&](AttnCache *mine) {
              return attnBatchBuilderUpdate(builder.handle.get(), mine, batch.handle.get(), &updated);
            });
            return updated;
          },
          "cache"_a, "batch"_a);
}

} // namespace attn::python

//===- Plans.cpp - Kernels and plans in Python ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"

#include "attn-c/Unstable.h"

#include <algorithm>
#include <array>
#include <optional>

namespace attn::python {

namespace {

Kernel loadKernel(py::buffer artifact, const py::object &device, const std::string &name,
                  const std::string &entry) {
  const auto &on = device.cast<const Device &>();
  const BufferView bytes(artifact, false);
  Kernel kernel;
  run([&] {
    return attnKernelLoad(on.handle.get(), bytes.data(), bytes.size(), name.c_str(),
                          entry.empty() ? nullptr : entry.c_str(), kernel.handle.out());
  });
  kernel.device = device;
  kernel.slots = py::tuple(attnKernelSlotCount(kernel.handle.get()));
  for (size_t i = 0; i < kernel.slots.size(); ++i)
    kernel.slots[i] = attnKernelSlot(kernel.handle.get(), i);
  return kernel;
}

AttnPlanLimits limitsOf(const py::object &given) {
  AttnPlanLimits limits{};
  if (given.is_none())
    return limits;
  for (auto [key, value] : py::dict(given)) {
    const auto name = py::str(key).cast<std::string>();
    const std::pair<const char *, int64_t *> fields[] = {{"rows", &limits.rows},
                                                         {"groups", &limits.groups},
                                                         {"instances_per_row", &limits.instancesPerRow},
                                                         {"shared_instances", &limits.sharedInstances},
                                                         {"shared_rows", &limits.sharedRows},
                                                         {"tokens_per_row", &limits.tokensPerRow},
                                                         {"instances", &limits.instances},
                                                         {"pages", &limits.pages}};
    int64_t *field = nullptr;
    for (const auto &[known, place] : fields)
      if (name == known)
        field = place;
    if (!field)
      raise("input", "limits: expected rows, groups, instances_per_row, shared_instances, shared_rows, "
                     "tokens_per_row, instances or pages, got '" +
                         name + "'");
    *field = static_cast<int64_t>(
        std::min<uint64_t>(unsignedOf(value.ptr(), ("limits['" + name + "']").c_str()), INT64_MAX));
  }
  return limits;
}

Plan makePlan(const py::object &kernel, const Batch &batch, const std::string &strategy, int32_t blocks,
              int32_t fixedSplit, int32_t index, const py::object &limits, uintptr_t stream) {
  auto &from = kernel.cast<const Kernel &>();
  if (index < -1 || index == INT32_MAX)
    raise("input", "kernel: expected -1 or the index of an attend kernel, got " + std::to_string(index));
  const AttnPlanOptions options{strategy.c_str(), blocks, fixedSplit, index + 1, limitsOf(limits)};
  Plan plan;
  run([&] {
    return attnPlanCreate(from.handle.get(), batch.handle.get(), &options, stream, plan.handle.out());
  });
  plan.kernel = kernel;
  return plan;
}

/// Calls `use` with as many addresses as sizes. It allocates no containers, and checks only the counts.
template <typename Use> void withAddresses(const py::object &addresses, const py::object &sizes, Use use) {
  constexpr Py_ssize_t most = 64;
  std::array<uint64_t, most> address;
  std::array<size_t, most> bytes;
  Py_ssize_t counts[2];
  const std::pair<const py::object &, const char *> given[] = {{addresses, "addresses"}, {sizes, "nbytes"}};
  for (int which = 0; which < 2; ++which) {
    const auto list = py::reinterpret_steal<py::object>(
        PySequence_Fast(given[which].first.ptr(), "expected a sequence of addresses and one of sizes"));
    if (!list)
      throw py::error_already_set();
    counts[which] = PySequence_Fast_GET_SIZE(list.ptr());
    if (counts[which] > most)
      raise("input", std::string(given[which].second) + ": expected one for each slot, got " +
                         std::to_string(counts[which]));
    for (Py_ssize_t i = 0; i < counts[which]; ++i) {
      const uint64_t value = unsignedOf(PySequence_Fast_GET_ITEM(list.ptr(), i), given[which].second);
      (which ? bytes[static_cast<size_t>(i)] : address[static_cast<size_t>(i)]) = value;
    }
  }
  if (counts[0] != counts[1])
    raise("input", "expected as many sizes as addresses, got " + std::to_string(counts[1]) + " and " +
                       std::to_string(counts[0]));
  run([&] { return use(address.data(), bytes.data(), static_cast<size_t>(counts[0])); });
}

void runPlan(const Plan &plan, const py::object &addresses, const py::object &sizes, uintptr_t stream,
             const py::object &strides) {
  if (strides.is_none()) {
    withAddresses(addresses, sizes, [&](const uint64_t *address, const size_t *bytes, size_t count) {
      return attnPlanRun(plan.handle.get(), address, bytes, count, stream);
    });
    return;
  }
  auto lists = strides.cast<std::vector<std::optional<std::vector<int64_t>>>>();
  if (lists.size() != py::len(addresses))
    raise("input", "strides: expected a tuple or None for each slot, got " + std::to_string(lists.size()));
  std::vector<const int64_t *> lies(lists.size());
  for (size_t i = 0; i < lists.size(); ++i) {
    if (!lists[i])
      continue;
    lists[i]->resize(std::max<size_t>(lists[i]->size(), 8)); // missing strides are invalid, and refused
    lies[i] = lists[i]->data();
  }
  withAddresses(addresses, sizes, [&](const uint64_t *address, const size_t *bytes, size_t count) {
    return attnPlanRunStrided(plan.handle.get(), address, bytes, lies.data(), count, stream);
  });
}

void bindPlan(const Plan &plan, const py::object &addresses, const py::object &sizes) {
  withAddresses(addresses, sizes, [&](const uint64_t *address, const size_t *bytes, size_t count) {
    return attnPlanBind(plan.handle.get(), address, bytes, count);
  });
}

py::dict tablesOf(const Plan &plan) {
  py::dict bytes;
  for (size_t i = 0; const char *name = attnPlanTable(plan.handle.get(), i); ++i)
    bytes[name] = attnPlanTableBytes(plan.handle.get(), i);
  return bytes;
}

py::dict statsOf(const Plan &plan) {
  const AttnPlanStats stats = attnPlanStats(plan.handle.get());
  py::dict result;
  result["kv_bytes"] = stats.kvBytes;
  result["q_bytes"] = stats.qBytes;
  result["partial_bytes"] = stats.partialBytes;
  result["metadata_bytes"] = stats.metadataBytes;
  result["output_bytes"] = stats.outputBytes;
  result["tasks"] = stats.tasks;
  result["cuts"] = stats.cuts;
  result["merge_rows"] = stats.mergeRows;
  result["blocks"] = stats.blocks;
  result["used_blocks"] = stats.usedBlocks;
  result["kernel"] = stats.kernel;
  result["extended"] = stats.extended;
  result["balance"] = stats.balance;
  result["flops"] = stats.flops;
  result["seconds"] = stats.seconds;
  return result;
}

} // namespace

void bindPlans(py::module_ &module) {
  using namespace py::literals;
  py::class_<Batch>(module, "Batch")
      .def_property_readonly("rows", [](const Batch &b) { return attnBatchRows(b.handle.get()); })
      .def_property_readonly("sequences", [](const Batch &b) { return attnBatchSequences(b.handle.get()); })
      .def_property_readonly("user_row", [](const Batch &b) { return userRows(b, false); })
      .def_property_readonly("batch_row", [](const Batch &b) { return userRows(b, true); })
      .def_property_readonly("nodes", &nodesOf)
      .def_property_readonly(
          "floor",
          [](const Batch &b) {
            const auto &kernel = b.kernel.cast<const Kernel &>();
            AttnFloor floor{};
            run([&] { return attnBatchFloor(kernel.handle.get(), b.handle.get(), &floor); });
            py::dict result;
            result["query_bytes"] = floor.queryBytes;
            result["kv_bytes"] = floor.kvBytes;
            result["table_bytes"] = floor.tableBytes;
            result["result_bytes"] = floor.resultBytes;
            result["flops_useful"] = floor.usefulFlops;
            return result;
          })
      .def_property_readonly("tables", [](const Batch &b) {
        const auto &kernel = b.kernel.cast<const Kernel &>();
        Handle<AttnTensors, attnTensorsDestroy> tables;
        run([&] { return attnBatchTables(kernel.handle.get(), b.handle.get(), tables.out()); });
        return toPython(tables.get());
      });

  py::class_<Kernel>(module, "Kernel")
      .def(py::init(&loadKernel), "artifact"_a, "device"_a, "name"_a = "kernel", py::kw_only(),
           "entry"_a = "")
      .def_readonly("device", &Kernel::device)
      .def_readonly("slots", &Kernel::slots)
      .def_property_readonly("entry", [](const Kernel &k) { return textOf(attnKernelEntry(k.handle.get())); })
      .def_property_readonly("manifest",
                             [](const Kernel &k) { return textOf(attnKernelManifest(k.handle.get())); })
      .def_property_readonly("checked", [](const Kernel &k) { return attnKernelIsChecked(k.handle.get()); })
      .def_property_readonly("is_cache_operation",
                             [](const Kernel &k) { return attnKernelIsCacheOperation(k.handle.get()); })
      .def(
          "batch",
          [](const py::object &self, const py::dict &tensors, const std::vector<int32_t> &ends) {
            const auto &kernel = self.cast<const Kernel &>();
            const Tensors given(tensors);
            Batch batch;
            run([&] {
              return attnBatchCreate(kernel.handle.get(), given.data(), given.size(), ends.data(),
                                     ends.size(), batch.handle.out());
            });
            batch.kernel = self;
            return batch;
          },
          "tensors"_a, py::kw_only(), "ends"_a = std::vector<int32_t>())
      .def(
          "ordinal_heads",
          [](const Kernel &k, const std::vector<int32_t> &classes) {
            std::vector<int32_t> heads(classes.size());
            check(attnKernelOrdinalHeads(k.handle.get(), classes.data(), classes.size(), heads.data()));
            return heads;
          },
          "classes"_a)
      .def("plan", &makePlan, "batch"_a, py::kw_only(), "strategy"_a = "flatten", "blocks"_a = 0,
           "fixed_split"_a = 0, "kernel"_a = -1, "limits"_a = py::none(), "stream"_a = 0);

  py::class_<Plan>(module, "Plan")
      .def_readonly("kernel", &Plan::kernel)
      .def_property_readonly("slots", [](const Plan &p) { return p.kernel.cast<const Kernel &>().slots; })
      .def_property_readonly("nbytes",
                             [](const Plan &p) {
                               const auto &kernel = p.kernel.cast<const Kernel &>();
                               py::tuple bytes(kernel.slots.size());
                               for (size_t i = 0; i < bytes.size(); ++i)
                                 bytes[i] = attnPlanSlotBytes(p.handle.get(), i);
                               return bytes;
                             })
      .def_property_readonly("rows", [](const Plan &p) { return attnPlanRows(p.handle.get()); })
      .def(
          "update",
          [](const Plan &p, const Batch &batch, uintptr_t stream) {
            bool extended = false;
            run([&] { return attnPlanUpdate(p.handle.get(), batch.handle.get(), stream, &extended); });
            return extended;
          },
          "batch"_a, py::kw_only(), "stream"_a = 0)
      .def(
          "grow",
          [](const Plan &p, int32_t tokens, int64_t apart, uintptr_t stream) {
            bool extended = false;
            run([&] { return attnPlanGrow(p.handle.get(), tokens, apart, stream, &extended); });
            return extended;
          },
          "tokens"_a, "apart"_a, "stream"_a = 0)
      .def("run", &runPlan, "addresses"_a, "nbytes"_a, "stream"_a = 0, "strides"_a = py::none())
      .def("fix", [](const Plan &p) { run([&] { return attnPlanFix(p.handle.get()); }); })
      .def(
          "on_device",
          [](const Plan &p, int64_t tokens, uintptr_t stream) {
            run([&] { return attnPlanOnDevice(p.handle.get(), tokens, stream); });
          },
          "tokens"_a = 0, "stream"_a = 0)
      .def_property_readonly("tables", &tablesOf)
      .def("bind", &bindPlan, "addresses"_a, "nbytes"_a)
      .def(
          "make",
          [](const Plan &p, uintptr_t stream) { run([&] { return attnPlanMake(p.handle.get(), stream); }); },
          "stream"_a = 0)
      .def(
          "fault",
          [](const Plan &p, uintptr_t stream) {
            Bytes text;
            run([&] { return attnPlanFault(p.handle.get(), stream, text.out()); });
            return textOf(text.get());
          },
          "stream"_a = 0)
      .def("explain",
           [](const Plan &p) {
             Bytes text;
             run([&] { return attnPlanExplain(p.handle.get(), text.out()); });
             return textOf(text.get());
           })
      .def("svg",
           [](const Plan &p) {
             Bytes svg;
             run([&] { return attnPlanSvg(p.handle.get(), svg.out()); });
             return textOf(svg.get());
           })
      .def("stats", &statsOf);
}

} // namespace attn::python

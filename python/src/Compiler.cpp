//===- Compiler.cpp - The compiler in Python ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Binding.h"

#include "attn-c/Unstable.h"

#include <optional>
#include <tuple>

namespace attn::python {

namespace {

using Compiled = Handle<AttnCompiled, attnCompiledDestroy>;

/// The arguments of each call that reads a text, kept while it is read.
struct Text {
  std::string text, entry, target, schedule, name;
  AttnSource source() const {
    return {text.data(), text.size(), name.c_str(), entry.c_str(), target.c_str(), schedule.c_str()};
  }
};

/// The requests beside a text, in the order of attn.compiler.requests.Asks.
using AskedFor =
    std::tuple<std::optional<std::vector<std::string>>, std::optional<std::variant<bool, std::string>>,
               std::optional<std::string>, std::optional<int32_t>, bool, std::optional<std::string>>;

AttnOrder orderOf(const std::optional<std::variant<bool, std::string>> &ordered) {
  if (!ordered)
    return AttnOrderDefault;
  if (const bool *isFixed = std::get_if<bool>(&*ordered))
    return *isFixed ? AttnOrderFixed : AttnOrderAny;
  if (const std::string &name = std::get<std::string>(*ordered); name != "apart")
    raise("input", "ordered: expected True, False, None or \"apart\", got \"" + name + "\"");
  return AttnOrderApart;
}

/// The requests as the API takes them, kept while they are read.
class Asks {
public:
  explicit Asks(AskedFor given) : given_(std::move(given)) {
    const auto &[backward, ordered, significance, rows, devicePlan, numerics] = given_;
    if (backward)
      for (const std::string &name : *backward)
        tables_.push_back(name.c_str());
    if (rows && *rows < 1) // 0 means none in the API
      raise("input",
            "significance_rows: expected 1 or more, or None for all rows, got " + std::to_string(*rows));
    asks_ = {backward.has_value(),
             tables_.data(),
             tables_.size(),
             orderOf(ordered),
             significance ? significance->c_str() : nullptr,
             rows.value_or(0),
             devicePlan,
             numerics ? numerics->c_str() : nullptr};
  }
  Asks(const Asks &) = delete;
  const AttnAsks *get() const { return &asks_; }

private:
  AskedFor given_;
  std::vector<const char *> tables_;
  AttnAsks asks_{};
};

uint32_t formsOf(const std::vector<std::string> &names, bool checked) {
  uint32_t forms = 0;
  for (const std::string &name : names)
    if (name == "host")
      forms |= checked ? AttnFormHostChecked : AttnFormHost;
    else if (name == "ptx")
      forms |= AttnFormPtx;
    else if (name == "cubin")
      forms |= AttnFormCubin;
    else
      raise("input", "forms: expected host, ptx or cubin, got '" + name + "'");
  return forms;
}

py::dict secondsOf(const AttnCompiled *compiled) {
  py::dict seconds;
  seconds["lower"] = attnCompiledSeconds(compiled, 0);
  for (const auto &[name, forms] : {std::pair("host", AttnFormHost | AttnFormHostChecked),
                                    {"ptx", static_cast<int>(AttnFormPtx)},
                                    {"cubin", static_cast<int>(AttnFormCubin)}}) {
    double total = 0;
    for (uint32_t form : {AttnFormHost, AttnFormHostChecked, AttnFormPtx, AttnFormCubin})
      total += form & static_cast<uint32_t>(forms) ? attnCompiledSeconds(compiled, form) : 0;
    if (total > 0)
      seconds[name] = total;
  }
  return seconds;
}

} // namespace

void bindCompiler(py::module_ &module) {
  using namespace py::literals;

  module.def("build_info", [] {
    const AttnBuildInfo info = attnBuildInfo();
    Bytes ptxas;
    run([&] { return attnFindPtxas(ptxas.out()); });
    py::dict result;
    result["version"] = info.version;
    result["producer"] = info.producer;
    result["llvm"] = info.llvm;
    result["host_target"] = info.hostTarget;
    result["host_abi"] = std::to_string(info.hostVersion);
    result["ptxas"] = textOf(ptxas.get());
    return result;
  });
  module.def("identify_ptxas", [] {
    Bytes identity;
    run([&] { return attnIdentifyPtxas(identity.out()); });
    return textOf(identity.get());
  });
  module.def("targets", [] {
    py::list names;
    for (size_t i = 0; const char *name = attnTargetName(i); ++i)
      names.append(name);
    return names;
  });

  py::class_<Compiled>(module, "Compiled")
      .def_property_readonly("artifact",
                             [](const Compiled &c) { return bytesOf(attnCompiledArtifact(c.get())); })
      .def_property_readonly("manifest",
                             [](const Compiled &c) { return textOf(attnCompiledManifest(c.get())); })
      .def_property_readonly("remarks",
                             [](const Compiled &c) {
                               py::list remarks;
                               for (size_t i = 0; const char *remark = attnCompiledRemark(c.get(), i); ++i)
                                 remarks.append(textOf(remark));
                               return remarks;
                             })
      .def_property_readonly("seconds", [](const Compiled &c) { return secondsOf(c.get()); })
      .def_property_readonly("ptxas",
                             [](const Compiled &c) { return textOf(attnCompiledPtxasLog(c.get())); });

  module.def(
      "compile",
      [](std::string text, std::string entry, std::string target, std::string schedule, AskedFor asks,
         const std::vector<std::string> &forms, bool checked, std::string name) {
        const uint32_t wanted = formsOf(forms, checked);
        const Asks asked(std::move(asks));
        const Text given{std::move(text), std::move(entry), std::move(target), std::move(schedule),
                         std::move(name)};
        const AttnSource source = given.source();
        Compiled compiled;
        run([&] { return attnCompileAsked(&source, asked.get(), wanted, compiled.out()); });
        return compiled;
      },
      "text"_a, py::kw_only(), "entry"_a = "", "target"_a = "sm_90a", "schedule"_a = "auto",
      "asks"_a = AskedFor(), "forms"_a = std::vector<std::string>{"host"}, "checked"_a = false,
      "name"_a = "spec");

  const auto emit = [](std::string text, const std::string &level, std::string entry, std::string target,
                       std::string schedule, AskedFor asks, std::string name) {
    const Text given{std::move(text), std::move(entry), std::move(target), std::move(schedule),
                     std::move(name)};
    const Asks asked(std::move(asks));
    const AttnSource source = given.source();
    Bytes emitted;
    run([&] { return attnEmitAsked(&source, asked.get(), level.c_str(), emitted.out()); });
    return emitted;
  };
  module.def(
      "emit",
      [emit](std::string text, const std::string &level, std::string entry, std::string target,
             std::string schedule, AskedFor asks, std::string name) {
        return bytesOf(emit(std::move(text), level, std::move(entry), std::move(target), std::move(schedule),
                            std::move(asks), std::move(name))
                           .get());
      },
      "text"_a, "level"_a, py::kw_only(), "entry"_a = "", "target"_a = "sm_90a", "schedule"_a = "auto",
      "asks"_a = AskedFor(), "name"_a = "spec");
  module.def(
      "check",
      [emit](std::string text, std::string entry, std::string name) {
        return textOf(
            emit(std::move(text), "problem", std::move(entry), "sm_90a", "auto", {}, std::move(name)).get());
      },
      "text"_a, py::kw_only(), "entry"_a = "", "name"_a = "spec");

  const auto evaluate = [](std::string text, const py::dict &tensors, std::string entry, std::string name,
                           const auto &call) {
    const Tensors given(tensors);
    const Text from{std::move(text), std::move(entry), "sm_90a", "auto", std::move(name)};
    const AttnSource source = from.source();
    Handle<AttnTensors, attnTensorsDestroy> results;
    run([&] { return call(&source, given, results.out()); });
    return toPython(results.get());
  };
  module.def(
      "reference",
      [evaluate](std::string text, const py::dict &tensors, std::string entry, AskedFor asks,
                 std::string name, uint32_t threads) {
        const Asks asked(std::move(asks));
        const auto call = [&](const AttnSource *source, const Tensors &given, AttnTensors **results) {
          return attnReference(source, asked.get(), given.data(), given.size(), threads, results);
        };
        return evaluate(std::move(text), tensors, std::move(entry), std::move(name), call);
      },
      "text"_a, "tensors"_a, py::kw_only(), "entry"_a = "", "asks"_a = AskedFor(), "name"_a = "spec",
      "threads"_a = 0);
  module.def(
      "reference_gradients",
      [evaluate](std::string text, const py::dict &tensors, std::string entry, std::string name,
                 uint32_t threads) {
        const auto call = [&](const AttnSource *source, const Tensors &given, AttnTensors **results) {
          return attnReferenceGradients(source, given.data(), given.size(), threads, results);
        };
        return evaluate(std::move(text), tensors, std::move(entry), std::move(name), call);
      },
      "text"_a, "tensors"_a, py::kw_only(), "entry"_a = "", "name"_a = "spec", "threads"_a = 0);
}

} // namespace attn::python

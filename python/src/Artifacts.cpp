//===- Artifacts.cpp - Files of artifacts in Python -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Binding.h"

#include "attn-c/Runtime.h"

namespace attn::python {

namespace {

using File = Handle<AttnArtifact, attnArtifactDestroy>;

py::list readArtifacts(py::buffer file, const std::string &name) {
  const BufferView bytes(file, false);
  File read;
  run([&] { return attnArtifactRead(bytes.data(), bytes.size(), name.c_str(), read.out()); });
  py::list all;
  for (size_t i = 0; i < attnArtifactCount(read.get()); ++i) {
    const AttnArtifactInfo info = attnArtifactInfo(read.get(), i);
    py::list forms;
    for (const auto &[has, form] : {std::pair(info.host, "host"), {info.ptx, "ptx"}, {info.cubin, "cubin"}})
      if (has)
        forms.append(form);
    Bytes alone;
    run([&] { return attnArtifactTake(read.get(), i, alone.out()); });
    py::dict one;
    one["entry"] = textOf(info.entry);
    one["target"] = textOf(info.target);
    one["producer"] = textOf(info.producer);
    one["note"] = textOf(info.note);
    one["forms"] = forms;
    one["file"] = bytesOf(alone.get());
    all.append(one);
  }
  return all;
}

py::bytes joinArtifacts(const std::vector<std::pair<py::buffer, std::string>> &given) {
  std::deque<BufferView> views;
  std::vector<AttnArtifactPart> parts;
  for (const auto &[file, note] : given) {
    const BufferView &view = views.emplace_back(file, false);
    parts.push_back({view.data(), view.size(), note.c_str()});
  }
  Bytes joined;
  run([&] { return attnArtifactJoin(parts.data(), parts.size(), joined.out()); });
  return bytesOf(joined.get());
}

} // namespace

void bindArtifacts(py::module_ &module) {
  using namespace py::literals;
  module.def("read_artifacts", &readArtifacts, "file"_a, "name"_a = "kernel");
  module.def("join_artifacts", &joinArtifacts, "parts"_a);
}

} // namespace attn::python

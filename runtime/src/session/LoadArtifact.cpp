//===- LoadArtifact.cpp - A kernel out of a file, on a device -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/LoadArtifact.h"

#include "attn_rt/support/Chips.h"

#include <algorithm>
#include <charconv>
#include <climits>

namespace attn::rt {

namespace {

using Candidates = std::vector<const Artifact *>;

/// Lists names, each once, in order: "'decode', 'append'".
template <typename Name> std::string listed(const Candidates &candidates, Name name) {
  std::vector<std::string> names;
  for (const Artifact *candidate : candidates)
    if (std::string text = name(*candidate); std::find(names.begin(), names.end(), text) == names.end())
      names.push_back(std::move(text));
  std::string list;
  for (const std::string &text : names)
    list += (list.empty() ? "" : ", ") + text;
  return list;
}

std::string entryOf(const Artifact &artifact) { return "'" + artifact.manifest.entry + "'"; }
std::string targetOf(const Artifact &artifact) { return artifact.manifest.target; }

/// The generation of a target: 90 for "sm_90a"; -1 for any other text.
int generationOf(std::string_view target) {
  constexpr std::string_view prefix = "sm_";
  int generation = -1;
  if (target.starts_with(prefix))
    std::from_chars(target.data() + prefix.size(), target.data() + target.size(), generation);
  return generation;
}

/// Whether a GPU of this compute capability runs the artifact. A target with an `a` runs on that generation
/// alone. The PTX of another target runs on all newer GPUs, its cubins on those of the same major version.
bool runs(int computeCapability, const Artifact &artifact) {
  const std::string &target = artifact.manifest.target;
  const int made = generationOf(target);
  if (made < 0 || target.back() == 'a')
    return made == computeCapability;
  return made <= computeCapability && (!artifact.ptx.empty() || made / 10 == computeCapability / 10);
}

Error withoutHostCode(const std::string &prefix) {
  return {ErrorKind::Device,
          prefix + " has no code for the host device: compile it with the form host (attn-opt --host-code)"};
}

} // namespace

Result<const Artifact *> chooseArtifact(const Device &device, std::span<const Artifact> artifacts,
                                        const std::string &name, const std::string &entry,
                                        const std::string &target) {
  const std::string prefix = "artifact '" + name + "'";
  Candidates all, found;
  for (const Artifact &artifact : artifacts)
    all.push_back(&artifact);
  const auto keep = [&](auto isWanted) {
    std::erase_if(found, [&](const Artifact *candidate) { return !isWanted(*candidate); });
    return !found.empty();
  };
  found = all;
  if (found.empty())
    return inputError(prefix + " has no functions");
  if (!entry.empty() && !keep([&](const Artifact &a) { return a.manifest.entry == entry; }))
    return inputError(prefix + " has no function '" + entry + "'; it has " + listed(all, entryOf));
  if (const std::string &first = found.front()->manifest.entry;
      !std::all_of(found.begin(), found.end(), [&](auto *a) { return a->manifest.entry == first; }))
    return inputError(prefix +
                      " has more than one function; choose one by its name: " + listed(all, entryOf));
  const std::string subject = prefix + ": " + entryOf(*found.front());
  const std::string targets = listed(found, targetOf);
  if (!target.empty() && !keep([&](const Artifact &a) { return a.manifest.target == target; }))
    return inputError(subject + " is not compiled for " + target + ", but for " + targets);
  const auto only = [&](const Artifact *chosen) -> Result<const Artifact *> {
    for (const Artifact *other : found)
      if (other->manifest.problem != chosen->manifest.problem)
        return inputError(subject + ": there are several of that name, which are described differently");
    return chosen;
  };
  if (device.kind() == "host")
    return keep([](const Artifact &a) { return !a.hostCode.empty(); }) ? only(found.front())
                                                                       : withoutHostCode(prefix);
  if (!keep([](const Artifact &a) { return !a.ptx.empty() || !a.cubins.empty(); }))
    return Error{ErrorKind::Device,
                 subject + " has no code for a GPU: compile it with the form PTX or cubin"};
  const int capability = device.properties().computeCapability;
  const std::string own(targetOfGpu(capability));
  if (!keep([&](const Artifact &a) { return runs(capability, a); }))
    return Error{ErrorKind::Device, subject + " is compiled for " + targets + ", which '" +
                                        device.properties().name + "' does not run: compile it for " + own};
  const auto isBetter = [&](const Artifact *one, const Artifact *other) {
    const auto rank = [&](const std::string &of) { return of == own ? INT_MAX : generationOf(of); };
    return rank(one->manifest.target) > rank(other->manifest.target);
  };
  return only(*std::min_element(found.begin(), found.end(), isBetter));
}

Result<LoadedArtifact> loadArtifact(Device &device, std::span<const Artifact> artifacts,
                                    const std::string &name, const std::string &entry,
                                    const std::string &target) {
  Result<const Artifact *> chosen = chooseArtifact(device, artifacts, name, entry, target);
  if (!chosen)
    return chosen.error();
  const Artifact &artifact = **chosen;
  LoadedArtifact loaded;
  loaded.manifest = artifact.manifest;
  ModuleSource source{loaded.manifest.entry, artifact.ptx, artifact.cubins, {}};
  if (device.kind() == "host") {
    const std::string prefix = "artifact '" + name + "'";
    Result<host::CodeObject> object = host::readCodeObject(artifact.hostCode, prefix);
    if (!object)
      return object.error();
    auto code = host::LoadedCode::load(*object, prefix);
    if (!code)
      return code.error();
    loaded.checked = object->checked;
    loaded.code = std::move(*code);
    source.hostKernels = loaded.code->kernels();
  }
  auto module = device.load(source);
  if (!module)
    return module.error();
  loaded.module = std::move(*module);
  for (const KernelInfo &info : loaded.manifest.kernels)
    if (auto kernel = loaded.module->kernel(info.name, info.sharedBytes); !kernel)
      return kernel.error();
  return loaded;
}

} // namespace attn::rt

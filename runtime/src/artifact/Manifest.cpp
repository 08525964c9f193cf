//===- Manifest.cpp - What a manifest says of its kernels -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"
#include "attn_rt/artifact/VisibilityTerms.h"

#include <algorithm>

namespace attn::rt {

const KernelInfo *Manifest::findKernel(std::string_view name) const {
  auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const KernelInfo &k) { return k.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

const KernelInfo *Manifest::rowCopy() const {
  if (kernels.empty() || kernels[0].role < KernelInfo::Role::Append ||
      kernels[0].role > KernelInfo::Role::Requantize)
    return nullptr;
  return &kernels[0];
}

std::optional<KernelInfo::Role> parseKernelRole(std::string_view name) {
  const auto *found = std::find(std::begin(kernelRoleNames), std::end(kernelRoleNames), name);
  if (found == std::end(kernelRoleNames))
    return std::nullopt;
  return static_cast<KernelInfo::Role>(found - std::begin(kernelRoleNames));
}

void Manifest::addKernel(KernelInfo kernel, LaunchInfo launch) {
  const auto index = static_cast<int>(kernels.size());
  // Kernels over tokens are not alternatives: each serves a region of its own.
  if (launches.empty() || !launches.back().isLike(launch) || launch.grid == PlanArray::TokenTasks ||
      kernels[static_cast<size_t>(launches.back().kernels.front())].role != kernel.role) {
    launch.kernels.clear();
    launches.push_back(std::move(launch));
  }
  launches.back().kernels.push_back(index);
  kernels.push_back(std::move(kernel));
}

const LaunchInfo *Manifest::findLaunch(PlanArray grid) const {
  auto found = std::find_if(launches.begin(), launches.end(),
                            [&](const LaunchInfo &launch) { return launch.grid == grid; });
  return found == launches.end() ? nullptr : &*found;
}

bool Manifest::tokensAre(KernelInfo::Role role) const {
  const LaunchInfo *launch = findLaunch(PlanArray::TokenTasks);
  return launch && kernels[static_cast<size_t>(launch->kernels.front())].role == role;
}

const LaunchInfo *Manifest::planLaunch() const {
  auto found = std::find_if(launches.begin(), launches.end(), [&](const LaunchInfo &launch) {
    return kernels[static_cast<size_t>(launch.kernels.front())].role == KernelInfo::Role::Plan;
  });
  return found == launches.end() ? nullptr : &*found;
}

std::span<const int> Manifest::plannedKernels() const {
  const LaunchInfo *launch = findLaunch(PlanArray::Starts);
  return launch ? std::span<const int>(launch->kernels) : std::span<const int>();
}

bool Manifest::isPlanned(int kernel) const {
  const std::span<const int> planned = plannedKernels();
  return std::find(planned.begin(), planned.end(), kernel) != planned.end();
}

const ResultInfo *Manifest::findResult(std::string_view name) const {
  auto found =
      std::find_if(results.begin(), results.end(), [&](const ResultInfo &r) { return r.name == name; });
  return found == results.end() ? nullptr : &*found;
}

int64_t Manifest::resultBytes(const std::map<std::string, int32_t> &sizes) const {
  int64_t bytes = 0;
  for (const ResultInfo &result : results) {
    auto size = static_cast<int64_t>(dtypeSize(result.dtype));
    for (const DimInfo &dim : result.dims)
      size *= dim.name.empty() ? dim.value : sizes.at(dim.name);
    bytes += size;
  }
  return bytes;
}

Result<std::vector<int64_t>> ResultInfo::shape(const std::map<std::string, int32_t> &sizes) const {
  std::vector<int64_t> shape;
  for (const DimInfo &dim : dims) {
    const auto size = sizes.find(dim.name);
    if (!dim.name.empty() && size == sizes.end())
      return inputError("result '" + name + "' has a dimension '" + dim.name + "', which is not set");
    shape.push_back(dim.name.empty() ? dim.value : size->second);
  }
  return shape;
}

const TensorMapInfo *Manifest::findTensorMap(std::string_view name) const {
  auto found = std::find_if(tensorMaps.begin(), tensorMaps.end(),
                            [&](const TensorMapInfo &map) { return map.name == name; });
  return found == tensorMaps.end() ? nullptr : &*found;
}

Visibility Manifest::visibilityOf(size_t operand, size_t headClass) const {
  const Visibility &shown = operands[operand].visibility;
  if (headClasses.empty() || headClasses[headClass].visibility.kind == Visibility::Kind::All)
    return shown;
  const Visibility &seen = headClasses[headClass].visibility;
  if (shown.kind == Visibility::Kind::All)
    return seen;
  return {Visibility::Kind::And, -1, {shown, seen}};
}

bool Manifest::hasRaggedOperand() const {
  return std::any_of(operands.begin(), operands.end(),
                     [&](const OperandInfo &operand) { return argumentOf(operand).ragged; });
}

bool Manifest::plansByHead() const {
  return !headClasses.empty() &&
         std::any_of(operands.begin(), operands.end(), [&](const OperandInfo &operand) {
           return argumentOf(operand).ragged && argumentOf(operand).headClass < 0;
         });
}

int64_t Manifest::gateBytes(int64_t rows) const {
  for (const Argument &argument : arguments)
    if (argument.role == Argument::Role::Gate)
      return rows * qHeads * (argument.dims.size() == 3 ? valueDim : 1) *
             static_cast<int64_t>(dtypeSize(argument.dtype));
  return 0;
}

Store storeOf(const Argument &argument) {
  return {argument.store,
          argument.page,
          argument.ragged,
          argument.headClass < 0 ? argument.kvHeads : 0,
          {'k', argument.keyDim, argument.keyFormat},
          {argument.latent ? 'k' : 'v', argument.valueDim, argument.valueFormat}};
}

std::vector<StridedTensor> stridedTensors(const Manifest &manifest) {
  std::vector<StridedTensor> tensors;
  if (!manifest.hasPlan())
    return tensors;
  for (const Argument &argument : manifest.arguments) {
    const bool ofGate = argument.role == Argument::Role::Gate && argument.dims.size() == 3;
    if ((argument.role == Argument::Role::Query && !manifest.isBackward()) || ofGate)
      tensors.push_back({argument.name, argument.dtype, argument.dims});
    if (argument.role != Argument::Role::KV)
      continue;
    const Store store = storeOf(argument);
    for (const StoreTensor &tensor : store.data()) {
      const bool ofPages = store.isUnified() && tensor.content != StoreTensor::Content::Scales;
      if (!ofPages && (!store.isStrided() || tensor.content != StoreTensor::Content::Codes))
        continue;
      StridedTensor &strided = tensors.emplace_back();
      strided.unified = ofPages;
      strided.name = argument.name + "." + tensor.name;
      strided.dtype = tensor.dtype;
      for (const StoreDim &dim : tensor.dims)
        strided.dims.push_back(
            {dim.size ? argument.name + "." + std::string(sizeName(*dim.size)) : "", dim.value});
    }
  }
  if (const ResultInfo *output = manifest.findResult("o"))
    tensors.push_back({output->name, output->dtype, output->dims});
  return tensors;
}

Result<Manifest> parseManifest(std::string_view text) {
  Result<Json> json = parseJson(text, "manifest");
  return json ? manifestFromJson(*json) : json.error();
}

Result<Manifest> manifestFromJson(const Json &json) {
  std::optional<Error> error;
  const Cursor root(json, "manifest", error);
  Manifest manifest = readManifest(root);
  const std::vector<Cursor> operands = error ? std::vector<Cursor>() : root["operands"].elements();
  for (size_t i = 0; i < operands.size(); ++i) {
    OperandInfo &operand = manifest.operands[i];
    auto found =
        std::find_if(manifest.arguments.begin(), manifest.arguments.end(), [&](const Argument &argument) {
          return argument.role == Argument::Role::KV && argument.name == operand.argument;
        });
    if (found == manifest.arguments.end())
      operands[i]["argument"].fail("no KV argument is named '" + operand.argument + "'");
    operand.argumentIndex = static_cast<int>(found - manifest.arguments.begin());
  }
  if (!error)
    checkManifest(manifest, root);
  if (error)
    return *error;
  return manifest;
}

} // namespace attn::rt

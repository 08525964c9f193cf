//===- Manifest.cpp - What a manifest says of its kernels -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"

#include <algorithm>

namespace attn::rt {

const KernelInfo *Manifest::findKernel(std::string_view name) const {
  auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const KernelInfo &k) { return k.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

const KernelInfo *Manifest::rowCopy() const {
  return !kernels.empty() && kernels[0].role >= KernelInfo::Role::Append ? &kernels[0] : nullptr;
}

std::optional<KernelInfo::Role> parseKernelRole(std::string_view name) {
  const auto *found = std::find(std::begin(kernelRoleNames), std::end(kernelRoleNames), name);
  if (found == std::end(kernelRoleNames))
    return std::nullopt;
  return static_cast<KernelInfo::Role>(found - std::begin(kernelRoleNames));
}

void Manifest::addKernel(KernelInfo kernel, LaunchInfo launch) {
  const auto index = static_cast<int>(kernels.size());
  // Kernels for tokens are no choices: each is for a region of its own.
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

Store storeOf(const Argument &argument) {
  return {argument.store,
          argument.page,
          argument.ragged,
          argument.headClass < 0 ? argument.kvHeads : 0,
          {'k', argument.keyDim, argument.keyFormat},
          {'v', argument.valueDim, argument.valueFormat}};
}

std::vector<StridedTensor> stridedTensors(const Manifest &manifest) {
  std::vector<StridedTensor> tensors;
  if (manifest.rowCopy())
    return tensors;
  for (const Argument &argument : manifest.arguments) {
    if (argument.role == Argument::Role::Query && !manifest.isBackward())
      tensors.push_back({argument.name, argument.dtype, argument.dims});
    if (argument.role != Argument::Role::KV || !storeOf(argument).isStrided())
      continue;
    for (const StoreTensor &tensor : storeOf(argument).data()) {
      if (tensor.content != StoreTensor::Content::Codes)
        continue;
      StridedTensor &strided = tensors.emplace_back();
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

namespace {

Json visibilityToJson(const Visibility &visibility) {
  Json json{{"kind", word(visibilityWords, visibility.kind)}};
  if (visibility.end >= 0)
    json["end"] = visibility.end;
  for (const Visibility &part : visibility.of)
    json["of"].push_back(visibilityToJson(part));
  return json;
}

Json parameterToJson(const Parameter &param) {
  Json json{{"kind", word(parameterWords, param.kind)}};
  if (!param.name.empty())
    json["name"] = param.name;
  if (param.kind == Parameter::Kind::End)
    json["index"] = param.index;
  if (const std::string_view type = scalarType(param.kind); !type.empty())
    json["type"] = type;
  return json;
}

Json kernelToJson(const KernelInfo &kernel) {
  Json json{{"name", kernel.name},
            {"role", kernelRoleName(kernel.role)},
            {"warps", kernel.warps},
            {"threads", kernel.threads},
            {"shared_bytes", kernel.sharedBytes},
            {"blocks_per_sm", kernel.blocksPerSM},
            {"params", Json::array()}};
  if (kernel.rowsPerWarp > 0) {
    json["rows_per_warp"] = kernel.rowsPerWarp;
    json["pieces"] = kernel.pieces;
  } else {
    json["schedule"] = word(kernelScheduleWords, kernel.schedule);
    json["rows"] = kernel.rows;
    json["keys"] = kernel.keys;
    json["key_align"] = kernel.keyAlign;
    if (kernel.sequencesUpTo > 0)
      json["sequences_up_to"] = kernel.sequencesUpTo;
  }
  for (const Parameter &param : kernel.params)
    json["params"].push_back(parameterToJson(param));
  return json;
}

Json tensorMapToJson(const TensorMapInfo &map) {
  Json json{{"name", map.name},      {"buffer", map.buffer},   {"dtype", dtypeName(map.dtype)},
            {"dims", Json::array()}, {"strides", map.strides}, {"box", map.box},
            {"swizzle", map.swizzle}};
  for (const TensorMapInfo::Extent &extent : map.dims) {
    Json dim{{"value", extent.value}};
    if (!extent.of.empty())
      dim["of"] = extent.of;
    json["dims"].push_back(std::move(dim));
  }
  if (!map.times.empty())
    json["times"] = map.times;
  return json;
}

Json argumentToJson(const Manifest &m, const Argument &argument) {
  Json json{{"name", argument.name}, {"role", word(argumentRoleWords, argument.role)}};
  if (argument.role == Argument::Role::KV) {
    json["store"] = word(storeWords, argument.store);
    if (argument.store == Argument::Store::Paged)
      json["page"] = argument.page;
    if (argument.headClass >= 0)
      json["head_class"] = m.headClasses[static_cast<size_t>(argument.headClass)].name;
    else
      json["kv_heads"] = argument.kvHeads;
    if (argument.ragged)
      json["ragged"] = true;
    json["key_dim"] = argument.keyDim;
    json["value_dim"] = argument.valueDim;
    json["key_format"] = argument.keyFormat.text();
    json["value_format"] = argument.valueFormat.text();
    return json;
  }
  json["dtype"] = dtypeName(argument.dtype);
  json["dims"] = dimsToJson(argument.dims);
  return json;
}

} // namespace

Json dimsToJson(const std::vector<DimInfo> &dims) {
  Json json = Json::array();
  for (const DimInfo &dim : dims)
    json.push_back(dim.name.empty() ? Json(dim.value) : Json(dim.name));
  return json;
}

Json manifestToJson(const Manifest &m) {
  Json json{{"format", manifestFormat},
            {"producer", m.producer},
            {"entry", m.entry},
            {"target", m.target},
            {"ptx_version", m.ptxVersion},
            {"schedule", m.schedule},
            {"problem", m.problem},
            {"content_hash", m.contentHash},
            {"q_heads", m.qHeads},
            {"kv_heads", m.kvHeads},
            {"key_dim", m.keyDim},
            {"value_dim", m.valueDim},
            {"dtype", dtypeName(m.dtype)},
            {"scale", m.scale},
            {"sink_logits", m.sinkLogits},
            {"approximate", m.approximate},
            {"tolerance", m.tolerance ? Json(*m.tolerance) : Json()},
            {"ends", m.ends},
            {"arguments", Json::array()},
            {"operands", Json::array()},
            {"head_classes", Json::array()},
            {"kernels", Json::array()},
            {"launches", Json::array()},
            {"results", Json::array()},
            {"plan", planToJson(m)}};
  for (const Argument &argument : m.arguments)
    json["arguments"].push_back(argumentToJson(m, argument));
  for (const OperandInfo &operand : m.operands)
    json["operands"].push_back(
        {{"argument", operand.argument}, {"visibility", visibilityToJson(operand.visibility)}});
  for (const HeadClassInfo &headClass : m.headClasses)
    json["head_classes"].push_back(
        {{"name", headClass.name}, {"visibility", visibilityToJson(headClass.visibility)}});
  for (const KernelInfo &kernel : m.kernels)
    json["kernels"].push_back(kernelToJson(kernel));
  for (const LaunchInfo &launch : m.launches)
    json["launches"].push_back(launchToJson(m, launch));
  for (const ResultInfo &result : m.results)
    json["results"].push_back(resultToJson(result));
  for (const TensorMapInfo &map : m.tensorMaps)
    json["tensor_maps"].push_back(tensorMapToJson(map));
  return json;
}

std::string writeManifest(const Manifest &manifest) { return dumpJson(manifestToJson(manifest), 1) + "\n"; }

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

//===- WriteManifest.cpp - A manifest as JSON -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"
#include "attn_rt/artifact/VisibilityTerms.h"

namespace attn::rt {

namespace {

Json visibilityToJson(const Visibility &visibility) {
  const VisibilityTerm &term = termOf(visibility.kind);
  Json json{{"kind", std::string(term.word)}};
  if (visibility.end >= 0)
    json["end"] = visibility.end;
  if (term.sizeCount() > 1)
    json["sizes"] = term.sizeCount();
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
    if (kernel.folds)
      json["folds"] = true;
  }
  for (const Parameter &param : kernel.params)
    json["params"].push_back(parameterToJson(param));
  return json;
}

/// The fields that are constants say what a reader may rely on; only the others are read.
Json numericsToJson(const NumericsInfo &numerics) {
  Json json = {{"contract", "row"},
               {"instructions", word(kernelScheduleWords, numerics.instructions)},
               {"keys", numerics.keys},
               {"streams", numerics.streams},
               {"keys_left", numerics.keysLeft},
               {"weights", dtypeName(numerics.weights)},
               {"split", numerics.split},
               {"output", dtypeName(numerics.output)},
               {"order", "ascending positions"},
               {"scores", "f32"},
               {"sums", "f32"},
               {"fold", "parts in order, then the sink"}};
  if (numerics.outputScales)
    json["output_scales"] = true;
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
    if (storeOf(argument).isPaged())
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
    json["value_format"] = argument.latent ? std::string(Store::partOfKey) : argument.valueFormat.text();
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
            {"significance_rows", m.significanceRows},
            {"tolerance", m.tolerance ? Json(*m.tolerance) : Json()},
            {"ends", m.ends},
            {"arguments", Json::array()},
            {"operands", Json::array()},
            {"head_classes", Json::array()},
            {"kernels", Json::array()},
            {"launches", Json::array()},
            {"results", Json::array()},
            {"plan", planToJson(m)}};
  if (m.numerics)
    json["numerics"] = numericsToJson(*m.numerics);
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

} // namespace attn::rt

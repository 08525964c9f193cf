//===- ReadManifest.cpp - A manifest of its JSON --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"
#include "attn_rt/artifact/VisibilityTerms.h"

namespace attn::rt {

DType readDType(const Cursor &cursor) {
  if (std::optional<DType> parsed = parseDType(cursor.string()))
    return *parsed;
  cursor.expected("the name of a dtype (f16, bf16, f32, i32, …)");
  return DType::F32;
}

std::vector<DimInfo> readDims(const Cursor &cursor) {
  std::vector<DimInfo> dims;
  for (const Cursor &dim : cursor.elements()) {
    if (dim.value().is_string())
      dims.push_back({dim.string(), 0});
    else
      dims.push_back({"", dim.integer(0, int64_t{1} << 40)});
  }
  return dims;
}

namespace {

// Far above any chip, so that products of two stay far below 2^63.
constexpr int64_t sizeLimit = 1 << 20;

int size(const Cursor &cursor, int64_t low = 1) { return static_cast<int>(cursor.integer(low, sizeLimit)); }

Visibility visibility(const Cursor &cursor) {
  Visibility result;
  int sizes = 0;
  if (cursor.has("end")) {
    result.end = size(cursor["end"], 0);
    sizes = cursor.has("sizes") ? size(cursor["sizes"]) : 1;
  }
  const std::optional<VisibilityKind> kind = findTerm(cursor["kind"].string(), sizes);
  if (!kind) {
    cursor["kind"].expected("the word of a visibility of " + std::to_string(sizes) + " sizes");
    return result;
  }
  result.kind = *kind;
  if (!isConnective(*kind))
    return result;
  for (const Cursor &part : cursor["of"].elements())
    result.of.push_back(visibility(part));
  if (result.of.empty())
    cursor["of"].expected("at least one visibility");
  return result;
}

Parameter parameter(const Cursor &cursor) {
  Parameter result;
  result.kind = static_cast<Parameter::Kind>(cursor["kind"].oneOf(parameterWords));
  if (result.kind != Parameter::Kind::End && result.kind != Parameter::Kind::Scale)
    result.name = cursor["name"].string();
  if (result.kind == Parameter::Kind::End)
    result.index = size(cursor["index"], 0);
  // The kind decides the type. If a type is written it must agree, or the launch would pass the wrong bytes.
  if (const std::string_view type = scalarType(result.kind); cursor.has("type") && !type.empty())
    if (cursor["type"].string() != type)
      cursor["type"].expected('"' + std::string(type) + '"');
  return result;
}

TensorMapInfo tensorMap(const Cursor &cursor) {
  TensorMapInfo result;
  result.name = cursor["name"].string();
  result.buffer = cursor["buffer"].string();
  result.dtype = readDType(cursor["dtype"]);
  for (const Cursor &dim : cursor["dims"].elements()) {
    TensorMapInfo::Extent &extent = result.dims.emplace_back();
    extent.value = dim["value"].integer(1, int64_t{1} << 32);
    if (dim.has("of"))
      for (const Cursor &name : dim["of"].elements())
        extent.of.push_back(name.string());
  }
  for (const Cursor &stride : cursor["strides"].elements())
    result.strides.push_back(stride.integer());
  if (cursor.has("times")) {
    for (const Cursor &name : cursor["times"].elements())
      result.times.push_back(name.string());
    if (result.times.size() != result.strides.size())
      cursor["times"].expected("a name, or an empty one, for each stride");
  }
  for (const Cursor &extent : cursor["box"].elements())
    result.box.push_back(size(extent, 0));
  result.swizzle = size(cursor["swizzle"], 0);
  return result;
}

KernelInfo kernel(const Cursor &cursor) {
  KernelInfo result;
  result.name = cursor["name"].string();
  result.role = static_cast<KernelInfo::Role>(cursor["role"].oneOf(kernelRoleNames));
  result.threads = static_cast<int>(cursor["threads"].integer(1, 1024));
  result.warps = cursor.has("warps") ? size(cursor["warps"]) : (result.threads + 31) / 32;
  result.sharedBytes = cursor.has("shared_bytes") ? size(cursor["shared_bytes"], 0) : 0;
  result.blocksPerSM =
      cursor.has("blocks_per_sm") ? static_cast<int>(cursor["blocks_per_sm"].integer(1, 64)) : 1;
  if (cursor.has("rows_per_warp")) {
    result.rowsPerWarp = size(cursor["rows_per_warp"]);
    result.pieces = size(cursor["pieces"]);
  } else {
    result.schedule = static_cast<KernelInfo::Schedule>(cursor["schedule"].oneOf(kernelScheduleWords));
    result.rows = size(cursor["rows"]);
    result.keys = size(cursor["keys"]);
    if (cursor.has("sequences_up_to"))
      result.sequencesUpTo = size(cursor["sequences_up_to"]);
    result.folds = cursor.has("folds") && cursor["folds"].boolean();
    if (cursor.has("key_align"))
      result.keyAlign = size(cursor["key_align"]);
    if (result.keys % result.keyAlign != 0)
      cursor["key_align"].expected("a divisor of the tile's " + std::to_string(result.keys) + " keys");
  }
  for (const Cursor &param : cursor["params"].elements())
    result.params.push_back(parameter(param));
  return result;
}

NumericsInfo numerics(const Cursor &cursor) {
  constexpr std::string_view contracts[] = {"row"};
  cursor["contract"].oneOf(contracts);
  NumericsInfo result;
  result.instructions = static_cast<KernelInfo::Schedule>(cursor["instructions"].oneOf(kernelScheduleWords));
  result.keys = size(cursor["keys"]);
  result.streams = size(cursor["streams"]);
  result.keysLeft = cursor["keys_left"].boolean();
  result.weights = readDType(cursor["weights"]);
  result.split = size(cursor["split"]);
  result.output = readDType(cursor["output"]);
  result.outputScales = cursor.has("output_scales") && cursor["output_scales"].boolean();
  if (result.split % result.keys != 0)
    cursor["split"].expected("a multiple of the " + std::to_string(result.keys) + " keys of a tile");
  return result;
}

int headClass(const Cursor &cursor, const std::vector<HeadClassInfo> &classes) {
  const std::string name = cursor.string();
  for (size_t c = 0; c < classes.size(); ++c)
    if (classes[c].name == name)
      return static_cast<int>(c);
  cursor.fail("no head class is named '" + name + "'");
  return -1;
}

Format format(const Cursor &cursor, int64_t dim) {
  const std::optional<Format> parsed = Format::parse(cursor.string());
  if (!parsed)
    cursor.expected("a format (bf16, f8e4m3fn per head, i4 per 64, …)");
  else if (const std::string fault = parsed->faultOf(dim); !fault.empty())
    cursor.fail(fault);
  return parsed.value_or(Format());
}

Argument argument(const Cursor &cursor, const std::vector<HeadClassInfo> &classes) {
  Argument result;
  result.name = cursor["name"].string();
  result.role = static_cast<Argument::Role>(cursor["role"].oneOf(argumentRoleWords));
  if (result.role == Argument::Role::KV) {
    result.store = static_cast<Argument::Store>(cursor["store"].oneOf(storeWords));
    if (storeOf(result).isPaged())
      result.page = size(cursor["page"]);
    if (cursor.has("head_class"))
      result.headClass = headClass(cursor["head_class"], classes);
    else
      result.kvHeads = size(cursor["kv_heads"], 0);
    result.ragged = cursor.has("ragged") && cursor["ragged"].boolean();
    result.keyDim = size(cursor["key_dim"]);
    result.valueDim = size(cursor["value_dim"]);
    result.keyFormat = format(cursor["key_format"], result.keyDim);
    result.latent = cursor["value_format"].string() == Store::partOfKey;
    result.valueFormat = result.latent ? result.keyFormat : format(cursor["value_format"], result.valueDim);
    if (result.latent && result.valueDim > result.keyDim)
      cursor["value_dim"].expected("a value inside of its key, of at most " + std::to_string(result.keyDim) +
                                   " features");
    return result;
  }
  result.dtype = readDType(cursor["dtype"]);
  result.dims = readDims(cursor["dims"]);
  return result;
}

} // namespace

Manifest readManifest(const Cursor &root) {
  Manifest m;
  const Cursor format = root["format"];
  if (format.integer() != manifestFormat)
    format.expected("format " + std::to_string(manifestFormat) + ", which this runtime reads");
  checkPlanLayout(root);
  m.producer = root["producer"].string();
  m.entry = root["entry"].string();
  m.target = root["target"].string();
  m.schedule = root["schedule"].string();
  m.problem = root["problem"].string();
  m.contentHash = root["content_hash"].string();
  m.ptxVersion = size(root["ptx_version"]);
  m.qHeads = size(root["q_heads"]);
  m.kvHeads = size(root["kv_heads"]);
  m.keyDim = size(root["key_dim"]);
  m.valueDim = size(root["value_dim"]);
  m.dtype = readDType(root["dtype"]);
  m.scale = root["scale"].number();
  m.sinkLogits = root.has("sink_logits") && root["sink_logits"].boolean();
  m.approximate = root.has("approximate") && root["approximate"].boolean();
  if (root.has("numerics"))
    m.numerics = numerics(root["numerics"]);
  m.significanceRows = root.has("significance_rows") ? size(root["significance_rows"], 0) : 0;
  if (root.has("tolerance") && !root["tolerance"].isNull())
    m.tolerance = root["tolerance"].number();
  for (const Cursor &end : root["ends"].elements())
    m.ends.push_back(static_cast<int32_t>(end.integer(0, std::numeric_limits<int32_t>::max())));
  if (root.has("head_classes"))
    for (const Cursor &entry : root["head_classes"].elements())
      m.headClasses.push_back({entry["name"].string(), visibility(entry["visibility"])});
  for (const Cursor &entry : root["arguments"].elements())
    m.arguments.push_back(argument(entry, m.headClasses));
  for (const Cursor &entry : root["results"].elements())
    m.results.push_back(readResult(entry));
  for (const Cursor &entry : root["operands"].elements()) {
    OperandInfo operand;
    operand.argument = entry["argument"].string();
    operand.visibility = visibility(entry["visibility"]);
    m.operands.push_back(std::move(operand));
  }
  for (const Cursor &entry : root["kernels"].elements()) {
    KernelInfo read = kernel(entry);
    if (m.findKernel(read.name))
      entry["name"].fail("duplicate kernel '" + read.name + "'");
    m.kernels.push_back(std::move(read));
  }
  for (const Cursor &entry : root["launches"].elements())
    m.launches.push_back(readLaunch(m, entry));
  if (root.has("tensor_maps"))
    for (const Cursor &entry : root["tensor_maps"].elements())
      m.tensorMaps.push_back(tensorMap(entry));
  return m;
}

} // namespace attn::rt

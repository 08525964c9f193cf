//===- CheckManifest.cpp - What a manifest must not say -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"
#include "attn_rt/artifact/VisibilityTerms.h"
#include "attn_rt/tensor/BulkTensor.h"

#include <algorithm>
#include <set>

namespace attn::rt {

namespace {

// The buffers and dimensions that a kernel may name.
struct Names {
  std::set<std::string> buffers{"q", "q_start", "q_pos"};
  std::set<std::string> dims{"rows", "sequences"};

  explicit Names(const Manifest &manifest) {
    buffers.insert(std::begin(planArrayNames), std::end(planArrayNames));
    dims.insert(std::begin(planDimNames), std::end(planDimNames));
    if (manifest.rowCopy()) {
      buffers = {"row_count"};
      dims = {"layers"};
      for (const std::string name : {"k", "v", "q", "rotated"})
        dims.insert({name + ".layer", strideName(name, 1), strideName(name, 2)});
    }
    if (manifest.managesPages()) {
      buffers = {"sums"};
      dims.clear();
    }
    for (const ResultInfo &result : manifest.results)
      buffers.insert(result.name);
    for (const StridedTensor &tensor : stridedTensors(manifest))
      for (size_t axis = 0; axis + 1 < tensor.dims.size(); ++axis)
        dims.insert(strideName(tensor.name, axis));
    if (!manifest.headClasses.empty())
      buffers.insert("ordinal_heads");
    for (const Argument &argument : manifest.arguments) {
      if (argument.role != Argument::Role::KV) {
        buffers.insert(argument.name);
        for (size_t axis = 0; axis < argument.dims.size(); ++axis)
          dims.insert(argument.name + ".dim" + std::to_string(axis));
        continue;
      }
      const Store store = storeOf(argument);
      const std::string prefix = argument.name + ".";
      if (manifest.rowCopy()) {
        dims.insert(
            {prefix + "k_layer", prefix + "v_layer", prefix + std::string(sizeName(StoreSize::Slots))});
        if (store.isUnified())
          dims.insert(prefix + std::string(sizeName(StoreSize::PageBytes)));
        for (const StoreTensor &tensor : store.data()) {
          buffers.insert(prefix + tensor.name);
          if (tensor.content != StoreTensor::Content::Codes)
            dims.insert(prefix + tensor.name + "_layer");
          if (tensor.content != StoreTensor::Content::Scales)
            for (size_t axis = 0; axis < 3; ++axis)
              dims.insert(strideName(prefix + tensor.name, axis));
        }
        continue;
      }
      for (const auto &tensors : {store.data(), store.tables()})
        for (const StoreTensor &tensor : tensors)
          buffers.insert(prefix + tensor.name);
      for (StoreSize size : store.sizes())
        dims.insert(prefix + std::string(sizeName(size)));
    }
  }
};

void checkEnds(const Visibility &visibility, const Manifest &manifest, const Cursor &cursor) {
  const VisibilityTerm &term = termOf(visibility.kind);
  for (int end = visibility.end; end < visibility.end + term.sizeCount(); ++end)
    if (end >= static_cast<int>(manifest.ends.size()))
      return cursor["end"].fail("end " + std::to_string(end) + " does not exist; the manifest has " +
                                std::to_string(manifest.ends.size()));
    else if (const int32_t size = manifest.ends[static_cast<size_t>(end)]; size < term.leastSize)
      return cursor["end"].fail("expected a size of at least " + std::to_string(term.leastSize) + " for " +
                                std::string(term.word) + ", got " + std::to_string(size));
  for (size_t i = 0; i < visibility.of.size() && !cursor.failed(); ++i)
    checkEnds(visibility.of[i], manifest, cursor["of"].elements()[i]);
}

void checkOperand(const OperandInfo &operand, const Manifest &manifest, const Cursor &cursor) {
  const Argument &argument = manifest.argumentOf(operand);
  const auto same = [&](int has, int wants, const char *what) {
    if (has != wants)
      cursor["argument"].fail("argument '" + operand.argument + "' has " + what + " " + std::to_string(has) +
                              ", but the attention has " + std::to_string(wants));
  };
  if (argument.headClass < 0)
    same(argument.kvHeads, manifest.kvHeads, "kv_heads");
  same(argument.keyDim, manifest.keyDim, "key_dim");
  same(argument.valueDim, manifest.valueDim, "value_dim");
  checkEnds(operand.visibility, manifest, cursor["visibility"]);
}

/// Classes have distinct names, and one tensor of the right size says which head is in which class.
void checkHeadClasses(const Manifest &m, const Cursor &root) {
  const std::vector<Cursor> classes = root["head_classes"].elements();
  std::set<std::string> seen;
  for (size_t i = 0; i < m.headClasses.size() && !root.failed(); ++i) {
    if (!seen.insert(m.headClasses[i].name).second)
      classes[i]["name"].fail("duplicate head class '" + m.headClasses[i].name + "'");
    checkEnds(m.headClasses[i].visibility, m, classes[i]["visibility"]);
  }
  const auto fits = [&](const Argument &argument) {
    return argument.role == Argument::Role::Classes && argument.dtype == DType::I32 &&
           argument.dims.size() == 1 && argument.dims[0].name.empty() && argument.dims[0].value == m.kvHeads;
  };
  if (std::count_if(m.arguments.begin(), m.arguments.end(), fits) != 1)
    root["head_classes"].fail("expected one argument of role \"classes\", i32[" + std::to_string(m.kvHeads) +
                              "]");
}

/// An operation on a cache is one kernel, within one paged or packed cache or from one to another.
void checkRowCopy(const Manifest &m, const Cursor &root) {
  if (m.kernels.size() != 1)
    root["kernels"].fail("expected one kernel where the first is of role \"append\", \"move\", \"gather\" or "
                         "\"requantize\", got " +
                         std::to_string(m.kernels.size()));
  if (!m.operands.empty())
    root["operands"].fail("expected no operands of an operation on a cache");
  const auto isCache = [&](const Argument &a) {
    return a.role == Argument::Role::KV && a.store != Argument::Store::Dense &&
           (!a.ragged || (storeOf(a).isUnified() && a.kvHeads == 1)) && a.kvHeads == m.kvHeads &&
           a.keyDim == m.keyDim && a.valueDim == m.valueDim;
  };
  const bool two = m.rowCopy()->role == KernelInfo::Role::Requantize;
  if (std::count_if(m.arguments.begin(), m.arguments.end(), isCache) != (two ? 2 : 1))
    root["arguments"].fail(std::string("expected ") +
                           (two ? "two paged or packed caches" : "one paged or packed cache") +
                           " with the heads and dims of the manifest");
}

/// An operation on a table of pages has its own kernels over tensors, launched one after another.
void checkPageTable(const Manifest &m, const Cursor &root) {
  using Role = KernelInfo::Role;
  const Role first = m.kernels[0].role;
  const bool manages = first >= Role::CountPages && first <= Role::TakePages,
             hasFloats = first >= Role::ReviseTokens;
  const std::vector<Role> roles =
      manages ? std::vector{Role::CountPages, Role::ReleasePages, Role::TakePages} : std::vector{first};
  const auto has = [](const KernelInfo &kernel, Role role) { return kernel.role == role; };
  if (!std::equal(m.kernels.begin(), m.kernels.end(), roles.begin(), roles.end(), has) ||
      m.launches.size() != roles.size())
    root["kernels"].fail("expected a kernel, and a launch, of each of the roles \"count_pages\", "
                         "\"release_pages\" and \"take_pages\" in that order, or of \"compact_tokens\", "
                         "\"revise_tokens\", \"merge_states\" or \"exchange_states\" alone");
  const std::vector<Cursor> arguments = root["arguments"].elements();
  for (size_t i = 0; i < m.arguments.size(); ++i)
    if (const Argument &argument = m.arguments[i];
        argument.role != Argument::Role::Pages ||
        (argument.dtype != (argument.name == "keep" ? DType::I8 : DType::I32) &&
         !(hasFloats && argument.dtype == DType::F32)))
      arguments[i].fail(
          "expected a tensor of role \"pages\", of i32 or, of flags that are named \"keep\", of i8, or, "
          "where tokens are revised or states are merged, of f32");
  if (!m.operands.empty() || !m.results.empty())
    root["operands"].fail("expected neither operands nor results of an operation on a table of pages");
}

void checkParameter(const Parameter &param, const Manifest &manifest, const Names &names,
                    const Cursor &cursor) {
  if (param.kind == Parameter::Kind::Buffer && !names.buffers.count(param.name))
    cursor["name"].fail("unknown buffer '" + param.name + "'");
  if (param.kind == Parameter::Kind::Dim && !names.dims.count(param.name))
    cursor["name"].fail("unknown dimension '" + param.name + "'");
  if (param.kind == Parameter::Kind::Map && !manifest.findTensorMap(param.name))
    cursor["name"].fail("unknown tensor map '" + param.name + "'");
  if (param.kind == Parameter::Kind::End && param.index >= static_cast<int>(manifest.ends.size()))
    cursor["index"].fail("end " + std::to_string(param.index) + " does not exist; the manifest has " +
                         std::to_string(manifest.ends.size()));
}

void checkTensorMap(const TensorMapInfo &map, const Names &names, const Cursor &cursor) {
  if (!names.buffers.count(map.buffer))
    cursor["buffer"].fail("unknown buffer '" + map.buffer + "'");
  const std::vector<Cursor> dims = cursor["dims"].elements();
  for (size_t i = 0; i < map.dims.size(); ++i)
    for (size_t d = 0; d < map.dims[i].of.size(); ++d)
      if (const std::string &name = map.dims[i].of[d]; !names.dims.count(name))
        dims[i]["of"].elements()[d].fail("unknown dimension '" + name + "' of a tensor");
  std::vector<int64_t> strides = map.strides; // a launch multiplies some strides, and checks them then
  for (size_t i = 0; i < map.times.size(); ++i) {
    if (map.times[i].empty())
      continue;
    if (!names.dims.count(map.times[i]))
      cursor["times"].elements()[i].fail("unknown dimension '" + map.times[i] + "' of a tensor");
    if (strides[i] < 1 || strides[i] > 1024)
      cursor["strides"].elements()[i].expected("a positive multiple of a dimension");
    strides[i] = 16;
  }
  if (auto fault = checkBulkLayout(map.dtype, map.dims.size(), strides, map.box, map.swizzle)) {
    const Cursor field = cursor[fault->field];
    (fault->index < 0 ? field : field.elements()[static_cast<size_t>(fault->index)]).fail(fault->message);
  }
}

} // namespace

void checkManifest(const Manifest &m, const Cursor &root) {
  if (m.qHeads % m.kvHeads != 0)
    root["q_heads"].fail("expected a multiple of kv_heads = " + std::to_string(m.kvHeads) + ", got " +
                         std::to_string(m.qHeads));
  std::set<std::string> seen;
  const std::vector<Cursor> arguments = root["arguments"].elements();
  for (size_t i = 0; i < m.arguments.size(); ++i) {
    const Argument &argument = m.arguments[i];
    if (!seen.insert(argument.name).second)
      arguments[i]["name"].fail("duplicate argument '" + argument.name + "'");
    if (argument.role == Argument::Role::KV && storeOf(argument).isPaged() &&
        !Store::isPageSize(argument.page))
      arguments[i]["page"].fail("expected " + std::string(Store::pageSizes) + ", got " +
                                std::to_string(argument.page) +
                                "; nearest legal: " + Store::nearestPageSizes(argument.page));
  }
  checkResults(m, root);
  if (m.rowCopy())
    checkRowCopy(m, root);
  else if (m.managesPages())
    checkPageTable(m, root);
  else if (m.operands.empty())
    root["operands"].expected("at least one operand");
  const std::vector<Cursor> operands = root["operands"].elements();
  for (size_t i = 0; i < m.operands.size() && !root.failed(); ++i)
    checkOperand(m.operands[i], m, operands[i]);

  if (!m.headClasses.empty() && !root.failed())
    checkHeadClasses(m, root);

  const Names names(m);
  const std::vector<Cursor> maps =
      m.tensorMaps.empty() ? std::vector<Cursor>() : root["tensor_maps"].elements();
  for (size_t i = 0; i < m.tensorMaps.size() && !root.failed(); ++i) {
    if (m.findTensorMap(m.tensorMaps[i].name) != &m.tensorMaps[i])
      maps[i]["name"].fail("duplicate tensor map '" + m.tensorMaps[i].name + "'");
    checkTensorMap(m.tensorMaps[i], names, maps[i]);
  }
  const std::vector<Cursor> kernels = root["kernels"].elements();
  for (size_t i = 0; i < m.kernels.size() && !root.failed(); ++i) {
    if (m.kernels[i].role >= KernelInfo::Role::Append && m.hasPlan())
      kernels[i]["role"].fail("expected no operation on a cache beside the kernels of an attention");
    const std::vector<Cursor> params = kernels[i]["params"].elements();
    for (size_t p = 0; p < m.kernels[i].params.size(); ++p)
      checkParameter(m.kernels[i].params[p], m, names, params[p]);
  }
  checkPlanArrays(m, root);
  checkLaunches(m, root);
}

} // namespace attn::rt

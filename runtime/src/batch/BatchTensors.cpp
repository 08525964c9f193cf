//===- BatchTensors.cpp - A batch from tensors ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::rt {

namespace {

/// Bytes of the shape; empty if they overflow.
std::optional<int64_t> bytesOf(const Tensor &tensor) {
  const std::optional<int64_t> elements = elementCount(tensor.shape);
  const auto size = static_cast<int64_t>(dtypeSize(tensor.dtype));
  return elements && *elements <= std::numeric_limits<int64_t>::max() / size ? std::optional(*elements * size)
                                                                             : std::nullopt;
}

Error missing(const std::string &name) { return inputError("tensor '" + name + "' is missing"); }

/// Looks tensors up, checks them against the manifest, and remembers the sizes of named dimensions.
class Binder {
public:
  Binder(const TensorMap &tensors, const TableContents &contents) : tensors_(tensors), contents_(contents) {}

  /// A dimension is a number, a name (equal wherever it occurs), or both: a name whose value is known.
  Result<const Tensor *> find(const std::string &name, DType dtype, std::initializer_list<DimInfo> dims) {
    return find(name, dtype, std::vector<DimInfo>(dims));
  }
  Result<const Tensor *> find(const std::string &name, DType dtype, const std::vector<DimInfo> &dims) {
    auto found = tensors_.find(name);
    if (found == tensors_.end())
      return missing(name);
    const Tensor &tensor = found->second;
    if (tensor.dtype != dtype)
      return inputError("tensor '" + name + "': expected dtype " + std::string(dtypeName(dtype)) + ", got " +
                        std::string(dtypeName(tensor.dtype)));
    bool fits = tensor.shape.size() == dims.size();
    for (size_t i = 0; fits && i < dims.size(); ++i)
      fits = fitsDim(dims[i], tensor.shape[i]);
    if (!fits)
      return inputError("tensor '" + name + "': expected shape " + wanted(dims) + ", got " +
                        shapeText(tensor.shape));
    const std::optional<int64_t> bytes = bytesOf(tensor);
    if (!bytes || (!tensor.bytes.empty() && *bytes != std::ssize(tensor.bytes)))
      return inputError("tensor '" + name + "': its bytes do not fill the shape " + shapeText(tensor.shape));
    return &tensor;
  }

  Status read(const std::string &name, const std::vector<DimInfo> &dims, std::vector<int32_t> &out) {
    Result<const Tensor *> tensor = find(name, DType::I32, dims);
    if (!tensor)
      return tensor.error();
    auto values = (*tensor)->as<int32_t>();
    if (const auto elsewhere = contents_.find(name); elsewhere != contents_.end())
      values = elsewhere->second;
    if (static_cast<int64_t>(values.size_bytes()) != *bytesOf(**tensor))
      return inputError("tensor '" + name + "': expected its contents, got a description");
    out.assign(values.begin(), values.end());
    return {};
  }

  /// Sets the size of a named dimension before a tensor does.
  void set(const std::string &name, int64_t size) { known_[name] = size; }
  int64_t dim(const std::string &name) const {
    auto found = known_.find(name);
    return found == known_.end() ? 0 : found->second;
  }

private:
  const TensorMap &tensors_;
  const TableContents &contents_;
  std::map<std::string, int64_t> known_;

  bool fitsDim(const DimInfo &dim, int64_t size) {
    if (dim.name.empty())
      return size == dim.value;
    return size >= 0 && known_.emplace(dim.name, size).first->second == size;
  }
  std::string wanted(const std::vector<DimInfo> &dims) const {
    std::string text = "[";
    for (const DimInfo &dim : dims) {
      text += text.size() > 1 ? ", " : "";
      auto found = known_.find(dim.name);
      if (dim.name.empty())
        text += std::to_string(dim.value);
      else
        text += dim.name + (found == known_.end() ? "" : " = " + std::to_string(found->second));
    }
    return text + "]";
  }
};

/// The name of the number of heads in the shapes of a store of one class.
std::string headsOf(const HeadClassInfo &headClass) { return headClass.name + " heads"; }

/// Kernels divide by scales and fold them into others. Scales on a device are not checked; their owner
/// vouches for them.
Status checkScales(const std::string &name, const Tensor &scales) {
  for (int64_t i = 0; i < scales.elements(); ++i)
    if (const double scale = scales.get(i); !std::isfinite(scale) || scale <= 0)
      return inputError("tensor '" + name + "': expected finite scales above 0, got " +
                        std::to_string(scale) + " at " + std::to_string(i));
  return {};
}

Status readOperand(const Manifest &manifest, const Argument &argument, Binder &binder,
                   OperandBatch &operand) {
  const std::string prefix = argument.name + ".";
  const Store store = storeOf(argument);
  std::string heads; // the shapes' name of a number that the classes of heads decide
  if (store.isOfClass())
    heads = headsOf(manifest.headClasses[static_cast<size_t>(argument.headClass)]);
  if (argument.ragged)
    operand.heads = static_cast<int32_t>(store.isOfClass() ? binder.dim(heads) : argument.kvHeads);
  const auto dimsOf = [&](const StoreTensor &tensor) {
    std::vector<DimInfo> dims;
    for (const StoreDim &dim : tensor.dims) {
      if (!dim.size)
        dims.push_back({"", dim.value});
      else if (*dim.size == StoreSize::Heads)
        dims.push_back({heads, 0});
      else
        dims.push_back(
            {prefix + std::string(sizeName(*dim.size)) + (dim.value ? " + " + std::to_string(dim.value) : ""),
             0});
    }
    return dims;
  };
  std::vector<int32_t> ranges;
  std::map<std::string, std::vector<int32_t> *> lists = {{"lengths", &operand.lengths},
                                                         {"pos0", &operand.pos0},
                                                         {"rows", &ranges},
                                                         {"start", &operand.start},
                                                         {"block_table", &operand.blockTable}};
  for (const StoreTensor &tensor : store.tables())
    if (Status s = binder.read(prefix + tensor.name, dimsOf(tensor), *lists.at(tensor.name)); !s)
      return s;
  operand.rowFirst.resize(ranges.size() / 2);
  operand.rowLast.resize(ranges.size() / 2);
  for (size_t i = 0; i < operand.rowFirst.size(); ++i) {
    operand.rowFirst[i] = ranges[2 * i];
    operand.rowLast[i] = ranges[2 * i + 1];
  }
  for (const StoreTensor &tensor : store.data()) {
    auto found = binder.find(prefix + tensor.name, tensor.dtype, dimsOf(tensor));
    if (!found)
      return found.error();
    if (tensor.content == StoreTensor::Content::Scales)
      if (Status s = checkScales(prefix + tensor.name, **found); !s)
        return s;
  }
  operand.pages = binder.dim(prefix + "pages");
  operand.maxPages = binder.dim(prefix + "max_pages");
  operand.tokens = binder.dim(prefix + "tokens");
  return {};
}

} // namespace

std::string quotedNames(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

std::vector<std::string> missingTensors(const Manifest &manifest, const TensorMap &tensors) {
  std::vector<std::string> missing;
  const auto want = [&](const std::string &name) {
    if (!tensors.count(name))
      missing.push_back(name);
  };
  const auto hasLengths = [&](const OperandInfo &operand) {
    return tensors.count(operand.argument + ".lengths") > 0;
  };
  want("q");
  if (tensors.count("q") && hasLengths(manifest.operands.front()))
    want("q_start");
  if (!manifest.headClasses.empty())
    want("classes");
  for (const OperandInfo &operand : manifest.operands) {
    const Argument &argument = manifest.argumentOf(operand);
    const Store store = storeOf(argument);
    std::vector<std::string> parts;
    for (const StoreTensor &tensor : store.data())
      parts.push_back(tensor.name);
    if (store.table())
      parts.emplace_back(tableName(*store.table()));
    if (store.isPaged() || argument.ragged)
      parts.emplace_back("lengths");
    if (hasLengths(operand) || manifest.operands.size() > 1)
      parts.emplace_back("pos0");
    if (hasLengths(operand) && tensors.count("q_start"))
      parts.emplace_back("rows");
    for (const std::string &part : parts)
      want(argument.name + "." + part);
  }
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Sink || argument.role == Argument::Role::Tensor)
      want(argument.name);
  return missing;
}

std::map<std::string, int32_t> resultSizes(const Manifest &manifest, const Batch &batch) {
  std::map<std::string, int32_t> sizes{{"rows", static_cast<int32_t>(batch.rows)}};
  for (size_t o = 0; o < batch.operands.size() && manifest.walksTokens(); ++o) {
    const std::string prefix = manifest.operands[o].argument + ".";
    sizes[prefix + std::string(sizeName(StoreSize::Instances))] =
        static_cast<int32_t>(batch.operands[o].instances());
    sizes[prefix + std::string(sizeName(StoreSize::Tokens))] = static_cast<int32_t>(batch.operands[o].tokens);
    sizes[prefix + std::string(sizeName(StoreSize::MaxPages))] =
        static_cast<int32_t>(batch.operands[o].maxPages);
  }
  return sizes;
}

Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors) {
  return batchFromTensors(manifest, tensors, {});
}

Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors,
                               const TableContents &contents) {
  if (const std::vector<std::string> names = missingTensors(manifest, tensors); names.size() > 1)
    return inputError("tensors " + quotedNames(names) + " are missing");
  else if (names.size() == 1)
    return missing(names.front());
  Binder binder(tensors, contents);
  Batch batch;
  const DimInfo rows{"rows", 0};
  if (auto q = binder.find("q", manifest.dtype, {rows, {"", manifest.qHeads}, {"", manifest.keyDim}}); !q)
    return q.error();
  batch.rows = binder.dim("rows");
  if (Status s = binder.read("q_start", {{"sequences + 1", 0}}, batch.qStart); !s)
    return s.error();
  if (Status s = binder.read("q_pos", {rows}, batch.qPos); !s)
    return s.error();
  if (!manifest.headClasses.empty()) {
    if (Status s = binder.read("classes", {{"", manifest.kvHeads}}, batch.classes); !s)
      return s.error();
    if (Status s = checkClasses(manifest, batch.classes); !s)
      return s.error();
    batch.otherBytes += static_cast<int64_t>(batch.classes.size()) * 4;
    const std::vector<int32_t> heads = classHeads(manifest, batch);
    for (size_t c = 0; c < heads.size(); ++c)
      binder.set(headsOf(manifest.headClasses[c]), heads[c]);
  } else if (tensors.count("classes")) { // all classes see the same tokens
    if (auto classes = binder.find("classes", DType::I32, {{"", manifest.kvHeads}}); !classes)
      return classes.error();
  }
  for (const OperandInfo &operand : manifest.operands) {
    batch.operands.emplace_back();
    if (Status s = readOperand(manifest, manifest.argumentOf(operand), binder, batch.operands.back()); !s)
      return s.error();
    for (const StoreTensor &tensor : storeOf(manifest.argumentOf(operand)).data())
      if (tensor.content == StoreTensor::Content::Scales)
        batch.otherBytes += *bytesOf(tensors.at(operand.argument + "." + tensor.name));
  }
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Sink || argument.role == Argument::Role::Tensor) {
      auto tensor = binder.find(argument.name, argument.dtype, argument.dims);
      if (!tensor)
        return tensor.error();
      // Kernels clamp indices to a table's extents, which needs at least one element. Rows may be absent.
      for (size_t axis = 0; axis < argument.dims.size(); ++axis)
        if ((*tensor)->shape[axis] == 0 && argument.dims[axis].name != rows.name)
          return inputError("tensor '" + argument.name +
                            "': expected at least 1 in each dimension, as score functions read elements of "
                            "it, got " +
                            shapeText((*tensor)->shape));
      batch.otherBytes += *bytesOf(**tensor);
    }
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Gate || argument.role == Argument::Role::OutputScale)
      if (tensors.count(argument.name)) // a batch may leave it out
        if (auto found = binder.find(argument.name, argument.dtype, argument.dims); !found)
          return found.error();
  if (Status s = checkBatch(manifest, batch); !s)
    return s.error();
  return batch;
}

} // namespace attn::rt

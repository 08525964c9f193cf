#include "attn_rt/Batch.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

/// Of the shape; none where that overflows.
std::optional<int64_t> bytesOf(const Tensor &tensor) {
  const std::optional<int64_t> elements = elementCount(tensor.shape);
  const auto size = static_cast<int64_t>(dtypeSize(tensor.dtype));
  return elements && *elements <= std::numeric_limits<int64_t>::max() / size ? std::optional(*elements * size)
                                                                             : std::nullopt;
}

Error missing(const std::string &name) { return inputError("tensor '" + name + "' is missing"); }

/// Looks tensors up, checks them against what the manifest says, and remembers what named dimensions turned
/// out to be.
class Binder {
public:
  explicit Binder(const TensorMap &tensors) : tensors_(tensors) {}

  /// A wanted dimension is a number, a name (equal wherever it occurs), or both: a name with its value known.
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
    const auto values = (*tensor)->as<int32_t>();
    if (values.empty() && *bytesOf(**tensor) > 0)
      return inputError("tensor '" + name + "': expected its contents, got a description");
    out.assign(values.begin(), values.end());
    return {};
  }

  /// Says what a named dimension is before a tensor does.
  void set(const std::string &name, int64_t size) { known_[name] = size; }
  int64_t dim(const std::string &name) const {
    auto found = known_.find(name);
    return found == known_.end() ? 0 : found->second;
  }

private:
  const TensorMap &tensors_;
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

/// The number of heads as shapes call it where the store is that of one class.
std::string headsOf(const HeadClassInfo &headClass) { return headClass.name + " heads"; }

Status readOperand(const Manifest &manifest, const Argument &argument, Binder &binder,
                   OperandBatch &operand) {
  const std::string prefix = argument.name + ".";
  const DimInfo instances{prefix + "instances", 0};
  DimInfo heads{"", argument.kvHeads};
  if (argument.headClass >= 0)
    heads.name = headsOf(manifest.headClasses[static_cast<size_t>(argument.headClass)]);
  const DimInfo keyDim{"", argument.keyDim}, valueDim{"", argument.valueDim};
  std::vector<DimInfo> lists{instances}; // of tokens: one for each instance, or for each of its heads
  if (argument.ragged) {
    lists.push_back(heads);
    operand.heads = static_cast<int32_t>(argument.headClass < 0 ? argument.kvHeads : binder.dim(heads.name));
  }
  if (Status s = binder.read(prefix + "lengths", lists, operand.lengths); !s)
    return s;
  if (Status s = binder.read(prefix + "pos0", {instances}, operand.pos0); !s)
    return s;
  std::vector<int32_t> ranges;
  if (Status s = binder.read(prefix + "rows", {instances, {"", 2}}, ranges); !s)
    return s;
  for (size_t i = 0; i < ranges.size(); i += 2) {
    operand.rowFirst.push_back(ranges[i]);
    operand.rowLast.push_back(ranges[i + 1]);
  }
  if (argument.store == Argument::Store::Paged) {
    lists.push_back({prefix + "max_pages", 0});
    if (Status s = binder.read(prefix + "block_table", lists, operand.blockTable); !s)
      return s;
    const DimInfo pages{prefix + "pages", 0}, page{"", argument.page};
    if (auto t = binder.find(prefix + "k_pages", argument.keyDType, {pages, page, heads, keyDim}); !t)
      return t.error();
    if (auto t = binder.find(prefix + "v_pages", argument.valueDType, {pages, page, heads, valueDim}); !t)
      return t.error();
    operand.pages = binder.dim(pages.name);
    operand.maxPages = binder.dim(prefix + "max_pages");
    return {};
  }
  const DimInfo tokens{prefix + "tokens", 0};
  std::vector<DimInfo> k{tokens, heads, keyDim}, v{tokens, heads, valueDim};
  if (argument.store == Argument::Store::Dense) {
    k.insert(k.begin(), instances);
    v.insert(v.begin(), instances);
  } else {
    if (Status s = binder.read(prefix + "start", {{prefix + "instances + 1", 0}}, operand.start); !s)
      return s;
  }
  if (auto t = binder.find(prefix + "k", argument.keyDType, k); !t)
    return t.error();
  if (auto t = binder.find(prefix + "v", argument.valueDType, v); !t)
    return t.error();
  operand.tokens = binder.dim(tokens.name);
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
    const bool paged = argument.store == Argument::Store::Paged;
    std::vector<const char *> parts = {paged ? "k_pages" : "k", paged ? "v_pages" : "v"};
    if (argument.store != Argument::Store::Dense)
      parts.push_back(paged ? "block_table" : "start");
    if (paged || argument.ragged)
      parts.push_back("lengths");
    if (hasLengths(operand) || manifest.operands.size() > 1)
      parts.push_back("pos0");
    if (hasLengths(operand) && tensors.count("q_start"))
      parts.push_back("rows");
    for (const char *part : parts)
      want(argument.name + "." + part);
  }
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Sink || argument.role == Argument::Role::Tensor)
      want(argument.name);
  return missing;
}

Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors) {
  if (const std::vector<std::string> names = missingTensors(manifest, tensors); names.size() > 1)
    return inputError("tensors " + quotedNames(names) + " are missing");
  else if (names.size() == 1)
    return missing(names.front());
  Binder binder(tensors);
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
  } else if (tensors.count("classes")) { // that came to see alike
    if (auto classes = binder.find("classes", DType::I32, {{"", manifest.kvHeads}}); !classes)
      return classes.error();
  }
  for (const OperandInfo &operand : manifest.operands) {
    batch.operands.emplace_back();
    if (Status s = readOperand(manifest, manifest.argumentOf(operand), binder, batch.operands.back()); !s)
      return s.error();
  }
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Sink || argument.role == Argument::Role::Tensor) {
      auto tensor = binder.find(argument.name, argument.dtype, argument.dims);
      if (!tensor)
        return tensor.error();
      batch.otherBytes += *bytesOf(**tensor);
    }
  if (Status s = checkBatch(manifest, batch); !s)
    return s.error();
  return batch;
}

} // namespace attn::rt

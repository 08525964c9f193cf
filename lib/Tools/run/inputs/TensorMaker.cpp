//===- TensorMaker.cpp - Stores, tables and small tensors -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TensorMaker.h"

#include "Normal.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <unistd.h>

using namespace attn;
using namespace attn::run;

namespace {

/// A bound for drawn normal numbers.
constexpr double normalReach = 8;

/// Draws a factor from 1/2 to 2.
double drawFactor(rt::Random &random) {
  return std::exp2(static_cast<double>(random.below(2001)) / 1000 - 1);
}

/// Writes the metadata of one row, which differs by up to 4 from that of others, so that reading another
/// row's is detected. Uniform integer elements then reach some 2 to each side of 0.
void drawMeta(rt::Format format, int64_t dim, rt::Random &random, uint8_t *meta) {
  const auto factor = [&] { return drawFactor(random); };
  if (format.hasBlocks()) { // all elements of e2m1 are equally likely
    const double usual = format.bits == 4 ? format.element().largest() / 2 : normalReach;
    for (int64_t g = 0; g < format.groups(dim); ++g)
      meta[g] = rt::findBlockScale(format, static_cast<float>(usual * factor()), /*scale=*/1);
    return;
  }
  for (int64_t g = 0; g < format.groups(dim); ++g, meta += 4) {
    if (format.isInteger()) {
      const double range = 4 * factor();
      const uint16_t pair[] = {rt::toF16(range / format.levels()), rt::toF16(-range / 2 * factor())};
      std::memcpy(meta, pair, sizeof pair);
    } else {
      const auto scale = static_cast<float>(format.scaleFor(normalReach) * factor());
      std::memcpy(meta, &scale, sizeof scale);
    }
  }
}

} // namespace

rt::Status run::checkMemory(const std::string &name, const std::vector<int64_t> &shape, rt::DType dtype) {
  auto count = rt::elementCount(shape);
  double have = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double need = count ? static_cast<double>(*count) * static_cast<double>(rt::dtypeSize(dtype)) : 0;
  if (count && need < have / 4)
    return {};
  return rt::inputError("'" + name + "' of shape " + rt::shapeText(shape) +
                        " is too large for this machine, which has " +
                        std::to_string(static_cast<int64_t>(have / 1e9)) +
                        " GB of memory; one tensor may take a quarter of it");
}

rt::Status TensorMaker::addQuery(const std::vector<int32_t> &qStart, const std::vector<int32_t> &positions) {
  const auto rows = static_cast<int64_t>(positions.size());
  std::vector<int64_t> shape = {rows, arguments.query.shape[1], arguments.query.shape[2]};
  if (rt::Status status = checkMemory("q", shape, arguments.query.dtype); !status)
    return status;
  if (!arguments.query.dims.empty())
    setSize(arguments.query.dims.front(), rows);
  tensors["q"] = normalTensor(arguments.query.dtype, shape, seed, "q");
  tensors["q_start"] = i32Tensor({static_cast<int64_t>(qStart.size())}, qStart);
  tensors["q_pos"] = i32Tensor({rows}, positions);
  return {};
}

rt::Status TensorMaker::addKV(const KVArgument &kv, const Instances &instances) {
  const std::vector<int64_t> lengths = instances.lengths();
  const auto count = static_cast<int64_t>(instances.pos0.size());
  const int64_t tokens = std::accumulate(instances.runs.begin(), instances.runs.end(), int64_t(0));
  const int64_t heads = headsOf(kv), together = kv.ragged ? 1 : heads;
  if (rt::Status status =
          checkMemory(kv.name, {tokens, together, std::max(kv.keyDim, kv.valueDim)}, kv.key.codes);
      !status)
    return status;
  std::vector<int64_t> lists = {count};
  if (kv.ragged)
    lists.push_back(heads);
  tensors[kv.name + ".lengths"] = i32Tensor(lists, std::vector<int32_t>(lengths.begin(), lengths.end()));
  tensors[kv.name + ".pos0"] = i32Tensor({count}, instances.pos0);
  if (!instances.rows.empty())
    tensors[kv.name + ".rows"] = i32Tensor({count, 2}, instances.rows);

  const rt::Store store = kv.layout(heads);
  if (store.isPaged()) {
    lists.push_back(store.entriesOf(longestOf(lengths)));
    if (rt::Status status = checkMemory(kv.name + ".block_table", lists, rt::DType::I32); !status)
      return status;
  }
  std::vector<int64_t> slots; // of every token of every run: in units of `together` heads
  Sizes sizes = placeTokens(kv.name, store, instances, slots);
  sizes[rt::StoreSize::Heads] = heads;
  // Tokens have all their heads at one address, or each head's lines at another.
  const int64_t apart = store.isStrided() ? together : 1;
  const std::vector<int64_t> lines = store.isStrided() ? slots : linesOf(store, slots);
  for (const rt::StoreTensor &tensor : store.data()) {
    std::vector<int64_t> shape;
    shape.reserve(tensor.dims.size());
    for (const rt::StoreDim &dim : tensor.dims)
      shape.push_back(dim.size ? sizes[*dim.size] : dim.value);
    const std::string name = kv.name + "." + tensor.name;
    const rt::StorePart &part = store.part(tensor.name.front() == store.keys.letter);
    if (tensor.content == rt::StoreTensor::Content::Lines)
      addLines(name, rt::Tensor(tensor.dtype, shape), part, lines);
    else if (tensor.content == rt::StoreTensor::Content::Scales)
      addScales(name, rt::Tensor(tensor.dtype, shape), part.format);
    else if (part.format.isMixed())
      addMixed(name, rt::Tensor(tensor.dtype, shape), part, lines, apart);
    else if (rt::Status status =
                 addTokens(name, shape, part.format, lines, apart * part.format.rowCodes(part.dim));
             !status)
      return status;
  }
  return {};
}

/// Returns the lines of every head of every slot; slots of ragged stores have one head each.
std::vector<int64_t> TensorMaker::linesOf(const rt::Store &store, const std::vector<int64_t> &slots) {
  std::vector<int64_t> lines;
  lines.reserve(slots.size() * (store.ragged ? 1 : store.heads));
  rt::StoreNumbers numbers{.table = {}, .heads = store.heads};
  for (const int64_t slot : slots) {
    if (store.ragged) {
      numbers.head = slot % store.heads;
      lines.push_back(store.lineOf(numbers, slot / store.heads));
      continue;
    }
    for (numbers.head = 0; numbers.head < store.heads; ++numbers.head)
      lines.push_back(store.lineOf(numbers, slot));
  }
  return lines;
}

/// Adds metadata of lines that hold tokens; other lines are NaN.
void TensorMaker::addLines(const std::string &name, rt::Tensor tensor, const rt::StorePart &part,
                           const std::vector<int64_t> &lines) {
  if (part.format.hasBlocks())
    std::ranges::fill(tensor.bytes, uint8_t{0xff});
  else
    tensor.fill(std::numeric_limits<double>::quiet_NaN());
  rt::Random random(seed, name);
  const int64_t bytes = part.format.metaBytes(part.dim);
  for (const int64_t line : lines)
    drawMeta(part.format, part.dim, random, tensor.bytes.data() + line * bytes);
  tensors[name] = std::move(tensor);
}

/// Adds scales of a tensor or of its heads.
void TensorMaker::addScales(const std::string &name, rt::Tensor tensor, rt::Format format) {
  rt::Random random(seed, name);
  const double usual = format.hasBlocks() ? 0.5 : format.scaleFor(normalReach);
  for (float &scale : std::span(tensor.data<float>(), static_cast<size_t>(tensor.elements())))
    scale = static_cast<float>(usual * drawFactor(random));
  tensors[name] = std::move(tensor);
}

rt::Status TensorMaker::addTokens(const std::string &name, const std::vector<int64_t> &shape,
                                  rt::Format format, const std::vector<int64_t> &slots, int64_t line) {
  if (rt::Status status = checkMemory(name, shape, format.codes); !status)
    return status;
  rt::Tensor tensor(format.codes, shape);
  if (format.codes == rt::DType::U8)
    std::ranges::fill(tensor.bytes, uint8_t{0xff}); // their metadata is NaN
  else
    tensor.fill(std::numeric_limits<double>::quiet_NaN());
  // Floats with scales are normal numbers quantized for the largest number that can be drawn.
  NormalSource(format.codes, format.codes == rt::DType::U8 ? 1 : 1 / format.scaleFor(normalReach))
      .fill(tensor.bytes.data(), slots, line, rt::Random(seed, name));
  tensors[name] = std::move(tensor);
  return {};
}

/// Adds lines of quantized features, their scales and a rest; a slot has `heads` of them. The magnitudes of
/// groups differ by up to 4, so that the scale of another group is detected. Bytes of other lines are parts
/// of NaNs.
void TensorMaker::addMixed(const std::string &name, rt::Tensor tensor, const rt::StorePart &part,
                           const std::vector<int64_t> &slots, int64_t heads) {
  std::ranges::fill(tensor.bytes, uint8_t{0xff});
  const rt::Tensor normal = normalTensor(rt::DType::F32, {std::ssize(slots) * heads, part.dim}, seed, name);
  const int64_t bytes = part.format.rowBytes(part.dim);
  rt::Random random(seed, name + ".magnitudes");
  std::vector<float> row(static_cast<size_t>(part.dim));
  for (int64_t line = 0; line < normal.shape[0]; ++line) {
    float factor = 1;
    for (int64_t f = 0; f < part.dim; ++f) {
      if (f % part.format.group == 0)
        factor = static_cast<float>(drawFactor(random));
      row[static_cast<size_t>(f)] = normal.as<float>()[line * part.dim + f] * factor;
    }
    const int64_t place = slots[static_cast<size_t>(line / heads)] * heads + line % heads;
    rt::quantizeRow(part.format, row, nullptr, tensor.bytes.data() + place * bytes);
  }
  tensors[name] = std::move(tensor);
}

rt::Status TensorMaker::addRest() {
  for (const TensorArgument &other : arguments.others)
    if (rt::Status status = addOther(other); !status)
      return status;
  return {};
}

/// Adds a table of small numbers: a bias or a slope times thousands of tokens must leave the scores usable.
rt::Status TensorMaker::addOther(const TensorArgument &other) {
  std::vector<int64_t> shape = other.shape;
  size_t next = 0;
  for (int64_t &dim : shape) {
    if (dim >= 0)
      continue;
    std::string name = next < other.dims.size() ? other.dims[next++] : "";
    if (auto found = known.find(name); found != known.end()) {
      dim = found->second;
      continue;
    }
    if (!dims.has(name))
      return rt::inputError("the dimension '" + name + "' of '" + other.name + "' has no size: give --dim " +
                            name + "=N");
    auto size = dims.one(name, 0);
    if (!size)
      return size.error();
    dim = known[name] = *size;
  }
  if (rt::Status status = checkMemory(other.name, shape, other.dtype); !status)
    return status;
  if (other.name == "output_scale") { // outputs of one token and averages of many are normal numbers of e4m3
    tensors[other.name] = rt::Tensor(other.dtype, shape);
    tensors[other.name].set(0, 0x1p-6);
    return {};
  }
  tensors[other.name] = normalTensor(other.dtype, shape, seed, other.name,
                                     other.name == "sink_logits" || other.name == "gate" ? 1 : 0.1);
  return {};
}

/// Assigns heads to classes in turn. If --dim gives the number of heads of some classes, the rest are
/// assigned to the others, and all are shuffled.
rt::Status TensorMaker::addClasses() {
  if (!arguments.classes)
    return {};
  const ClassesArgument &classes = *arguments.classes;
  std::vector<int32_t> heads, others;
  for (size_t c = 0; c < classes.names.size(); ++c) {
    const std::string &name = classes.names[c];
    if (!dims.has(name)) {
      others.push_back(static_cast<int32_t>(c));
      continue;
    }
    if (namesDimension(name))
      return rt::inputError("--dim " + name +
                            " could be the dimension or the head class of this name: rename "
                            "one of them in the file");
    auto count = dims.one(name, 0);
    if (!count)
      return count.error();
    int64_t left = classes.heads - static_cast<int64_t>(heads.size());
    if (*count > left)
      return rt::inputError("--dim " + name + " expects at most " + std::to_string(left) + " of the " +
                            std::to_string(classes.heads) + " KV heads, got " + std::to_string(*count));
    heads.insert(heads.end(), *count, static_cast<int32_t>(c));
  }
  bool given = others.size() < classes.names.size();
  if (classes.names.empty())
    others.push_back(0);
  if (others.empty() && static_cast<int64_t>(heads.size()) < classes.heads)
    return rt::inputError("--dim gives classes to " + std::to_string(heads.size()) + " of the " +
                          std::to_string(classes.heads) + " KV heads");
  for (size_t i = 0; static_cast<int64_t>(heads.size()) < classes.heads; ++i)
    heads.push_back(others[i % others.size()]);
  rt::Random random(seed, "classes");
  for (int64_t i = classes.heads - 1; given && i > 0; --i)
    std::swap(heads[i], heads[random.below(i + 1)]);
  tensors["classes"] = i32Tensor({classes.heads}, heads);
  classHeads.assign(std::max<size_t>(classes.names.size(), 1), 0);
  for (int32_t headClass : heads)
    ++classHeads[headClass];
  return {};
}

bool TensorMaker::namesDimension(const std::string &name) const {
  const auto among = [&](const std::vector<std::string> &names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return known.count(name) || among(arguments.query.dims) ||
         std::any_of(arguments.kv.begin(), arguments.kv.end(),
                     [&](const KVArgument &kv) { return among({kv.instancesDim, kv.tokensDim}); }) ||
         std::any_of(arguments.others.begin(), arguments.others.end(),
                     [&](const TensorArgument &other) { return among(other.dims); });
}

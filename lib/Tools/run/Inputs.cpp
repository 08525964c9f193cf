//===- Inputs.cpp - Tensors for a problem ---------------------------------===//
#include "Inputs.h"

#include "Normal.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unistd.h>

using namespace attn;
using namespace attn::run;

namespace {

/// No page has this index: what unused entries of a block table hold.
constexpr int32_t noPage = std::numeric_limits<int32_t>::max();

rt::Tensor i32Tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values) {
  return rt::Tensor::ofI32(std::move(shape), values);
}

/// The machine's memory is the limit on what may be generated.
rt::Status checkMemory(const std::string &name, const std::vector<int64_t> &shape, rt::DType dtype) {
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

/// Generates one problem; the members are what later arguments build on.
class Generator {
public:
  Generator(const Arguments &arguments, Dims &dims, uint64_t seed)
      : arguments(arguments), dims(dims), seed(seed) {}

  rt::Result<rt::TensorMap> run() {
    auto batchSize = dims.one("batch", 4);
    if (!batchSize)
      return batchSize.error();
    batch = *batchSize;
    if (batch < 1 || batch > 1 << 20)
      return rt::inputError("--dim batch expects 1 to 1048576 sequences, got " + std::to_string(batch));
    known["batch"] = batch;
    std::vector<int64_t> queryLengths = dims.many("q_len", batch, 1, seed);
    int64_t rows = std::accumulate(queryLengths.begin(), queryLengths.end(), int64_t(0));
    known["q_len"] = *std::max_element(queryLengths.begin(), queryLengths.end());
    if (!arguments.query.dims.empty()) {
      const std::string &rowsDim = arguments.query.dims.front();
      if (dims.has(rowsDim) && !known.count(rowsDim))
        return rt::inputError("--dim " + rowsDim + " follows from batch and q_len: give those");
      known[rowsDim] = rows;
    }
    std::vector<int64_t> queryShape = {rows, arguments.query.shape[1], arguments.query.shape[2]};
    if (rt::Status status = checkMemory("q", queryShape, arguments.query.dtype); !status)
      return status.error();
    start.resize(batch + 1);
    std::partial_sum(queryLengths.begin(), queryLengths.end(), start.begin() + 1);
    end.resize(batch);

    for (const KVArgument &kv : arguments.kv)
      if (rt::Status status = addKV(kv); !status)
        return status.error();

    std::vector<int32_t> positions;
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t r = 0; r < queryLengths[s]; ++r)
        positions.push_back(static_cast<int32_t>(end[s] - queryLengths[s] + r));
    tensors["q"] = normalTensor(arguments.query.dtype, queryShape, seed, "q");
    tensors["q_start"] = i32Tensor({batch + 1}, std::vector<int32_t>(start.begin(), start.end()));
    tensors["q_pos"] = i32Tensor({rows}, positions);

    for (const TensorArgument &other : arguments.others)
      if (rt::Status status = addOther(other); !status)
        return status.error();
    if (arguments.classes)
      if (rt::Status status = addClasses(*arguments.classes); !status)
        return status.error();
    return std::move(tensors);
  }

private:
  rt::Status addKV(const KVArgument &kv) {
    int64_t instances = batch;
    if (kv.instancesDim != "batch") {
      auto count = dims.one(kv.instancesDim, 1);
      if (!count)
        return count.error();
      instances = *count;
      if (instances < 1 || instances > batch)
        return rt::inputError("--dim " + kv.instancesDim + " expects 1 to " + std::to_string(batch) +
                              " instances for a batch of " + std::to_string(batch) + ", got " +
                              std::to_string(instances));
    }
    std::vector<int64_t> lengths = dims.many(kv.tokensDim, instances, 512, seed);
    int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t(0));
    if (rt::Status status =
            checkMemory(kv.name, {tokens, kv.heads, std::max(kv.keyDim, kv.valueDim)}, kv.key);
        !status)
      return status;
    known[kv.instancesDim] = instances;
    known[kv.tokensDim] = *std::max_element(lengths.begin(), lengths.end());

    // Sequence s sees instance s * instances / batch; its tokens follow those of the arguments before.
    std::vector<int32_t> rowRanges, pos0(instances);
    for (int64_t i = 0, s = 0; i < instances; ++i) {
      int64_t first = s;
      for (; s < batch && s * instances / batch == i; ++s)
        pos0[i] = static_cast<int32_t>(std::max<int64_t>(pos0[i], end[s]));
      for (int64_t member = first; member < s; ++member)
        if (end[member] != pos0[i])
          return rt::inputError("'" + kv.name +
                                "' is shared by sequences whose tokens before it differ in number; "
                                "put shared arguments first, or share the earlier ones alike");
      for (int64_t member = first; member < s; ++member)
        end[member] = pos0[i] + lengths[i];
      rowRanges.push_back(static_cast<int32_t>(start[first]));
      rowRanges.push_back(static_cast<int32_t>(start[s]));
    }
    std::vector<int32_t> lengths32(lengths.begin(), lengths.end());
    tensors[kv.name + ".lengths"] = i32Tensor({instances}, lengths32);
    tensors[kv.name + ".pos0"] = i32Tensor({instances}, pos0);
    if (kv.instancesDim != "batch")
      tensors[kv.name + ".rows"] = i32Tensor({instances, 2}, rowRanges);

    std::vector<int64_t> slots; // of every token of every instance, in units of (kv_heads, dim)
    std::vector<int64_t> shape = placeTokens(kv, lengths, slots);
    auto add = [&](const char *part, int64_t dim, rt::DType dtype) -> rt::Status {
      std::string name = kv.name + part + (kv.store == Store::Paged ? "_pages" : "");
      std::vector<int64_t> full = shape;
      full.push_back(kv.heads);
      full.push_back(dim);
      if (rt::Status status = checkMemory(name, full, dtype); !status)
        return status;
      rt::Tensor tensor(dtype, full);
      tensor.fill(std::numeric_limits<double>::quiet_NaN());
      NormalSource source(dtype);
      rt::Random random(seed, name);
      source.fill(tensor.bytes.data(), slots, kv.heads * dim, random);
      tensors[name] = std::move(tensor);
      return {};
    };
    if (rt::Status status = add(".k", kv.keyDim, kv.key); !status)
      return status;
    return add(".v", kv.valueDim, kv.value);
  }

  /// Finds a slot for every token and adds the tensors that say where they are. Returns the dimensions of the
  /// key and value tensors before [kv_heads, dim].
  std::vector<int64_t> placeTokens(const KVArgument &kv, const std::vector<int64_t> &lengths,
                                   std::vector<int64_t> &slots) {
    int64_t instances = static_cast<int64_t>(lengths.size());
    int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    auto place = [&](auto slotOf) {
      slots.reserve(std::accumulate(lengths.begin(), lengths.end(), int64_t(0)));
      for (int64_t i = 0; i < instances; ++i)
        for (int64_t t = 0; t < lengths[i]; ++t)
          slots.push_back(slotOf(i, t));
    };
    if (kv.store == Store::Dense) {
      int64_t capacity = longest + 3;
      place([&](int64_t i, int64_t t) { return i * capacity + t; });
      return {instances, capacity};
    }
    if (kv.store == Store::Packed) {
      std::vector<int32_t> starts(instances + 1);
      for (int64_t i = 0; i < instances; ++i)
        starts[i + 1] = static_cast<int32_t>(starts[i] + lengths[i] + i % 3);
      place([&](int64_t i, int64_t t) { return starts[i] + t; });
      tensors[kv.name + ".start"] = i32Tensor({instances + 1}, starts);
      return {std::max<int64_t>(starts.back(), 1)};
    }
    auto pagesOf = [&](int64_t length) { return (length + kv.page - 1) / kv.page; };
    int64_t used = 0;
    for (int64_t length : lengths)
      used += pagesOf(length);
    int64_t pool = used + used / 8 + 2, columns = pagesOf(longest) + 1;
    std::vector<int32_t> order(pool), table(instances * columns, noPage);
    std::iota(order.begin(), order.end(), 0);
    rt::Random random(seed, kv.name + ".block_table");
    for (int64_t i = pool - 1; i > 0; --i)
      std::swap(order[i], order[random.below(i + 1)]);
    for (int64_t i = 0, next = 0; i < instances; ++i)
      for (int64_t p = 0; p < pagesOf(lengths[i]); ++p)
        table[i * columns + p] = order[next++];
    place([&](int64_t i, int64_t t) { return table[i * columns + t / kv.page] * kv.page + t % kv.page; });
    tensors[kv.name + ".block_table"] = i32Tensor({instances, columns}, table);
    return {pool, kv.page};
  }

  /// Tables of small numbers: a bias or a slope times thousands of tokens must leave the scores usable.
  rt::Status addOther(const TensorArgument &other) {
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
        return rt::inputError("the dimension '" + name + "' of '" + other.name +
                              "' has no size: give --dim " + name + "=N");
      auto size = dims.one(name, 0);
      if (!size)
        return size.error();
      dim = known[name] = *size;
    }
    if (rt::Status status = checkMemory(other.name, shape, other.dtype); !status)
      return status;
    tensors[other.name] =
        normalTensor(other.dtype, shape, seed, other.name, other.name == "sink_logits" ? 1 : 0.1);
    return {};
  }

  /// Heads take turns in the classes. Where --dim says how many heads some classes have, the rest take turns
  /// in the others, and all are shuffled.
  rt::Status addClasses(const ClassesArgument &classes) {
    std::vector<int32_t> heads, others;
    for (size_t c = 0; c < classes.names.size(); ++c) {
      const std::string &name = classes.names[c];
      if (!dims.has(name)) {
        others.push_back(static_cast<int32_t>(c));
        continue;
      }
      if (known.count(name))
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
    return {};
  }

  const Arguments &arguments;
  Dims &dims;
  uint64_t seed;
  int64_t batch = 0;
  std::vector<int64_t> start;           ///< first row of each sequence, and the end
  std::vector<int64_t> end;             ///< position after the last token so far of each sequence
  std::map<std::string, int64_t> known; ///< sizes of named dimensions so far
  rt::TensorMap tensors;
};

/// The names of the tensors that the arguments expand into, in the order of the operand model.
std::vector<std::string> tensorNames(const Arguments &arguments) {
  std::vector<std::string> names = {"q", "q_start", "q_pos"};
  for (const KVArgument &kv : arguments.kv) {
    bool paged = kv.store == Store::Paged;
    for (const char *part :
         {paged ? ".k_pages" : ".k", paged ? ".v_pages" : ".v", ".lengths", ".pos0", ".rows"})
      names.push_back(kv.name + part);
    if (kv.store != Store::Dense)
      names.push_back(kv.name + (paged ? ".block_table" : ".start"));
  }
  for (const TensorArgument &other : arguments.others)
    names.push_back(other.name);
  if (arguments.classes)
    names.push_back("classes");
  return names;
}

/// Every dimension that --dim can set.
std::vector<std::string> dimensionNames(const Arguments &arguments) {
  std::vector<std::string> names = {"batch", "q_len"};
  auto add = [&](const std::string &name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  for (const KVArgument &kv : arguments.kv) {
    add(kv.instancesDim);
    add(kv.tokensDim);
  }
  for (const TensorArgument &other : arguments.others)
    for (const std::string &name : other.dims)
      add(name);
  if (arguments.classes)
    for (const std::string &name : arguments.classes->names)
      add(name);
  return names;
}

std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

} // namespace

rt::Result<rt::TensorMap> run::generateInputs(const Arguments &arguments, Dims &dims, uint64_t seed) {
  auto tensors = Generator(arguments, dims, seed).run();
  if (tensors)
    if (auto unused = dims.unused(); !unused.empty())
      return rt::inputError("--dim " + unused.front() + ": this problem has no such dimension; it has: " +
                            joined(dimensionNames(arguments)));
  return tensors;
}

rt::Status run::checkNames(const Arguments &arguments, const rt::TensorMap &tensors) {
  std::vector<std::string> names = tensorNames(arguments);
  for (const auto &[name, tensor] : tensors)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return rt::inputError("tensor '" + name + "' belongs to no argument; expected: " + joined(names));
  return {};
}

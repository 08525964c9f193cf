//===- CacheInputs.cpp - Tensors for an operation on a cache --------------===//
#include "CacheInputs.h"

#include "attn_rt/CacheRows.h"
#include "attn_rt/Random.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unistd.h>

using namespace attn;
using namespace attn::run;
using mlir::attn::Role;

namespace {

class Generator {
public:
  Generator(const mlir::attn::Signature &signature, const rt::Manifest &manifest, Dims &dims, uint64_t seed)
      : signature(signature), manifest(manifest), dims(dims), seed(seed) {}

  rt::Result<rt::TensorMap> run() {
    const rt::Argument *cache = nullptr;
    std::string countName;
    for (const rt::Argument &argument : manifest.arguments)
      cache = argument.role == rt::Argument::Role::KV ? &argument : cache;
    for (const mlir::attn::Argument &argument : signature.arguments) {
      if (argument.role == Role::KV)
        countName = argument.dims[1];
      if (argument.role != Role::Slots)
        if (rt::Status status = size(argument.dims[0], 2, layers, "layers"); !status)
          return status.error();
      if (argument.role != Role::KV)
        if (rt::Status status = size(argument.dims.back(), 64, rows, "rows"); !status)
          return status.error();
    }
    const rt::Store store = rt::storeOf(*cache);
    bool move = manifest.rowCopy()->role == rt::KernelInfo::Role::Move;
    int64_t least = *rows * (move ? 2 : 1);
    if (store.isPaged())
      least = store.entriesOf(least);
    std::optional<int64_t> count;
    if (rt::Status status = size(countName, 2 * least + 1, count, "pages"); !status)
      return status.error();
    if (*count < least)
      return rt::inputError("--dim " + countName + " expects at least " + std::to_string(least) + " for " +
                            std::to_string(*rows) + " rows, got " + std::to_string(*count));

    for (const rt::StorePart &part : {store.keys, store.values}) {
      std::vector<int64_t> pool = {*layers};
      for (const rt::StoreDim &dim : store.slotDims())
        pool.push_back(dim.size ? *count : dim.value);
      pool.insert(pool.end(), {store.heads, part.dim});
      const rt::DType dtype = part.format.codes;
      if (rt::Status status = addBits(cache->name + "." + store.codesName(part), dtype, pool); !status)
        return status.error();
      if (manifest.rowCopy()->role == rt::KernelInfo::Role::Append)
        if (rt::Status status =
                addBits(std::string(1, part.letter), dtype, {*layers, *rows, store.heads, part.dim});
            !status)
          return status.error();
    }
    addLists(store.slots(1, *count, *count), move);
    if (auto unused = dims.unused(); !unused.empty())
      return rt::inputError("--dim " + unused.front() +
                            ": this function has no such dimension; it has: " + known());
    return std::move(tensors);
  }

private:
  rt::Status size(const std::string &name, int64_t fallback, std::optional<int64_t> &value,
                  const char *what) {
    names.push_back(name);
    auto given = dims.one(name, fallback);
    if (!given)
      return given.error();
    if (value && *value != *given)
      return rt::inputError("--dim " + name + ": all arguments have one number of " + what + ", got " +
                            std::to_string(*value) + " and " + std::to_string(*given));
    value = *given;
    return {};
  }

  rt::Status addBits(const std::string &name, rt::DType dtype, std::vector<int64_t> shape) {
    auto count = rt::elementCount(shape);
    double have = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
    if (!count || static_cast<double>(*count) * static_cast<double>(rt::dtypeSize(dtype)) >= have / 8)
      return rt::inputError("'" + name + "' of shape " + rt::shapeText(shape) +
                            " is too large for this machine, which has " +
                            std::to_string(static_cast<int64_t>(have / 1e9)) + " GB of memory");
    rt::Tensor tensor(dtype, std::move(shape));
    rt::Random random(seed, name);
    for (size_t i = 0; i < tensor.bytes.size(); i += 8) {
      uint64_t bits = random.next();
      std::memcpy(tensor.bytes.data() + i, &bits, std::min<size_t>(8, tensor.bytes.size() - i));
    }
    tensors[name] = std::move(tensor);
    return {};
  }

  void addLists(int64_t slots, bool move) {
    std::vector<int32_t> order(slots);
    std::iota(order.begin(), order.end(), 0);
    rt::Random random(seed, "slots");
    for (int64_t i = slots - 1; i > 0; --i)
      std::swap(order[i], order[random.below(i + 1)]);
    order.resize(*rows * (move ? 2 : 1));
    for (int64_t row = 0; row < *rows; ++row)
      if (random.below(16) == 0)
        for (int64_t list = 0; list < (move ? 2 : 1); ++list)
          order[list * *rows + row] = -1;
    auto list = [&](int64_t which) {
      return rt::Tensor::ofI32({*rows}, std::span(order).subspan(which * *rows, *rows));
    };
    tensors[move ? "from" : "slots"] = list(0);
    if (move)
      tensors["to"] = list(1);
  }

  std::string known() const {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
      if (std::find(names.begin(), names.begin() + i, names[i]) == names.begin() + i)
        text += (text.empty() ? "" : ", ") + names[i];
    return text;
  }

  const mlir::attn::Signature &signature;
  const rt::Manifest &manifest;
  Dims &dims;
  uint64_t seed;
  std::optional<int64_t> layers, rows;
  std::vector<std::string> names;
  rt::TensorMap tensors;
};

} // namespace

rt::Result<rt::TensorMap> run::generateCacheInputs(const mlir::attn::Signature &signature,
                                                   const rt::Manifest &manifest, Dims &dims, uint64_t seed) {
  return Generator(signature, manifest, dims, seed).run();
}

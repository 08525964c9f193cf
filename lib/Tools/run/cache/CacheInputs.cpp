//===- CacheInputs.cpp - Tensors for an operation on a cache --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CacheInputs.h"

#include "run/inputs/Normal.h"

#include "attn_rt/cache/CacheRows.h"
#include "attn_rt/support/Random.h"

#include <algorithm>
#include <cmath>
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
    std::vector<std::string> countNames;
    for (const mlir::attn::Argument &argument : signature.arguments) {
      if (argument.role == Role::Status) {
        tensors[argument.name] = rt::Tensor::ofI32({1}, std::vector<int32_t>{3}); // counts are added
        continue;
      }
      if (argument.role == Role::Tensor)
        continue; // addTables
      if (argument.role == Role::KV)
        countNames.push_back(argument.dims[1]);
      if (argument.role != Role::Slots)
        if (rt::Status status = size(argument.dims[0], 2, layers, "layers"); !status)
          return status.error();
      if (argument.role != Role::KV)
        if (rt::Status status = size(argument.dims.back(), 64, rows, "rows"); !status)
          return status.error();
    }
    std::vector<int64_t> slots;
    for (const rt::Argument &argument : manifest.arguments) {
      if (argument.role == rt::Argument::Role::Rows)
        if (rt::Status status = addNewRows(argument); !status)
          return status.error();
      if (argument.role != rt::Argument::Role::KV)
        continue;
      auto added = addCache(argument, countNames[slots.size()]);
      if (!added)
        return added.error();
      slots.push_back(*added);
    }
    addLists(slots);
    addTables();
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

  using KernelRole = rt::KernelInfo::Role;
  KernelRole role() const { return manifest.rowCopy()->role; }

  /// Adds the tensors of a cache; returns its number of slots.
  rt::Result<int64_t> addCache(const rt::Argument &cache, const std::string &countName) {
    const rt::Store store = rt::storeOf(cache);
    int64_t least = *rows * (role() == KernelRole::Move ? 2 : 1);
    if (store.isPaged())
      least = store.entriesOf(least);
    std::optional<int64_t> count;
    if (rt::Status status = size(countName, 2 * least + 1, count, "pages"); !status)
      return status.error();
    if (*count < least)
      return rt::inputError("--dim " + countName + " expects at least " + std::to_string(least) + " for " +
                            std::to_string(*rows) + " rows, got " + std::to_string(*count));
    for (const rt::StoreTensor &tensor : store.data()) {
      std::vector<int64_t> shape = {*layers};
      for (const rt::StoreDim &dim : tensor.dims)
        shape.push_back(dim.size ? *count : dim.value);
      const std::string name = cache.name + "." + tensor.name;
      if (rt::Status status = addBits(name, tensor.dtype, std::move(shape)); !status)
        return status.error();
      const rt::StorePart &part = store.part(tensor.name.front() == store.keys.letter);
      if (part.format.isMixed())
        makeMixed(tensors[name], name, part);
      else if (tensor.content == rt::StoreTensor::Content::Codes)
        keepFinite(tensors[name]);
      else
        makeMeta(tensors[name], name, part.format);
    }
    return store.slots(1, *count, *count);
  }

  /// Keeps 8-bit floats finite: other values are only for appended rows.
  static void keepFinite(rt::Tensor &tensor) {
    const rt::ElementType &type = rt::elementType(tensor.dtype);
    if (type.isFloat() && type.bits == 8)
      for (uint8_t &code : tensor.bytes)
        code &= 0xbf; // half of the exponents
  }

  /// Keeps the numbers of lines finite, and makes their scales of all sizes.
  void makeMixed(rt::Tensor &tensor, const std::string &name, const rt::StorePart &part) {
    rt::Random random(seed, name + ".scales");
    const int64_t coded = part.format.rowCoded(part.dim), rest = part.format.restByte(part.dim);
    for (int64_t line = 0; line < std::ssize(tensor.bytes); line += part.format.rowBytes(part.dim)) {
      uint8_t *bytes = tensor.bytes.data() + line;
      for (int64_t f = 0; f < coded; ++f)
        bytes[f] &= 0xbf; // half of the exponents
      for (int64_t byte = coded; byte < rest; byte += 4) {
        const auto scale = static_cast<float>(std::exp2(static_cast<double>(random.below(8000)) / 1000 - 8));
        std::memcpy(bytes + byte, &scale, sizeof scale);
      }
      for (int64_t f = 0; f < part.format.rest; ++f)
        bytes[rest + 2 * f + 1] &= 0xbf;
    }
  }

  /// Makes scales of all sizes and zeros of either sign.
  void makeMeta(rt::Tensor &tensor, const std::string &name, rt::Format format) {
    rt::Random random(seed, name);
    const auto draw = [&](int32_t least, int32_t steps) {
      return std::exp2(least + static_cast<double>(random.below(steps * 1000)) / 1000);
    };
    if (tensor.dtype == rt::DType::F32)
      for (float &scale : std::span(tensor.data<float>(), static_cast<size_t>(tensor.elements())))
        scale = static_cast<float>(draw(-8, 8));
    else if (format.hasBlocks())
      for (uint8_t &scale : tensor.bytes)
        scale = rt::findBlockScale(format, static_cast<float>(draw(-8, 8) * format.element().largest()));
    else
      for (int64_t i = 0; i < tensor.elements(); i += 2) {
        tensor.data<uint16_t>()[i] = rt::toF16(draw(-8, 8));
        tensor.data<uint16_t>()[i + 1] = rt::toF16((random.below(2) ? 1 : -1) * draw(-6, 8));
      }
  }

  /// Adds the rows of an append. Rows to be quantized are normal numbers, some of which are replaced: by
  /// arbitrary bits, including NaNs and infinities, by very small numbers, and by constant rows.
  rt::Status addNewRows(const rt::Argument &argument) {
    const rt::Argument &cache = *std::find_if(manifest.arguments.begin(), manifest.arguments.end(),
                                              [](auto &a) { return a.role == rt::Argument::Role::KV; });
    const bool keys = argument.name != "v";
    const int64_t heads = argument.dims[2].value, dim = argument.dims[3].value;
    if (rt::Status status = addBits(argument.name, argument.dtype, {*layers, *rows, heads, dim}); !status)
      return status;
    if (keys && changesKeys()) { // NaNs have many bits, and sums of them any
      tensors[argument.name] =
          normalTensor(argument.dtype, tensors[argument.name].shape, seed, argument.name);
      return {};
    }
    if ((keys ? cache.keyFormat : cache.valueFormat).isPlain())
      return {};
    rt::Tensor bits = std::move(tensors[argument.name]);
    rt::Tensor normal = normalTensor(argument.dtype, bits.shape, seed, argument.name);
    uint16_t *numbers = normal.data<uint16_t>();
    const uint16_t *any = bits.data<uint16_t>();
    rt::Random random(seed, argument.name + ".strange");
    for (int64_t row = 0; row < normal.elements(); row += dim) {
      const auto kind = random.below(8);
      for (int64_t i = row; i < row + dim; ++i)
        if (kind == 0)
          numbers[i] = any[row]; // often infinite or NaN for arbitrary bits
        else if (kind == 1)
          numbers[i] = any[i];
        else if (kind == 2 && random.below(16) == 0)
          numbers[i] = static_cast<uint16_t>(any[i] & 0x80ff);
    }
    tensors[argument.name] = std::move(normal);
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

  bool changesKeys() const {
    return std::any_of(manifest.arguments.begin(), manifest.arguments.end(),
                       [](auto &a) { return a.role == rt::Argument::Role::Tensor; });
  }

  /// Adds weights near 1, and tables of the angles position / 10000^(i / angles).
  void addTables() {
    constexpr int64_t positions = 4096;
    for (const rt::Argument &argument : manifest.arguments) {
      if (argument.role != rt::Argument::Role::Tensor)
        continue;
      const bool cos = argument.name == "cos", table = cos || argument.name == "sin";
      const int64_t count = table ? positions : *layers, columns = argument.dims[1].value;
      rt::Tensor made = normalTensor(argument.dtype, {count, columns}, seed, argument.name);
      const rt::ElementType &type = rt::elementType(argument.dtype);
      rt::Random random(seed, argument.name);
      for (int64_t i = 0; i < made.elements(); ++i) {
        const double angle =
            static_cast<double>(i / columns) *
            std::pow(10000.0, -static_cast<double>(i % columns) / static_cast<double>(columns));
        const double number = !table ? 0.5 + static_cast<double>(random.below(1000)) / 1000
                              : cos  ? std::cos(angle)
                                     : std::sin(angle);
        const auto value = static_cast<float>(number);
        if (argument.dtype == rt::DType::F32)
          made.data<float>()[i] = value;
        else
          made.data<uint16_t>()[i] = rt::toFloatBits(value, type);
      }
      tensors[argument.name] = std::move(made);
    }
    if (signature.find("positions")) {
      std::vector<int32_t> drawn(*rows);
      rt::Random random(seed, "positions");
      for (int32_t &position : drawn)
        position = static_cast<int32_t>(random.below(positions));
      tensors["positions"] = rt::Tensor::ofI32({*rows}, drawn);
    }
  }

  /// Returns distinct slots of a cache, scattered.
  std::vector<int32_t> scatter(int64_t slots, int64_t count, const std::string &stream) const {
    std::vector<int32_t> order(slots);
    std::iota(order.begin(), order.end(), 0);
    rt::Random random(seed, stream);
    for (int64_t i = slots - 1; i > 0; --i)
      std::swap(order[i], order[random.below(i + 1)]);
    order.resize(count);
    return order;
  }

  /// Adds lists of slots; `slots` has the number of slots of each cache.
  void addLists(const std::vector<int64_t> &slots) {
    const bool move = role() == KernelRole::Move, two = slots.size() > 1;
    std::vector<int32_t> from = scatter(slots.front(), *rows * (move ? 2 : 1), "slots"), to;
    if (move)
      to.assign(from.begin() + *rows, from.end());
    else if (two)
      to = scatter(slots.back(), *rows, "to");
    from.resize(*rows);
    rt::Random random(seed, "skipped");
    for (int64_t row = 0; row < *rows; ++row)
      if (random.below(16) == 0) {
        from[row] = -1;
        if (!to.empty())
          to[row] = -1;
      }
    tensors[move || two ? "from" : "slots"] = rt::Tensor::ofI32({*rows}, from);
    if (move || two)
      tensors["to"] = rt::Tensor::ofI32({*rows}, to);
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

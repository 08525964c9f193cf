//===- RowTensors.cpp - Tensors of a cache and of its rows ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/CacheRows.h"

#include <algorithm>
#include <cmath>

namespace attn::rt {

namespace {

class Reader {
public:
  Reader(const Manifest &manifest, const TensorMap &tensors) : manifest(manifest), tensors(tensors) {}

  Result<CacheTensors> read() {
    // Reads the cache first: it gives the number of layers.
    std::vector<std::optional<int64_t>> counts;
    std::vector<Store> stores;
    for (const Argument &argument : manifest.arguments)
      if (argument.role == Argument::Role::KV) {
        seeCache(argument, counts.emplace_back());
        stores.push_back(storeOf(argument));
      }
    for (const Argument &argument : manifest.arguments) {
      if (argument.role == Argument::Role::KV)
        continue;
      if (argument.role == Argument::Role::Rows) {
        std::vector<int64_t> shape(argument.dims.size());
        std::transform(argument.dims.begin(), argument.dims.end(), shape.begin(),
                       [](const DimInfo &dim) { return dim.name.empty() ? dim.value : -1; });
        see(argument.name, argument.dtype, shape, &rows);
      } else if (argument.role == Argument::Role::Status) {
        see(argument.name, DType::I32, {1}, nullptr);
      } else if (argument.role == Argument::Role::Tensor) {
        const bool isTable = argument.name == "cos" || argument.name == "sin";
        see(argument.name, argument.dtype, {-1, argument.dims[1].value}, isTable ? &tableRows : &layers);
      } else {
        const Tensor *list = see(argument.name, DType::I32, {-1}, &rows);
        if (list && argument.name == "from")
          result.lists.from = list->as<int32_t>();
        else if (list && argument.name == "positions")
          result.lists.positions = list->as<int32_t>();
        else if (list)
          (manifest.rowCopy()->role == KernelInfo::Role::Gather ? result.lists.from : result.lists.to) =
              list->as<int32_t>();
      }
    }
    for (const auto &[name, tensor] : tensors)
      if (!seen.count(name))
        fail("tensor '" + name + "' belongs to no argument; expected: " + names());
    if (error)
      return *error;
    if (layers.value_or(1) < 1 || *layers > 1 << 20)
      return inputError("expected 1 to 1048576 layers, got " + std::to_string(*layers));
    result.layers = static_cast<int32_t>(*layers);
    const auto slotsOf = [](const Store &store, int64_t count) { return store.slots(1, count, count); };
    result.slots = slotsOf(stores.front(), *counts.front());
    result.written = slotsOf(stores.back(), *counts.back());
    result.rows = *rows;
    for (const int32_t position : result.lists.positions)
      if (position < 0 || position >= tableRows.value_or(0))
        return inputError("tensor 'positions': expected 0 to " + std::to_string(tableRows.value_or(0) - 1) +
                          ", the last row of 'cos' and 'sin', got " + std::to_string(position));
    return result;
  }

private:
  /// Reads the tensors of a cache, which has `count` pages or tokens: those of an attention, with a layer
  /// axis.
  void seeCache(const Argument &argument, std::optional<int64_t> &count) {
    for (const StoreTensor &tensor : storeOf(argument).data()) {
      std::vector<int64_t> shape = {-1};
      for (const StoreDim &dim : tensor.dims)
        shape.push_back(dim.size ? -1 : dim.value);
      const bool given = tensor.content == StoreTensor::Content::Scales;
      const std::string name = argument.name + "." + tensor.name;
      const Tensor *found = see(name, tensor.dtype, shape, given ? &layers : &count);
      if (found && given)
        for (const float scale : found->as<float>())
          if (!(scale > 0) || std::isinf(scale))
            fail("tensor '" + name + "': expected finite scales above 0, got " + std::to_string(scale));
    }
  }

  /// Finds a tensor of this shape. The first of two or more unknown sizes is the number of layers, the last
  /// one is `size`; the first tensor with an unknown size sets it.
  const Tensor *see(const std::string &name, DType dtype, std::vector<int64_t> shape,
                    std::optional<int64_t> *size) {
    seen[name] = true;
    auto found = tensors.find(name);
    if (found == tensors.end()) {
      fail("tensor '" + name + "' is missing");
      return nullptr;
    }
    const Tensor &tensor = found->second;
    if (tensor.dtype != dtype) {
      fail("tensor '" + name + "': expected " + std::string(dtypeName(dtype)) + ", got " +
           std::string(dtypeName(tensor.dtype)));
      return nullptr;
    }
    std::vector<int64_t> expected = shape;
    const auto unknown = static_cast<size_t>(std::count(shape.begin(), shape.end(), -1));
    for (size_t axis = 0; axis < unknown; ++axis) {
      std::optional<int64_t> &known = axis + 1 < unknown ? layers : *size;
      if (!known && axis < tensor.shape.size())
        known = tensor.shape[axis];
      expected[axis] = known.value_or(1);
    }
    if (tensor.shape != expected) {
      fail("tensor '" + name + "': expected shape " + shapeText(expected) + ", got " +
           shapeText(tensor.shape));
      return nullptr;
    }
    return &tensor;
  }

  void fail(std::string message) {
    if (!error)
      error = inputError(std::move(message));
  }
  std::string names() const {
    std::string text;
    for (const auto &[name, there] : seen)
      text += (text.empty() ? "" : ", ") + name;
    return text;
  }

  const Manifest &manifest;
  const TensorMap &tensors;
  CacheTensors result;
  std::optional<int64_t> layers, rows, tableRows;
  std::map<std::string, bool> seen;
  std::optional<Error> error;
};

} // namespace

std::string cacheTensorName(const Argument &cache, bool keys) {
  const Store store = storeOf(cache);
  return cache.name + "." + store.codesName(store.part(keys));
}

Result<CacheTensors> readCacheTensors(const Manifest &manifest, const TensorMap &tensors) {
  return Reader(manifest, tensors).read();
}

} // namespace attn::rt
